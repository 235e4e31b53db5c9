"""An optimizer for programs of which it is not the subject.

The first optimizer of torch's imports half of it, and each look at the heap, each collection in a copy of the process
goes through that: 118,000 objects more.
"""

DESCENT = """\
import torch
class Descent:
    def __init__(self, parameters):
        self.parameters = [*parameters]
    def zero_grad(self):
        for one in self.parameters:
            one.grad = None
    def step(self):
        with torch.no_grad():
            for one in self.parameters:
                if one.grad is not None:
                    one -= 0.01 * one.grad
"""
