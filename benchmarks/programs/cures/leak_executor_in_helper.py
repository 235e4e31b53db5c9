"""A helper makes an executor for each call and never shuts it down."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "thread-or-worker-kept",
    "causes_ok": ["container-growth"],
    "grows": "threading.Thread",
    "holder": "thread",
    "bytes_per_run": 36157,
    "count_per_run": 1,
    "fix": "with ThreadPoolExecutor(...) as pool",
}
SETUP = """
import torch
from concurrent.futures import ThreadPoolExecutor

pools = []

def load(paths):
    pool = ThreadPoolExecutor(max_workers=1)
    pools.append(pool)
    return [future.result() for future in [pool.submit(torch.zeros, n) for n in paths]]
"""
CELL = """
batch = load([10, 20])
"""
FIXED_SETUP = """
import torch
from concurrent.futures import ThreadPoolExecutor

def load(paths):
    with ThreadPoolExecutor(max_workers=1) as pool:
        return [future.result() for future in [pool.submit(torch.zeros, n) for n in paths]]
"""
FIXED_CELL = """
batch = load([10, 20])
"""
