"""Masks are cached by the tensor of lengths, which is new in every run."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["tensor-kept"],
    "grows": "torch.Tensor",
    "holder": "masks",
    "bytes_per_run": 1187,
    "count_per_run": 1,
    "fix": "use a key that repeats: tuple(lengths.tolist())",
}
SETUP = """
import torch

masks = {}

def mask_for(lengths):
    if lengths not in masks:
        masks[lengths] = torch.arange(64) < lengths[:, None]
    return masks[lengths]
"""
CELL = """
lengths = torch.tensor([3, 5, 7])
mask = mask_for(lengths)
"""
FIXED_SETUP = """
import torch

masks = {}

def mask_for(lengths):
    key = tuple(lengths.tolist())
    if key not in masks:
        masks[key] = torch.arange(64) < lengths[:, None]
    return masks[key]
"""
FIXED_CELL = """
lengths = torch.tensor([3, 5, 7])
mask = mask_for(lengths)
"""
