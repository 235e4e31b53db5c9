"""What several places hold, and what leaks beside something else, is ended by changes that are made together."""

from __future__ import annotations

import json
import linecache
import subprocess
import sys
from pathlib import Path

import pytest

import leaklab
from leaklab.model.cure import CureOutcome

pytestmark = pytest.mark.untraced

FRAMES = """\
class Player:
    def __init__(self):
        self.shown, self.recent = [], []

    def show(self, number):
        frame = bytearray(8000), number
        self.shown.append(frame)
        self.recent.append(frame)

player, number = Player(), 0
"""
VIEWS = """\
class Bus:
    def __init__(self):
        self.listeners = []
    def subscribe(self, listener):
        self.listeners.append(listener)
    def unsubscribe(self, listener):
        self.listeners.remove(listener)

class View:
    def __init__(self):
        self.image = bytearray(8000)
    def on_event(self):
        return self.image

bus, views = Bus(), []
"""
LOSSES = "import torch\nnet = torch.nn.Linear(16, 16)\nlosses, curve = [], []\n"
HOOKS = """\
import torch
net = torch.nn.Linear(32, 32)
handles, outputs, x = [], [], torch.ones(40, 32)
def keep(module, args, output):
    return None
"""
ATTENTION = """\
import torch
class Attention(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv, self.keys, self.values = torch.nn.Linear(width, 3 * width), [], []
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        self.keys.append(k)
        self.values.append(v)
        keys, values = torch.cat(self.keys, 1), torch.cat(self.values, 1)
        return torch.nn.functional.scaled_dot_product_attention(q, keys, values)
attention = Attention(64).eval()
"""
METER = """\
import torch
class Meter:
    def __init__(self):
        self.boxes, self.scores = [], []
    def update(self, boxes, scores):
        self.boxes.append(boxes)
        self.scores.append(scores)
    def compute(self):
        return (torch.cat(self.boxes).mean(1) * torch.cat(self.scores)).mean().item()
meter = Meter()
"""
PROGRAMS = {
    "keys beside values, of which one alone cannot go": (
        ATTENTION, "with torch.no_grad():\n    for _ in range(3):\n        out = attention(torch.randn(4, 1, 64))"
    ),
    "boxes beside scores, of which one alone cannot go": (
        METER, "for _ in range(3):\n    meter.update(torch.rand(200, 4), torch.rand(200))\nvalue = meter.compute()"
    ),
    "a frame of plain data in two lists": (FRAMES, "number += 1\nplayer.show(number)"),
    "a view in a list and on a bus": (
        VIEWS, "view = View()\nbus.subscribe(view.on_event)\nviews.append(view)"
    ),
    "a loss in two lists": (
        LOSSES,
        "loss = net(torch.ones(64, 16)).pow(2).mean()\nloss.backward()\nlosses.append(loss)\ncurve.append(loss)",
    ),
    "a hook whose handle is kept, beside outputs": (
        HOOKS,
        "handles.append(net.register_forward_hook(keep))\nwith torch.no_grad():\n    outputs.append(net(x))",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_together_they_end_it_and_the_program_no_longer_grows_without_leaklab(notebook, monkeypatch, name):
    linecache.clearcache()  # cells that other tests ran in this process bind names as well
    monkeypatch.setattr("leaklab.check.cures._LEAST_TRIAL_SECONDS", 60.0)  # a busy machine is no reason
    setup, cell = PROGRAMS[name]
    notebook.run(setup)
    report = notebook.check(cell, "--cure -n 8 -t 120", cures=True)
    changed = [setup, cell]
    for leak in report.leaks:
        best = leak.cures[0]
        assert best.outcome is CureOutcome.CURED, leak.cures
        for change in best.changes:
            found = [number for number, text in enumerate(changed) if change.before in text]
            assert len(found) == 1
            changed[found[0]] = changed[found[0]].replace(change.before, change.after, 1)
    script = Path(__file__).parent / "without_leaklab.py"
    done = subprocess.run(
        [sys.executable, script], input=json.dumps([changed]), capture_output=True, text=True, check=True
    )
    (measured,) = json.loads(done.stdout)
    assert measured["objects"] < 0.5
    assert measured["bytes"] < 512


def test_where_one_of_the_places_cannot_be_changed_the_others_are_tried_alone(notebook):
    linecache.clearcache()
    notebook.run(f"import types\nelsewhere = types.SimpleNamespace(all=[])\n{FRAMES}keep = elsewhere.all.append")
    report = notebook.check(
        "number += 1\nplayer.show(number)\nkeep(player.recent[-1])", "--cure -n 8 -t 120", cures=True
    )
    outcomes = {cure.outcome for leak in report.leaks for cure in leak.cures}
    assert CureOutcome.NO_EFFECT in outcomes
    assert CureOutcome.CURED not in outcomes


def test_a_hook_that_stays_is_no_log_though_its_handle_is_dropped(notebook):
    linecache.clearcache()
    notebook.run(HOOKS)
    report = notebook.check("handles.append(net.register_forward_hook(keep))", "-n 8")
    cure = leaklab.try_change(report, "handles[:] = [net.register_forward_hook(keep)]")
    assert cure.outcome is CureOutcome.LESSENED
