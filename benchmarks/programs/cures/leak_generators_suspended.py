"""Samplers are generators that are kept though only their first item is read."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["tensor-kept", "closure-kept"],
    "grows": "generator",
    "holder": "samplers",
    "bytes_per_run": 210068,
    "count_per_run": 1,
    "fix": "close the generator, and do not keep it",
}
SETUP = """
import torch

samplers = []

def sampler(n):
    pool = torch.randn(n)
    for value in pool:
        yield float(value)

def draw(n):
    values = sampler(n)
    samplers.append(values)
    return next(values)
"""
CELL = """
first = draw(400)
"""
FIXED_SETUP = """
import torch

def sampler(n):
    pool = torch.randn(n)
    for value in pool:
        yield float(value)

def draw(n):
    values = sampler(n)
    first = next(values)
    values.close()
    return first
"""
FIXED_CELL = """
first = draw(400)
"""
