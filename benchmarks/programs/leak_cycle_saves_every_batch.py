"""itertools.cycle() around an endless stream of batches saves each item for a second round that never comes."""

SOURCE = "pytorch/pytorch#23900"
TRUTH = {
    "leaks": True,
    "cause": "tensor-kept",
    "causes_ok": ["container-growth", "closure-kept", "global-cache"],
    "grows": "torch.Tensor",
    "holder": "batches",
    "holders_ok": ["cycle"],
    "bytes_per_run": 26100,
    "count_per_run": 1,
    "fix": "iterate over the stream itself, it never ends",
}
SETUP = """
import itertools, torch
torch.manual_seed(0)

def stream():
    while True:
        yield torch.randn(64, 100)

batches = itertools.cycle(stream())
net = torch.nn.Linear(100, 4)
"""
CELL = """
with torch.no_grad():
    score = float(net(next(batches)).mean())
"""
FIXED_SETUP = SETUP.replace("batches = itertools.cycle(stream())", "batches = stream()")
FIXED_CELL = CELL
