"""A class made in each run registers itself through __init_subclass__."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["container-growth", "tensor-kept"],
    "grows": "type",
    "holder": "registry",
    "bytes_per_run": 10171,
    "count_per_run": 1,
    "fix": "take it out of the registry",
}
SETUP = """
import torch

class Plugin:
    registry = []

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        Plugin.registry.append(cls)

def make(scale):
    class Scaled(Plugin):
        weights = torch.full((2000,), scale)
    return Scaled
"""
CELL = """
kind = make(2.0)
w = float(kind.weights[0])
"""
FIXED_CELL = """
kind = make(2.0)
w = float(kind.weights[0])
Plugin.registry.remove(kind)
"""
