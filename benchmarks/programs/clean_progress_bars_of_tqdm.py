"""Nested progress bars of tqdm in each run, written to a buffer that is dropped."""

SOURCE = "tqdm/tqdm#1467"
TRUTH = {
    "leaks": False,
    "cause": "none",
    "grows": None,
    "holder": None,
    "bytes_per_run": 0,
    "count_per_run": 0,
    "fix": None,
}
SETUP = """
import io
from tqdm import tqdm
"""
CELL = """
screen = io.StringIO()
total = 0
for epoch in tqdm(range(2), file=screen):
    for batch in tqdm(range(5), file=screen, leave=False):
        total += batch
"""
FIXED_CELL = """
total = 0
"""
