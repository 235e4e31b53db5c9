"""A penalty is taken with create_graph and stored beside its loss."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "graph-kept",
    "causes_ok": ["tensor-kept", "container-growth"],
    "grows": "torch.Tensor",
    "holder": "penalties",
    "bytes_per_run": 9367,
    "count_per_run": 1,
    "fix": "penalties.append(penalty.item())",
}
SETUP = """
import torch

net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
opt = torch.optim.SGD(net.parameters(), 0.01)

class Penalty:
    def __init__(self):
        self.penalties = []

    def __call__(self, x):
        x = x.requires_grad_()
        grads, = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        penalty = grads.norm()
        self.penalties.append(penalty)
        return penalty

    def mean(self):
        return sum(float(p) for p in self.penalties) / len(self.penalties)

penalty = Penalty()
"""
CELL = """
opt.zero_grad()
x = torch.ones(4, 16)
(net(x).mean() + penalty(x)).backward()
opt.step()
"""
FIXED_SETUP = """
import torch

net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
opt = torch.optim.SGD(net.parameters(), 0.01)

class Penalty:
    def __init__(self):
        self.penalties = []

    def __call__(self, x):
        x = x.requires_grad_()
        grads, = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        penalty = grads.norm()
        self.penalties.append(penalty.item())
        return penalty

    def mean(self):
        return sum(float(p) for p in self.penalties) / len(self.penalties)

penalty = Penalty()
"""
FIXED_CELL = """
opt.zero_grad()
x = torch.ones(4, 16)
(net(x).mean() + penalty(x)).backward()
opt.step()
"""
