"""Thirty new patterns are compiled in each run; the cache of the re module holds 512."""

SOURCE = "python/cpython#71722"
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
import itertools, re
numbers = itertools.count()
"""
CELL = """
found = sum(bool(re.search('a%d+b' % next(numbers), 'xx a1b a2b yy')) for _ in range(30))
"""
FIXED_CELL = """
found = 0
"""
