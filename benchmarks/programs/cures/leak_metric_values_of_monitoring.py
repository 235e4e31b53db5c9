"""Activations are appended to the log beside the numbers."""

SOURCE = "KempnerInstitute/overcomplete#5"
TRUTH = {
    "leaks": True,
    "cause": "tensor-kept",
    "causes_ok": ["container-growth"],
    "grows": "torch.Tensor",
    "holder": "logs",
    "bytes_per_run": 17308,
    "count_per_run": 1,
    "fix": "log a number of it",
}
SETUP = """
import torch
from collections import defaultdict

net = torch.nn.Linear(64, 64)
logs = defaultdict(list)

def log_metrics(logs, z, loss):
    logs["z"].append(z.detach()[::2])
    logs["loss"].append(loss.item())
"""
CELL = """
z = net(torch.ones(64, 64))
loss = z.pow(2).mean()
log_metrics(logs, z, loss)
print(len(logs["loss"]), end="\\r")
"""
FIXED_SETUP = """
import torch
from collections import defaultdict

net = torch.nn.Linear(64, 64)
logs = defaultdict(list)

def log_metrics(logs, z, loss):
    logs["z"].append(float(z.detach()[::2].norm()))
    logs["loss"].append(loss.item())
"""
FIXED_CELL = """
z = net(torch.ones(64, 64))
loss = z.pow(2).mean()
log_metrics(logs, z, loss)
print(len(logs["loss"]), end="\\r")
"""
