"""An evaluation registers a parametrization on top of the one before."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "closure-kept",
    "causes_ok": ["tensor-kept", "run-switch", "container-growth", "hook-left"],
    "grows": "Scale",
    "holder": "parametrizations",
    "bytes_per_run": 1561,
    "count_per_run": 1,
    "fix": "remove_parametrizations when it is over",
}
SETUP = """
import torch
from torch.nn.utils import parametrize

class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("by", torch.ones(16, 16))

    def forward(self, w):
        return w * self.by

net = torch.nn.Linear(16, 16)
"""
CELL = """
parametrize.register_parametrization(net, "weight", Scale())
y = net(torch.ones(2, 16)).detach()
"""
FIXED_CELL = """
parametrize.register_parametrization(net, "weight", Scale())
y = net(torch.ones(2, 16)).detach()
parametrize.remove_parametrizations(net, "weight")
"""
