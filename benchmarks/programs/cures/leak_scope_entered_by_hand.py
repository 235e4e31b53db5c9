"""A scope is entered by hand, and stays on the stack of its class."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["callback-registry", "tensor-kept", "global-cache"],
    "grows": "Scope",
    "holder": "active",
    "bytes_per_run": 8363,
    "count_per_run": 1,
    "fix": "with Scope() as scope:",
}
SETUP = """
import torch

class Scope:
    active = []
    def __init__(self, name):
        self.name, self.seen = name, torch.zeros(2000)

    def __enter__(self):
        Scope.active.append(self)
        return self

    def __exit__(self, *error):
        Scope.active.remove(self)

    def note(self, x):
        self.seen[0] += x

def note(x):
    Scope.active[-1].note(x)
"""
CELL = """
scope = Scope("eval").__enter__()
note(2.0)
total = float(scope.seen.sum())
"""
FIXED_CELL = """
with Scope("eval") as scope:
    note(2.0)
    total = float(scope.seen.sum())
"""
