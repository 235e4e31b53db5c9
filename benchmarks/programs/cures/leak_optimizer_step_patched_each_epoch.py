"""The step of the optimizer is patched by every epoch to count it."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "closure-kept",
    "causes_ok": ["callback-registry"],
    "grows": "function",
    "holder": "step",
    "bytes_per_run": 12532,
    "count_per_run": 1,
    "fix": "patch it once",
}
SETUP = """
import torch

net = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
counts = {"steps": 0}

def counted(step, scratch):
    def wrapper(*args, **kwargs):
        counts["steps"] = counts["steps"] % 10 + scratch.numel() // scratch.numel()
        return torch.optim.SGD.step(optimizer, *args, **kwargs)
    wrapper.__wrapped__ = step
    return wrapper
"""
CELL = """
optimizer.step = counted(optimizer.step, torch.empty(3000))
optimizer.zero_grad()
net(torch.ones(2, 8)).mean().backward()
optimizer.step()
"""
FIXED_CELL = """
step = optimizer.step
optimizer.step = counted(optimizer.step, torch.empty(3000))
optimizer.zero_grad()
net(torch.ones(2, 8)).mean().backward()
optimizer.step()
optimizer.step = step
"""
