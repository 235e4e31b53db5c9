"""A context variable holds a list that each request copies with one entry more."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["tensor-kept"],
    "grows": "torch.Tensor",
    "holder": "context",
    "bytes_per_run": 8389,
    "count_per_run": 1,
    "fix": "reset the variable by its token",
}
SETUP = """
import contextvars, torch

spans = contextvars.ContextVar("spans", default=())

def request(payload):
    token = spans.set((*spans.get(), payload))
    return float(spans.get()[-1].sum())
"""
CELL = """
y = request(torch.ones(2000))
"""
FIXED_SETUP = """
import contextvars, torch

spans = contextvars.ContextVar("spans", default=())

def request(payload):
    token = spans.set((*spans.get(), payload))
    y = float(spans.get()[-1].sum())
    spans.reset(token)
    return y
"""
FIXED_CELL = """
y = request(torch.ones(2000))
"""
