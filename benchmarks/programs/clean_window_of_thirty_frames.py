"""The last thirty frames of data are kept, merged and grouped in each run."""

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
import numpy as np, pandas as pd
rng = np.random.default_rng(0)
window = []
"""
CELL = """
frame = pd.DataFrame({'key': rng.integers(0, 5, 50), 'value': rng.random(50)})
window.append(frame)
if len(window) > 30:
    del window[0]
means = pd.concat(window[-3:]).groupby('key')['value'].mean()
"""
FIXED_CELL = """
means = None
"""
