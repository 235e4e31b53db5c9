"""Learning rates are noted in a dict from step to number, losses in an array: two logs of plain numbers."""

SOURCE = "none: a pattern that is reported often"
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
import array, math
rates, losses, step = {}, array.array('d'), 0
"""
CELL = """
step += 1
rates[step] = 0.1 * math.cos(step)
losses.append(1.0 / step)
"""
FIXED_CELL = """
step += 1
"""
