"""A background task is made for each request and waits for ever."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "thread-or-worker-kept",
    "causes_ok": ["tensor-kept", "container-growth", "closure-kept"],
    "grows": "Task",
    "holder": "tasks",
    "bytes_per_run": 13097,
    "count_per_run": 1,
    "fix": "cancel the task when the request is over",
}
SETUP = """
import asyncio, torch

loop = asyncio.new_event_loop()
tasks = set()

async def watch(payload):
    await asyncio.Event().wait()
    return payload

async def handle():
    task = loop.create_task(watch(torch.zeros(3000)))
    tasks.add(task)
    await asyncio.sleep(0)
    return 1
"""
CELL = """
n = loop.run_until_complete(handle())
"""
FIXED_SETUP = """
import asyncio, torch

loop = asyncio.new_event_loop()
tasks = set()

async def watch(payload):
    await asyncio.Event().wait()
    return payload

async def handle():
    task = loop.create_task(watch(torch.zeros(3000)))
    tasks.add(task)
    await asyncio.sleep(0)
    task.cancel()
    tasks.discard(task)
    await asyncio.sleep(0)
    return 1
"""
FIXED_CELL = """
n = loop.run_until_complete(handle())
"""
