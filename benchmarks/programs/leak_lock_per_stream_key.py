"""A manager makes an asyncio.Lock per scope.

Key and stream and never drops one, although the state itself is cleaned up.
"""

SOURCE = "aden-hive/hive#1690"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["container-growth"],
    "grows": "Lock",
    "holder": "_key_locks",
    "bytes_per_run": 470,
    "count_per_run": 2,
    "fix": "drop the lock with its stream, or keep the locks in a WeakValueDictionary",
}
SETUP = """
import asyncio, itertools
streams = itertools.count(1)

class SharedState:
    def __init__(self):
        self._values = {}
        self._key_locks = {}

    def _lock(self, scope, key, stream):
        return self._key_locks.setdefault((scope, key, stream), asyncio.Lock())

    async def write(self, scope, key, stream, value):
        async with self._lock(scope, key, stream):
            self._values[scope, key, stream] = value

    def cleanup(self, stream, locks=False):
        for table in [self._values] + [self._key_locks] * locks:
            for entry in [e for e in table if e[2] == stream]:
                del table[entry]

state = SharedState()

async def run_stream(stream, locks=False):
    for key in ('input', 'output'):
        await state.write('stream', key, stream, bytes(300))
    state.cleanup(stream, locks)
"""
CELL = """
asyncio.run(run_stream('stream-%d' % next(streams)))
"""
FIXED_CELL = """
asyncio.run(run_stream('stream-%d' % next(streams), locks=True))
"""
