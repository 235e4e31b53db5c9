"""Every call runs its own event loop with a few tasks, a lock and an executor, all closed at the end."""

SOURCE = "python/cpython#109534"
TRUTH = {
    "leaks": False,
    "cause": "none",
    "grows": None,
    "holder": None,
    "bytes_per_run": 0,
    "count_per_run": 0,
    "fix": None,
}
SETUP = """
import asyncio
"""
CELL = """
async def part(lock, number):
    async with lock:
        await asyncio.sleep(0)
    return bytes(number * 100)

async def main():
    lock = asyncio.Lock()
    loop = asyncio.get_running_loop()
    parts = await asyncio.gather(*(part(lock, n) for n in range(8)))
    return sum(map(len, parts)) + await loop.run_in_executor(None, len, parts)

total = asyncio.run(main())
"""
FIXED_CELL = """
total = 0
"""
