"""Each step waits for its work or for the stop event, whichever comes first; the task that waits for the stop stays."""

SOURCE = "python/cpython#152569"
TRUTH = {
    "leaks": True,
    "cause": "thread-or-worker-kept",
    "causes_ok": ["closure-kept", "container-growth", "callback-registry", "global-cache"],
    "grows": "Task",
    "holder": "_waiters",
    "holders_ok": ["stop"],
    "bytes_per_run": 9200,
    "count_per_run": 1,
    "fix": "cancel the pending task after asyncio.wait()",
}
SETUP = """
import asyncio
loop = asyncio.new_event_loop()
stop = asyncio.Event()

async def wait_for_stop(batch):
    await stop.wait()
    return len(batch)

async def work(batch):
    await asyncio.sleep(0)
    return sum(batch[:10])

async def step(cancel=False):
    batch = bytearray(8000)
    tasks = [asyncio.create_task(work(batch)), asyncio.create_task(wait_for_stop(batch))]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    if cancel:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    return [task.result() for task in done]
"""
CELL = """
answer = loop.run_until_complete(step())
"""
FIXED_CELL = """
answer = loop.run_until_complete(step(cancel=True))
"""
