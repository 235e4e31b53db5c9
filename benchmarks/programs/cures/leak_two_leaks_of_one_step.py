"""A trainer keeps the loss with its graph and registers a hook in every step."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "hook-left",
    "causes_ok": ["graph-kept", "tensor-kept", "closure-kept"],
    "grows": "function",
    "holder": "hooks",
    "bytes_per_run": 11451,
    "count_per_run": 1,
    "fix": "remove the hook, and store the number",
}
SETUP = """
import torch

class Trainer:
    def __init__(self):
        self.net = torch.nn.Linear(16, 16)
        self.opt = torch.optim.SGD(self.net.parameters(), 0.01)
        self.losses = []

    def step(self, x):
        stats = torch.zeros(2000)
        def count(module, args, out):
            stats[0] += 1
        self.net.register_forward_hook(count)
        self.opt.zero_grad()
        loss = self.net(x).pow(2).mean()
        loss.backward()
        self.opt.step()
        self.losses.append(loss)

trainer = Trainer()
"""
CELL = """
trainer.step(torch.ones(4, 16))
"""
FIXED_SETUP = """
import torch

class Trainer:
    def __init__(self):
        self.net = torch.nn.Linear(16, 16)
        self.opt = torch.optim.SGD(self.net.parameters(), 0.01)
        self.losses = []

    def step(self, x):
        stats = torch.zeros(2000)
        def count(module, args, out):
            stats[0] += 1
        handle = self.net.register_forward_hook(count)
        self.opt.zero_grad()
        loss = self.net(x).pow(2).mean()
        loss.backward()
        self.opt.step()
        handle.remove()
        self.losses.append(loss.item())

trainer = Trainer()
"""
FIXED_CELL = """
trainer.step(torch.ones(4, 16))
"""
