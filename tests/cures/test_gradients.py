"""A change that lets a program learn something else is told so, though every parameter still has a gradient."""

from __future__ import annotations

import difflib
import linecache

import pytest
from descent import DESCENT

import leaklab
from leaklab.model.cure import CureOutcome

pytestmark = pytest.mark.untraced

REGULARISED = (
    DESCENT
    + """\
class Fit:
    def __init__(self):
        self.net = torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.Tanh(), torch.nn.Linear(24, 3))
        self.opt = Descent(self.net.parameters())
        self.totals = {"task": 0.0, "penalty": 0.0}
    def step(self, batch, target):
        out = self.net(batch)
        task = torch.nn.functional.mse_loss(out, target)
        penalty = sum(one.square().sum() for one in self.net.parameters())
        self.opt.zero_grad()
        (task + 0.01 * penalty).backward()
        self.opt.step()
        self.totals["task"] += task
        self.totals["penalty"] += penalty
fit = Fit()
"""
)
STEP = "fit.step(torch.randn(16, 12), torch.randn(16, 3))\n"
NUMBERS = {"+= task\n": "+= task.item()\n", "+= penalty\n": "+= penalty.item()\n"}
SUMS = """\
import itertools, torch
weight, rows, numbers = torch.ones(4, requires_grad=True), [], itertools.count(1)
"""


def diff(name: str, text: str, changes: dict[str, str]) -> str:
    """Return the unified diff that writes the values of *changes* for their keys."""
    new = text
    for before, after in changes.items():
        assert before in new
        new = new.replace(before, after)
    lines = difflib.unified_diff(text.splitlines(), new.splitlines(), name, name, lineterm="")
    return "".join(f"{line}\n" for line in lines)


OTHER_GRADIENTS = {
    "the output is detached": {"out = self.net(batch)\n": "out = self.net(batch).detach()\n"},
    "the loss is forgotten": {"(task + 0.01 * penalty).backward()": "(0.01 * penalty).backward()"},
    "gradients pile up": {"self.opt.zero_grad()\n": "self.opt.zero_grad\n"},
}
MORE_OF_THEM = {  # beside the output that is detached
    "the loss is detached": {"(task + 0.01 * penalty).backward()": "(task.detach() + 0.01 * penalty).backward()"},
    "no data": {"self.net(batch)\n": "self.net(0 * batch)\n"},
}


@pytest.mark.parametrize(
    "lines",
    [pytest.param(OTHER_GRADIENTS, id="three"), pytest.param(MORE_OF_THEM, marks=pytest.mark.nightly, id="more")],
)
def test_numbers_leave_the_gradients_as_they_were_and_whatever_learns_something_else_is_not_cured(notebook, lines):
    """Losses leak in a program whose penalty gives every parameter a gradient."""
    linecache.clearcache()  # cells that other tests ran in this process are sources as well
    assert notebook.run(REGULARISED).error is None
    report = notebook.check(STEP, "-n 8 --no-cure")
    cure = leaklab.try_change(report, diff("fit", REGULARISED, NUMBERS))
    assert cure.outcome is CureOutcome.CURED, cure
    assert "; same gradients" in cure.evidence
    for name, line in lines.items():
        cure = leaklab.try_change(report, diff("fit", REGULARISED, {**NUMBERS, **line}))
        assert cure.outcome is not CureOutcome.CURED, (name, cure)
        assert ", but the gradient of " in cure.evidence, (name, cure)


def test_other_random_numbers_in_each_copy_are_no_other_gradients(notebook):
    linecache.clearcache()
    notebook.run(SUMS)
    cell = (
        "import os\nweight.grad = None\nloss = (weight * (os.getpid() * 7919 % 1000)).sum()\nloss.backward()\n"
        "rows.append(loss)\n"
    )
    report = notebook.check(cell, "-n 8 --no-cure")
    cure = leaklab.try_change(report, cell.replace("append(loss)", "append(loss.item())"))
    assert cure.outcome is CureOutcome.CURED, cure
    assert cure.evidence.endswith("; the same parameters get gradients")


RUNNING = (
    DESCENT
    + """\
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
opt = Descent(net.parameters())
total, n_steps, mean = 0.0, 0, None
sums = {"squares": 0.0, "sizes": 0.0}
def step(batch):
    global total, n_steps, mean
    out = net(batch)
    squares, sizes = out.square().mean(), out.abs().mean()
    opt.zero_grad()
    (squares + sizes).backward()
    opt.step()
"""
)


