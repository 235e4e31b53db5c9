"""Metrics are logged under a name with the number of the step: a table of small tensors, one key more per run."""

SOURCE = "none: a pattern that is reported often"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["tensor-kept", "container-growth"],
    "grows": "torch.Tensor",
    "holder": "logged",
    "holders_ok": ["metrics"],
    "bytes_per_run": 1150,
    "count_per_run": 2,
    "fix": "one name per metric",
}
SETUP = """
import torch
torch.manual_seed(0)

class Module:
    def __init__(self):
        self.net = torch.nn.Linear(10, 2)
        self.logged = {}
        self.step = 0

    def log(self, name, value):
        self.logged[name] = value.detach()

    def training_step(self, per_step=True):
        self.step += 1
        x = torch.randn(16, 10)
        loss = self.net(x).pow(2).mean()
        loss.backward()
        tail = '/%d' % self.step if per_step else ''
        self.log('train/loss' + tail, loss)
        self.log('train/norm' + tail, self.net.weight.grad.norm())
        self.net.zero_grad()

module = Module()
"""
CELL = """
module.training_step()
"""
FIXED_CELL = """
module.training_step(per_step=False)
"""
