"""What a library's classes keep of the objects of each run, and the changes of the user's code that end it."""

from __future__ import annotations

import linecache
import sys

import pytest

from leaklab.model.cure import CureOutcome

pytestmark = [
    pytest.mark.untraced,
    pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True"),  # torch says that it leaks
]

LIBRARY = """\
import torch


class Neuron(torch.nn.Module):
    instances = []

    def __init__(self, n):
        super().__init__()
        self.register_buffer("beta", torch.rand(n))
        Neuron.instances.append(self)


class Widget:
    alive = set()

    def __init__(self, n):
        self.data = bytearray(n)
        Widget.alive.add(self)


class Part:
    registry = {}

    def __init__(self, name):
        self.name, self.data = name, bytearray(9000)
        Part.registry[name] = self


class Tracer:
    def __init__(self, model, layer):
        self.model, self.seen = model, []
        layer.register_forward_hook(self.note)

    def note(self, module, inputs, output):
        self.seen = [output]

    def __call__(self, x):
        self.model(x)
        return self.seen[-1].detach()


class Score:
    def __init__(self):
        self.states, self.preds = ["preds"], []

    def __call__(self, preds):
        self.preds.append(preds)
        return preds.mean()

    def compute(self):
        return torch.cat(self.preds).mean()

    def reset(self):
        for name in self.states:
            getattr(self, name).clear()
"""
MODEL = "import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())\nx = torch.rand(4, 64)\n"
STEP = """\
import torch
x = torch.rand(32, 64)
def step():
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    net(x).sum().backward(create_graph=True)
    return sum(p.grad.pow(2).sum() for p in net.parameters()).item()
"""
CURED = {
    "a list of instances": (
        "from of_library import Neuron", "neuron = Neuron(4096)\nvalue = neuron.beta.sum().item()\ndel neuron",
        "Neuron.instances.remove(neuron)\ndel neuron",
    ),
    "a set of instances": (
        "from of_library import Widget", "widget = Widget(9000)\nvalue = len(widget.data)",
        "Widget.alive.discard(widget)",
    ),
    "instances by their names": (
        "from of_library import Part\nimport itertools\nnumbers = itertools.count()",
        "part = Part(f'part {next(numbers)}')\nvalue = len(part.data)", "Part.registry.pop(part.name, None)",
    ),
    "an object that leaves its hook": (
        f"from of_library import Tracer\n{MODEL}",
        "trace = Tracer(model, model[0])\nvalue = trace(x)\ndel trace, value",
        'if "_trace" not in globals():\n    trace = Tracer(model, model[0])\n    _trace = trace\ntrace = _trace',
    ),
    "a metric that is called": (
        "import torch\nfrom of_library import Score\nscore = Score()", "value = score(torch.rand(4096)).item()",
        "score.reset()",
    ),
    "gradients with a graph, of a model of the run": (STEP, "value = step()", "net.zero_grad()"),
}  # fmt: skip


@pytest.fixture
def library(tmp_path, monkeypatch):
    package = tmp_path / "site-packages"
    package.mkdir()
    (package / "of_library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.setattr("leaklab.check.cures._LEAST_TRIAL_SECONDS", 60.0)  # a busy machine is no reason
    linecache.clearcache()
    yield
    sys.modules.pop("of_library", None)


@pytest.mark.parametrize("name", CURED)
def test_the_run_takes_back_what_a_library_has_noted(library, notebook, name):
    setup, cell, written = CURED[name]
    notebook.run(setup)
    report = notebook.check(cell, "--cure -n 16 -t 120", cures=True)
    assert report.leaks, report
    assert report.leaks[0].cures, report
    best = report.leaks[0].cures[0]
    assert best.outcome is CureOutcome.CURED, report.leaks[0].cures
    text = f"{setup}\n{cell}"
    for change in sorted(best.changes, key=lambda one: -one.line):
        assert text.count(change.before) == 1
        text = text.replace(change.before, change.after)
    assert written in text, text


def test_a_metric_that_is_asked_in_another_cell_is_not_emptied_in_each_run(library, notebook):
    notebook.run("import torch\nfrom of_library import Score\nepoch = Score()")
    notebook.run("def at_the_end_of_the_epoch():\n    return epoch.compute()")
    report = notebook.check(
        "value = epoch(torch.rand(4096)).item()\nif value < 0:\n    print(at_the_end_of_the_epoch())",
        "--cure -n 16 -t 120", cures=True,
    )  # fmt: skip
    changed = [change.after for leak in report.leaks for cure in leak.cures for change in cure.changes]
    assert not any("epoch.reset()" in text for text in changed), changed
