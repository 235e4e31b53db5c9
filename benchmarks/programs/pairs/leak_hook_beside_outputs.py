"""Each run leaves a small hook, and a large output in a list."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "tensor-kept",
    "causes_ok": ["hook-left", "container-growth"],
    "grows": "torch.Tensor",
    "holder": "outputs",
    "holders_ok": ["hooks", "handles"],
    "bytes_per_run": 5703,
    "count_per_run": 1,
    "fix": "remove the hook, and keep the newest output only",
}
SETUP = """
import torch

net = torch.nn.Linear(32, 32)
handles, outputs = [], []

def keep(module, args, output):
    return None
"""
CELL = """
handles.append(net.register_forward_hook(keep))
with torch.no_grad():
    outputs.append(net(torch.ones(40, 32)))
"""
FIXED_SETUP = """
import torch

net = torch.nn.Linear(32, 32)
handles, outputs = [], []

def keep(module, args, output):
    return None
"""
FIXED_CELL = """
handle = net.register_forward_hook(keep)
with torch.no_grad():
    outputs[:] = [net(torch.ones(40, 32))]
handle.remove()
"""
