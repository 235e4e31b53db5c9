"""A client releases a future when its result was fetched.

Every third job fails, and failed futures are never released.
"""

SOURCE = "dask/distributed#8790"
TRUTH = {
    "leaks": True,
    "cause": "traceback-kept",
    "causes_ok": ["global-cache", "container-growth", "thread-or-worker-kept"],
    "grows": "Future",
    "holder": "futures",
    "holders_ok": ["Client"],
    "bytes_per_run": 11200,
    "count_per_run": 0.33,
    "fix": "release the future in a finally block",
}
SETUP = """
import concurrent.futures as cf, itertools

class Client:
    def __init__(self, always_release=False):
        self.pool = cf.ThreadPoolExecutor(1)
        self.futures = {}
        self.always_release = always_release
        self.keys = itertools.count()

    def result(self, function, *args):
        key = '%s-%06d' % (function.__name__, next(self.keys))
        self.futures[key] = future = self.pool.submit(function, *args)
        try:
            value = future.result()
        except ValueError:
            if self.always_release:
                del self.futures[key]
            return None
        del self.futures[key]
        return value

def job(number):
    block = bytearray(30_000)
    if number % 3 == 0:
        raise ValueError('job %d' % number)
    return len(block)

client = Client()
jobs = itertools.count()
"""
CELL = """
answer = client.result(job, next(jobs))
"""
FIXED_CELL = """
client.always_release = True
answer = client.result(job, next(jobs))
"""
