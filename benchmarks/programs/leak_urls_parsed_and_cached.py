"""functools.cache over the parser of URLs whose query holds a time stamp.

A bounded cache of pages beside it is full.
"""

SOURCE = "mathsman5133/coc.py#154"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["container-growth"],
    "grows": "SplitResult",
    "holder": "parse",
    "holders_ok": ["cache"],
    "bytes_per_run": 500,
    "count_per_run": 1,
    "fix": "lru_cache with a size, or cache by the part without the query",
}
SETUP = """
import functools, itertools
from urllib.parse import urlsplit
stamps = itertools.count(1_700_000_000)

@functools.cache
def parse(url):
    return urlsplit(url)

@functools.lru_cache(maxsize=10)
def fetch(path, stamp):
    return (path + ' ') * 100

def visit(cached=True):
    stamp = next(stamps)
    url = 'https://clash.example.org/v1/clans/%23' + 'ABC?stamp=%d' % stamp
    parts = parse(url) if cached else urlsplit(url)
    return len(fetch(parts.path, stamp))
"""
CELL = """
size = visit()
"""
FIXED_SETUP = SETUP.replace("@functools.cache", "@functools.lru_cache(maxsize=12)")
FIXED_CELL = CELL
