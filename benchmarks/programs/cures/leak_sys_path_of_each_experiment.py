"""Each experiment puts its folder in front of sys.path."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["global-cache"],
    "grows": "str",
    "holder": "sys.path",
    "bytes_per_run": 0,
    "count_per_run": 1,
    "fix": "take the folder out again",
}
SETUP = """
import itertools, sys

numbers = itertools.count()

def experiment(number):
    folder = "/experiments/" + "x" * 200 + str(number)
    sys.path.insert(0, folder)
    return folder
"""
CELL = """
folder = experiment(next(numbers))
"""
FIXED_CELL = """
folder = experiment(next(numbers))
sys.path.remove(folder)
"""
