"""The same loss, with its graph, is kept in two lists."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "graph-kept",
    "causes_ok": ["tensor-kept"],
    "grows": "torch.Tensor",
    "holder": "losses",
    "holders_ok": ["curve"],
    "bytes_per_run": 3493,
    "count_per_run": 1,
    "fix": "store the number in both",
}
SETUP = """
import torch

net = torch.nn.Linear(16, 16)
opt = torch.optim.SGD(net.parameters(), 0.01)
losses, curve = [], []
"""
CELL = """
opt.zero_grad()
loss = net(torch.ones(64, 16)).pow(2).mean()
loss.backward()
opt.step()
losses.append(loss)
curve.append(loss)
"""
FIXED_SETUP = """
import torch

net = torch.nn.Linear(16, 16)
opt = torch.optim.SGD(net.parameters(), 0.01)
losses, curve = [], []
"""
FIXED_CELL = """
opt.zero_grad()
loss = net(torch.ones(64, 16)).pow(2).mean()
loss.backward()
opt.step()
losses.append(loss.item())
curve.append(loss.item())
"""
