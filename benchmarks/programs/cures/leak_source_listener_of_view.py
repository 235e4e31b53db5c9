"""Each view adds itself to the listeners of the one data source."""

SOURCE = "beeware/toga#4061"
TRUTH = {
    "leaks": True,
    "cause": "callback-registry",
    "causes_ok": ["container-growth", "tensor-kept", "global-cache"],
    "grows": "torch.Tensor",
    "holder": "_listeners",
    "bytes_per_run": 16809,
    "count_per_run": 1,
    "fix": "source.remove_listener(view) when the view closes",
}
SETUP = """
import torch

class Source:
    def __init__(self):
        self._listeners = []

    def add_listener(self, listener):
        self._listeners.append(listener)

    def remove_listener(self, listener):
        self._listeners.remove(listener)

    def notify(self, n):
        for listener in self._listeners:
            listener.changed(n)

class View:
    def __init__(self, source):
        self.source, self.pixels = source, torch.zeros(64, 64)
        self.source.add_listener(self)

    def changed(self, n):
        self.pixels += n

source = Source()
"""
CELL = """
view = View(source)
source.notify(1)
"""
FIXED_CELL = """
view = View(source)
source.notify(1)
source.remove_listener(view)
"""
