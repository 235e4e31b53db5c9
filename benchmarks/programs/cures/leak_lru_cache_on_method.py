"""A cached method has self among its keys, so the cache of the class keeps every loader."""

SOURCE = "AllenInstitute/ipfx#495"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["tensor-kept"],
    "grows": "Loader",
    "holder": "_series",
    "bytes_per_run": 80450,
    "count_per_run": 1,
    "fix": "keep the cache on the object: functools.cached_property, or a dict of its own",
}
SETUP = """
import functools, torch

class Loader:
    def __init__(self):
        self.data = torch.arange(20000.0)

    @functools.lru_cache(maxsize=None)
    def _series(self, number):
        return float(self.data[number])
"""
CELL = """
loader = Loader()
a, b = loader._series(1), loader._series(2)
c = loader._series(1)
"""
FIXED_SETUP = """
import functools, torch

class Loader:
    def __init__(self):
        self.data = torch.arange(20000.0)
        self._series = functools.lru_cache(maxsize=None)(self._get)

    def _get(self, number):
        return float(self.data[number])
"""
FIXED_CELL = """
loader = Loader()
a, b = loader._series(1), loader._series(2)
c = loader._series(1)
"""
