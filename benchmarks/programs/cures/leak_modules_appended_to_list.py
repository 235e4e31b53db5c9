"""Adapters are appended to a ModuleList by every task and only the last is used."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "tensor-kept",
    "causes_ok": ["container-growth", "run-switch", "optimizer-state"],
    "grows": "Parameter",
    "holder": "adapters",
    "bytes_per_run": 6299,
    "count_per_run": 1,
    "fix": "keep the newest adapter only",
}
SETUP = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(32, 32)
        self.adapters = torch.nn.ModuleList()

    def new_task(self):
        self.adapters.append(torch.nn.Linear(32, 32))

    def forward(self, x):
        return self.adapters[-1](self.body(x))

net = Net()
"""
CELL = """
net.new_task()
y = net(torch.ones(2, 32)).detach()
"""
FIXED_SETUP = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(32, 32)
        self.adapters = torch.nn.ModuleList([torch.nn.Identity()])

    def new_task(self):
        self.adapters[0] = torch.nn.Linear(32, 32)

    def forward(self, x):
        return self.adapters[-1](self.body(x))

net = Net()
"""
FIXED_CELL = """
net.new_task()
y = net(torch.ones(2, 32)).detach()
"""
