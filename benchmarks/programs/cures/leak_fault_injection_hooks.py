"""An instrument class registers hooks on all layers of the model and drops the handles."""

SOURCE = "fffasttime/MRFI#5"
TRUTH = {
    "leaks": True,
    "cause": "hook-left",
    "grows": "function",
    "holder": "hooks",
    "bytes_per_run": 8589,
    "count_per_run": 1,
    "fix": "keep the handles, and remove them when the campaign ends",
}
SETUP = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))

class Injector:
    def __init__(self, model, rate):
        self.config = torch.full((2000,), rate)
        self.model = model
        self.add_hooks()

    def add_hooks(self):
        for module in self.model:
            module.register_forward_hook(self.inject)

    def inject(self, module, args, output):
        return output + self.config[0]

    def run(self, x):
        with torch.no_grad():
            return self.model(x)
"""
CELL = """
injector = Injector(model, 0.0)
y = injector.run(torch.ones(2, 16))
"""
FIXED_SETUP = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))

class Injector:
    def __init__(self, model, rate):
        self.config = torch.full((2000,), rate)
        self.model = model

    def inject(self, module, args, output):
        return output + self.config[0]

    def run(self, x):
        handles = [module.register_forward_hook(self.inject) for module in self.model]
        with torch.no_grad():
            y = self.model(x)
        for handle in handles:
            handle.remove()
        return y
"""
FIXED_CELL = """
injector = Injector(model, 0.0)
y = injector.run(torch.ones(2, 16))
"""
