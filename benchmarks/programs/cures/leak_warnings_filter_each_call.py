"""A helper adds a warnings filter for the message of its own call."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["global-cache"],
    "grows": "tuple",
    "holder": "warnings.filters",
    "bytes_per_run": 43,
    "count_per_run": 1,
    "fix": "with warnings.catch_warnings():",
}
SETUP = """
import itertools, warnings

numbers = itertools.count()

def quiet(function, message):
    warnings.filterwarnings("ignore", message=message)
    return function()
"""
CELL = """
y = quiet(lambda: 3, f"shape {next(numbers)}")
"""
FIXED_SETUP = """
import itertools, warnings

numbers = itertools.count()

def quiet(function, message):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=message)
        return function()
"""
FIXED_CELL = """
y = quiet(lambda: 3, f"shape {next(numbers)}")
"""
