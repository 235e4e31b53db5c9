"""Continual learning: each task adds its head to the optimizer."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "optimizer-state",
    "grows": "torch.nn.parameter.Parameter",
    "holder": "opt",
    "bytes_per_run": 8705,
    "count_per_run": 1,
    "fix": "take the group of the last task out",
}
SETUP = """
import torch

body = torch.nn.Linear(32, 32)
opt = torch.optim.Adam(body.parameters(), 1e-3)

class Task:
    def __init__(self, opt):
        self.head = torch.nn.Linear(32, 10)
        opt.add_param_group({"params": list(self.head.parameters())})

    def train(self, opt, x):
        opt.zero_grad()
        self.head(body(x)).pow(2).mean().backward()
        opt.step()
"""
CELL = """
task = Task(opt)
task.train(opt, torch.ones(4, 32))
"""
FIXED_CELL = """
task = Task(opt)
task.train(opt, torch.ones(4, 32))
for parameter in opt.param_groups.pop()["params"]:
    opt.state.pop(parameter, None)
"""
