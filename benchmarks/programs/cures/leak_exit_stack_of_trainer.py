"""Contexts are entered into the exit stack of the trainer and never left."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "callback-registry",
    "causes_ok": ["container-growth", "tensor-kept"],
    "grows": "Scope",
    "holder": "stack",
    "bytes_per_run": 12455,
    "count_per_run": 1,
    "fix": "use `with` around the step",
}
SETUP = """
import contextlib, torch

class Scope:
    depth = 0
    def __init__(self):
        self.scratch = torch.zeros(3000)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.scratch = None

class Trainer:
    def __init__(self):
        self.stack = contextlib.ExitStack()

    def step(self, x):
        scope = self.stack.enter_context(Scope())
        return float((x + scope.scratch[0]).sum())

trainer = Trainer()
"""
CELL = """
y = trainer.step(torch.ones(10))
"""
FIXED_SETUP = """
import contextlib, torch

class Scope:
    depth = 0
    def __init__(self):
        self.scratch = torch.zeros(3000)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.scratch = None

class Trainer:
    def step(self, x):
        with Scope() as scope:
            return float((x + scope.scratch[0]).sum())

trainer = Trainer()
"""
FIXED_CELL = """
y = trainer.step(torch.ones(10))
"""
