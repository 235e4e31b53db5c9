"""Entries of a cache have a time to live of fifteen runs."""

SOURCE = "google/guava#3511"
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
import collections, itertools

class Expiring:
    def __init__(self, ttl):
        self.ttl, self.now = ttl, 0
        self.data = collections.OrderedDict()

    def tick(self):
        self.now += 1
        while self.data and next(iter(self.data.values()))[0] <= self.now - self.ttl:
            self.data.popitem(last=False)

    def put(self, key, value):
        self.data[key] = (self.now, value)

cache = Expiring(ttl=15)
keys = itertools.count()
"""
CELL = """
cache.tick()
for _ in range(3):
    cache.put('user-%d' % next(keys), {'settings': list(range(30))})
"""
FIXED_CELL = """
cache.tick()
"""
