"""A thread pool in a with block per run; the threads end with it."""

SOURCE = "none: a pattern that is reported often"
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
import concurrent.futures as cf, threading
local = threading.local()

def job(number):
    if not hasattr(local, 'scratch'):
        local.scratch = bytearray(20_000)
    local.scratch[number] = 1
    return sum(local.scratch)
"""
CELL = """
with cf.ThreadPoolExecutor(3) as pool:
    answers = list(pool.map(job, range(12)))
"""
FIXED_CELL = """
answers = []
"""
