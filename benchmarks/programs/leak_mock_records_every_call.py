"""A long-lived MagicMock stands in for the writer of a notebook: it records every call with its arguments."""

SOURCE = "python/cpython#106823"
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["global-cache", "tensor-kept"],
    "grows": "torch.Tensor",
    "holder": "_mock_",
    "holders_ok": ["writer", "call_args", "mock_calls"],
    "bytes_per_run": 27500,
    "count_per_run": 1,
    "fix": "writer.reset_mock() after each epoch, or a plain function that does nothing",
}
SETUP = """
import torch
from unittest import mock
torch.manual_seed(0)
writer = mock.MagicMock(name='writer')
layer = torch.nn.Linear(64, 64)

def epoch(step):
    with torch.no_grad():
        activations = layer(torch.randn(100, 64))
    writer.add_histogram('activations', activations, step)
    return float(activations.mean())
"""
CELL = """
mean = epoch(1)
"""
FIXED_CELL = """
mean = epoch(1)
writer.reset_mock()
"""
