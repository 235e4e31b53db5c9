"""A saved-tensors hook is entered by every step and never left."""

SOURCE = "pytorch/pytorch#115255 is near"
TRUTH = {
    "leaks": True,
    "cause": "callback-registry",
    "causes_ok": ["native"],
    "grows": "function",
    "holder": "saved_tensors",
    "bytes_per_run": 8541,
    "count_per_run": 1,
    "fix": "with torch.autograd.graph.saved_tensors_hooks(...)",
}
SETUP = """
import torch

net = torch.nn.Linear(16, 16)

def packer(buffer):
    def pack(x):
        buffer[0] = 1
        return x
    return pack
"""
CELL = """
hooks = torch.autograd.graph.saved_tensors_hooks(packer(torch.zeros(2000)), lambda x: x)
hooks.__enter__()
loss = net(torch.ones(2, 16)).sum()
loss.backward()
net.zero_grad()
"""
FIXED_CELL = """
with torch.autograd.graph.saved_tensors_hooks(packer(torch.zeros(2000)), lambda x: x):
    loss = net(torch.ones(2, 16)).sum()
    loss.backward()
net.zero_grad()
"""
