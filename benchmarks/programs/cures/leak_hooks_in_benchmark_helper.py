"""A benchmark helper registers one hook a call, and the model is the same."""

SOURCE = "NeuroBench/neurobench#184"
TRUTH = {
    "leaks": True,
    "cause": "hook-left",
    "causes_ok": ["tensor-kept"],
    "grows": "function",
    "holder": "hooks",
    "bytes_per_run": 12457,
    "count_per_run": 1,
    "fix": "remove the hook where the benchmark ends",
}
SETUP = """
import torch

class Counter:
    def __init__(self):
        self.activations = []

    def __call__(self, module, args, output):
        self.activations.append(output.detach())

def benchmark(model, x):
    counter = Counter()
    model.register_forward_hook(counter)
    model(x)
    return sum(float(a.count_nonzero()) for a in counter.activations)

net = torch.nn.Linear(32, 512)
"""
CELL = """
sparsity = benchmark(net, torch.ones(4, 32))
"""
FIXED_SETUP = """
import torch

class Counter:
    def __init__(self):
        self.activations = []

    def __call__(self, module, args, output):
        self.activations.append(output.detach())

def benchmark(model, x):
    counter = Counter()
    handle = model.register_forward_hook(counter)
    model(x)
    handle.remove()
    return sum(float(a.count_nonzero()) for a in counter.activations)

net = torch.nn.Linear(32, 512)
"""
FIXED_CELL = """
sparsity = benchmark(net, torch.ones(4, 32))
"""
