"""What is read goes into one list, the exceptions of what is not into another."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "tensor-kept",
    "causes_ok": ["traceback-kept", "container-growth"],
    "grows": "torch.Tensor",
    "holder": "queue",
    "holders_ok": ["errors"],
    "bytes_per_run": 22050,
    "count_per_run": 2,
    "fix": "keep the newest sample only, and the texts of the errors",
}
SETUP = """
import torch

errors, queue = [], []

def read(number):
    sample = torch.zeros(2500)
    if number % 2:
        raise ValueError(f"sample {number} is broken")
    return sample

def load():
    for number in range(2):
        try:
            queue.append(read(number))
        except ValueError as problem:
            errors.append(problem)
"""
CELL = """
load()
"""
FIXED_SETUP = """
import torch

errors, queue = [], []

def read(number):
    sample = torch.zeros(2500)
    if number % 2:
        raise ValueError(f"sample {number} is broken")
    return sample

def load():
    for number in range(2):
        try:
            queue[:] = [read(number)]
        except ValueError as problem:
            errors.append(str(problem))
"""
FIXED_CELL = """
load()
"""
