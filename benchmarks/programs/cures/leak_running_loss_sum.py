"""The running loss of a model class adds up tensors with their graphs."""

SOURCE = "BatsResearch/labelmodels#4"
TRUTH = {
    "leaks": True,
    "cause": "graph-kept",
    "grows": "torch.Tensor",
    "holder": "running_loss",
    "bytes_per_run": 3070,
    "count_per_run": 1,
    "fix": "running_loss += loss.item()",
}
SETUP = """
import torch

class LabelModel:
    def __init__(self):
        self.net = torch.nn.Linear(32, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.01)
        self.running_loss = 0.0
        self.n = 0

    def step(self, x):
        self.optimizer.zero_grad()
        loss = self.net(x).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.running_loss = self.running_loss + loss
        self.n += 1
        return self.running_loss / self.n

model = LabelModel()
"""
CELL = """
mean = float(model.step(torch.ones(16, 32)))
"""
FIXED_SETUP = """
import torch

class LabelModel:
    def __init__(self):
        self.net = torch.nn.Linear(32, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.01)
        self.running_loss = 0.0
        self.n = 0

    def step(self, x):
        self.optimizer.zero_grad()
        loss = self.net(x).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.running_loss = self.running_loss + loss.item()
        self.n += 1
        return self.running_loss / self.n

model = LabelModel()
"""
FIXED_CELL = """
mean = float(model.step(torch.ones(16, 32)))
"""
