"""A data set keeps the exception of each sample that could not be read."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "traceback-kept",
    "grows": "ValueError",
    "holder": "errors",
    "bytes_per_run": 24895,
    "count_per_run": 1,
    "fix": "keep the text",
}
SETUP = """
import torch

class Samples:
    def __init__(self):
        self.errors = {}

    def read(self, number):
        raw = torch.zeros(3000)
        if number % 2:
            raise ValueError(f"sample {number} is broken")
        return raw

    def get(self, number):
        try:
            return self.read(number)
        except ValueError as problem:
            self.errors[len(self.errors)] = problem
            return None

samples = Samples()
"""
CELL = """
found = [samples.get(n) for n in range(4)]
"""
FIXED_SETUP = """
import torch

class Samples:
    def __init__(self):
        self.errors = {}

    def read(self, number):
        raw = torch.zeros(3000)
        if number % 2:
            raise ValueError(f"sample {number} is broken")
        return raw

    def get(self, number):
        try:
            return self.read(number)
        except ValueError as problem:
            self.errors[len(self.errors)] = str(problem)
            return None

samples = Samples()
"""
FIXED_CELL = """
found = [samples.get(n) for n in range(4)]
"""
