"""A reservoir of 32 samples fills, then samples replace each other at random."""

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
import random, torch
random.seed(1)
torch.manual_seed(0)
reservoir, seen = [], 0
"""
CELL = """
for row in torch.randn(4, 200):
    seen += 1
    if len(reservoir) < 32:
        reservoir.append(row.clone())
    elif (place := random.randrange(seen)) < 32:
        reservoir[place] = row.clone()
del row
"""
FIXED_CELL = """
seen += 4
"""
