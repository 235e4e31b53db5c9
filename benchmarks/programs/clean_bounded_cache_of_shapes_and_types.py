"""A cache with a limit of 24, keyed by type as well, is asked for two new keys in each run."""

SOURCE = "evalf/nutils#654"
TRUTH = {
    "leaks": False,
    "cause": "none-bounded",
    "grows": None,
    "holder": None,
    "bytes_per_run": 0,
    "count_per_run": 0,
    "fix": None,
}
SETUP = """
import functools, itertools
numbers = itertools.count()

@functools.lru_cache(maxsize=24, typed=True)
def plan(size):
    return [float(size)] * 400
"""
CELL = """
size = next(numbers)
total = len(plan(size)) + len(plan(float(size)))
"""
FIXED_CELL = """
total = len(plan(1))
"""
