"""The hidden state of an agent is carried with its graph."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "graph-kept",
    "grows": "torch.Tensor",
    "holder": "hidden",
    "bytes_per_run": 17077,
    "count_per_run": 1,
    "fix": "self.hidden = hidden.detach()",
}
SETUP = """
import torch

class Agent:
    def __init__(self):
        self.cell = torch.nn.GRUCell(8, 16)
        self.hidden = torch.zeros(1, 16)

    def act(self, x):
        self.hidden = self.cell(x, self.hidden)
        return int(self.hidden.argmax())

agent = Agent()
"""
CELL = """
action = agent.act(torch.ones(1, 8))
"""
FIXED_SETUP = """
import torch

class Agent:
    def __init__(self):
        self.cell = torch.nn.GRUCell(8, 16)
        self.hidden = torch.zeros(1, 16)

    def act(self, x):
        self.hidden = self.cell(x, self.hidden).detach()
        return int(self.hidden.argmax())

agent = Agent()
"""
FIXED_CELL = """
action = agent.act(torch.ones(1, 8))
"""
