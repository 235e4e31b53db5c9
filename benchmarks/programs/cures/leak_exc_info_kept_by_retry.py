"""A retry helper appends sys.exc_info() to its history."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "traceback-kept",
    "causes_ok": ["tensor-kept"],
    "grows": "traceback",
    "holder": "history",
    "bytes_per_run": 16385,
    "count_per_run": 1,
    "fix": "keep the text of the error",
}
SETUP = """
import sys, torch

history = []

def fetch():
    body = torch.zeros(4000)
    raise TimeoutError("no answer")

def with_retry(function):
    try:
        function()
    except TimeoutError:
        history.append(sys.exc_info())
"""
CELL = """
with_retry(fetch)
"""
FIXED_SETUP = """
import sys, torch

history = []

def fetch():
    body = torch.zeros(4000)
    raise TimeoutError("no answer")

def with_retry(function):
    try:
        function()
    except TimeoutError:
        history.append(str(sys.exc_info()[1]))
"""
FIXED_CELL = """
with_retry(fetch)
"""
