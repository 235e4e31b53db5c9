"""Changes of what a ``def`` says beside its body, and of what runs wrap, are tried, and nothing of them stays."""

from __future__ import annotations

import functools
import gc

import pytest

import leaklab
from leaklab.model.cure import CureOutcome

pytestmark = pytest.mark.untraced

DEFAULT = """\
import torch
def embed(words, table, rows=[]):
    for word in words:
        rows.append(table[word] * 2)
    return torch.stack(rows[-len(words):])
table = torch.randn(50, 64)
"""
METHOD = """\
import functools, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(64, 64)

    @functools.lru_cache(maxsize=None)
    def mask(self, n):
        return torch.ones(n, n).tril() * self.lin.bias.detach()

    def forward(self, x):
        return self.lin(x) @ self.mask(64)
"""
FUNCTION = """\
import torch
from functools import lru_cache
@lru_cache(maxsize=None)
def kernel(sigma):
    return torch.exp(-torch.arange(-50, 51) ** 2 / (2 * sigma ** 2))
"""
WRAPPED = """\
import torch
net = torch.nn.Linear(30, 3)
net.predict = lambda x: net(x).argmax(1)
def profile(n):
    times = []
    inner = net.predict
    def timed(x):
        times.append(1.0)
        return inner(x)
    net.predict = timed
    for _ in range(n):
        net.predict(torch.randn(4, 30))
    return sum(times) / len(times)
"""
ON_CTX = """\
import torch
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.y = y
        return y
    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.y
x = torch.randn(2000, requires_grad=True)
"""


def cured(report):
    """Return the changes of the cure, each as the line that goes and what takes its place."""
    cure = next(cure for leak in report.leaks for cure in leak.cures if cure.changes)
    assert cure.outcome is CureOutcome.CURED, cure.evidence
    return [(change.before.strip(), change.after.strip()) for change in cure.changes], cure.evidence


def test_a_default_that_collects_is_made_anew_in_each_call(notebook):
    notebook.run(DEFAULT)
    embed = notebook.user["embed"]
    code, collected = embed.__code__, embed.__defaults__[0]
    changes, _ = cured(notebook.check("e = embed([1, 2, 3], table)", "--cure -n 16 -t 120", cures=True))
    assert changes[0] == ("def embed(words, table, rows=[]):", "def embed(words, table, rows=None):")
    assert changes[1][1].startswith("if rows is None:\n        rows = []")
    assert embed.__code__ is code
    assert embed.__defaults__[0] is collected
    assert len(collected) >= 3 * 16


def test_a_cached_method_gets_a_cache_of_its_own_for_each_object(notebook):
    notebook.run(METHOD)
    kind = notebook.user["Net"]
    mask, init = vars(kind)["mask"], vars(kind)["__init__"].__code__
    report = notebook.check("net = Net()\ny = net(torch.randn(4, 64)).sum().item()", "--cure -n 16 -t 120", cures=True)
    changes, _ = cured(report)
    assert ("@functools.lru_cache(maxsize=None)", "") in changes
    assert any("self.mask = functools.lru_cache(maxsize=None)(self.mask)" in after for _, after in changes)
    assert vars(kind)["mask"] is mask
    assert vars(kind)["__init__"].__code__ is init


def test_a_cache_is_bounded_where_it_is_decorated(notebook):
    notebook.run(FUNCTION)
    kernel = notebook.user["kernel"]
    report = notebook.check("k = kernel(float(torch.rand(1)))", "--cure -n 16 -t 120", cures=True)
    assert cured(report)[0] == [("@lru_cache(maxsize=None)", "@lru_cache(maxsize=5)")]
    assert notebook.user["kernel"] is kernel
    assert kernel.cache_info().maxsize is None


def test_a_wrapper_is_put_back_from_what_the_function_has_kept(notebook):
    """What earlier runs have wrapped goes on growing by itself: the trial begins without it, and says so."""
    notebook.run(WRAPPED)
    changes, evidence = cured(notebook.check("mean = profile(3)", "--cure -n 16 -t 120", cures=True))
    assert changes[0][1].splitlines()[1].strip() == "net.predict = inner"
    assert "`net.predict` began without the wrappers of earlier runs" in evidence
    assert notebook.user["net"].predict.__name__ == "timed"


def test_what_is_put_on_a_ctx_is_saved_for_backward(notebook):
    notebook.run(ON_CTX)
    gc.disable()
    try:
        changes, _ = cured(notebook.check("y = Exp.apply(x)", "--cure -n 16 -t 120", cures=True))
    finally:
        gc.enable()
    assert changes == [
        ("ctx.y = y", "ctx.save_for_backward(y)"), ("return grad * ctx.y", "return grad * ctx.saved_tensors[0]"),
    ]  # fmt: skip


def test_models_under_numbered_names_are_results_and_are_not_replaced_by_the_newest(notebook):
    notebook.run("import torch\nn = 0")
    cell = "n += 1\nglobals()[f'model_{n}'] = torch.nn.Linear(30, 30)"
    (leak,) = notebook.check(cell, "--cure -n 16 -t 120", cures=True).leaks
    assert leak.holder == "globals()"
    assert [cure for cure in leak.cures if cure.outcome is CureOutcome.CURED] == []
    assert "Use one name" in leak.advice


@pytest.mark.parametrize(
    ("decorator", "is_again"),
    [("@functools.lru_cache(maxsize=4)", False), ("@noted\n@functools.lru_cache(maxsize=4)", True)],
)
def test_a_decorator_of_the_users_is_called_again_only_with_the_cell_that_has_it(notebook, decorator, is_again):
    """It may register what it is given: only one that does nothing but wrap is called for the function alone."""
    text = FUNCTION.replace("from functools import lru_cache", "import functools\ndef noted(f):\n    return f")
    notebook.run(text.replace("@lru_cache", "@functools.lru_cache"))
    report = notebook.check("k = kernel(float(torch.rand(1)))", "-n 16")
    body = FUNCTION.partition("@lru_cache(maxsize=None)\n")[2]
    cure = leaklab.try_change(report, f"{decorator}\n{body}")
    assert cure.outcome is CureOutcome.CURED, cure.evidence
    assert ("run again first" in cure.evidence) is is_again
    assert type(notebook.user["kernel"]) is functools._lru_cache_wrapper
    assert notebook.user["kernel"].cache_info().maxsize is None