@pytest.mark.by_day(1)
@pytest.mark.parametrize(
    ("lines", "changed"),
    [
        (["total += squares"], ["    total += squares.item()"]),
        (["total += squares", "n_steps += 1", "mean = total / n_steps"], ["    total += squares.item()"]),
        (
            ["sums['squares'] += squares", "sums['sizes'] += sizes"],
            ["    sums['squares'] += squares.item()", "    sums['sizes'] += sizes.item()"],
        ),
    ],
    ids=["a sum", "a sum and its mean", "two sums"],
)
def test_a_running_sum_gets_the_number_and_the_graph_of_earlier_runs_does_not_count(notebook, lines, changed):
    linecache.clearcache()
    setup = RUNNING + "".join(f"    {line}\n" for line in lines)
    assert notebook.run(setup).error is None
    report = notebook.check("step(torch.randn(16, 8))", "--cure -n 8 -t 120", cures=True)
    first = [leak.cures[0] for leak in report.leaks]
    assert [cure.outcome for cure in first] == [CureOutcome.CURED] * len(changed), str(report)
    assert sorted(change.after for cure in first for change in cure.changes) == sorted(changed)
    assert all("; same gradients; " in cure.evidence for cure in first)
    assert "began without the graph of earlier runs" in first[0].evidence


MOVING = """\
import torch
net = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
shadow = {name: one.detach().clone() for name, one in net.named_parameters()}
sums = [torch.zeros(()) for _ in range(3)]
def follow():
    for name, one in net.named_parameters():
        shadow[name] = 0.9 * shadow[name] + 0.1 * one
def add():
    for number in range(3):
        sums[number] = sums[number] + net(torch.randn(4, 6)).square().mean()
class Mean:
    def __init__(self):
        self.parts = [one.detach().clone() for one in net.parameters()]
    def follow(self):
        self.parts = [0.9 * part + 0.1 * one for part, one in zip(self.parts, net.parameters())]
mean = Mean()
def learn():
    net.zero_grad()
    net(torch.randn(4, 6)).square().mean().backward()
"""


@pytest.mark.parametrize(
    ("cell", "changed"),
    [
        ("learn()\nfollow()", "shadow[name] = (0.9 * shadow[name] + 0.1 * one).detach()"),
        ("learn()\nadd()", "sums[number] = sums[number] + net(torch.randn(4, 6)).square().mean().item()"),
        ("learn()\nmean.follow()", "mean.parts[:] = [tensor.detach() for tensor in mean.parts]"),
    ],
    ids=["in a dict", "in a list", "in a new list"],
)
def test_one_change_cuts_the_graphs_of_all_items(notebook, cell, changed):
    linecache.clearcache()
    assert notebook.run(MOVING).error is None
    report = notebook.check(cell, "--cure -n 8 -t 120", cures=True)
    cures = [cure for leak in report.leaks for cure in leak.cures if cure.outcome is CureOutcome.CURED]
    assert any(changed in change.after for cure in cures for change in cure.changes), str(report)


def test_gradients_that_a_run_sets_to_zero_are_not_called_the_same(notebook):
    linecache.clearcache()
    notebook.run("import torch\nweight, rows = torch.ones(4, requires_grad=True), []\n")
    cell = "loss = (weight * 2).sum()\nloss.backward()\nrows.append(loss)\nweight.grad.zero_()\n"
    report = notebook.check(cell, "-n 8")
    cure = leaklab.try_change(report, cell.replace("append(loss)", "append(loss.item())"))
    assert cure.outcome is CureOutcome.CURED, cure
    assert cure.evidence.endswith("; the same parameters get gradients")


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True:UserWarning")
def test_gradients_with_a_graph_are_let_go_of_though_they_add_up_to_others_then(notebook):
    linecache.clearcache()
    notebook.run("import torch\nweight = torch.randn(40, 40, requires_grad=True)")
    cell = (
        "loss = torch.tanh(torch.randn(40, 40) @ weight).square().mean()\nloss.backward(create_graph=True)\n"
        "curvature = float(weight.grad.norm().detach())"
    )
    (leak,) = notebook.check(cell, "--cure -n 8 -t 120", cures=True).leaks
    assert leak.cures[0].outcome is CureOutcome.CURED, leak.cures
    assert leak.cures[0].changes[0].after.splitlines()[0] == "weight.grad = None"
    assert leak.cures[0].evidence.endswith("; the same parameters get gradients")
