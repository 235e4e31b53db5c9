"""A closure is given to atexit by every start of a worker."""

SOURCE = "ponty/EasyProcess#1"
TRUTH = {
    "leaks": True,
    "cause": "callback-registry",
    "causes_ok": ["native"],
    "grows": "function",
    "holder": "atexit",
    "bytes_per_run": 20417,
    "count_per_run": 1,
    "fix": "register it once, or take it back",
}
SETUP = """
import atexit, torch

def start(buffer):
    def shutdown():
        buffer.zero_()
    atexit.register(shutdown)
    return buffer
"""
CELL = """
worker = start(torch.ones(5000))
total = float(worker.sum())
"""
FIXED_SETUP = """
import atexit, torch

def start(buffer):
    return buffer
"""
FIXED_CELL = """
worker = start(torch.ones(5000))
total = float(worker.sum())
"""
