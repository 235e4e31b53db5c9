"""Buffers go back to a pool, which grows to what the busiest run needed."""

SOURCE = "none: a pattern that is reported often"
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
import random
random.seed(4)
pool = []

def borrow():
    return pool.pop() if pool else bytearray(8_000)
"""
CELL = """
taken = [borrow() for _ in range(random.randint(1, 14))]
for buffer in taken:
    buffer[0] = 1
pool.extend(taken)
del taken, buffer
"""
FIXED_CELL = """
taken = []
"""
