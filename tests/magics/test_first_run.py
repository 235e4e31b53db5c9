"""A cell whose first run is long and turns a loop is checked by that run; every other cell is repeated."""

from __future__ import annotations

import pytest

from leaklab.reports.check import LeakReport
from leaklab.reports.loop import MonitorReport

pytestmark = pytest.mark.untraced

SETUP = """
import torch
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
history, calls = [], []

def train(n_steps, ended_by=None):
    calls.append(n_steps)
    for step in range(n_steps):
        loss = net(torch.randn(4, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.detach())
    if ended_by is not None:
        raise ended_by
"""


@pytest.fixture
def long(monkeypatch):
    monkeypatch.setattr("leaklab.magics.first_run.LONG_SECONDS", 0.01)


def test_a_training_cell_is_checked_by_running_it_once(notebook, long):
    notebook.run(SETUP)
    report = notebook.check("train(1_700)")
    assert isinstance(report, MonitorReport)
    assert notebook.user["calls"] == [1_700]
    assert report.leaked
    assert report.leaks[0].holder == "history"
    assert "the cell was run once, which took" in report.record.notes[0]
    assert "a step is a step of the optimizer torch.optim.sgd.SGD" in report.record.notes


def test_a_run_that_told_nothing_is_repeated(notebook, long):
    notebook.run(SETUP)
    report = notebook.check("train(30)\nhistory.clear()", "-n 5")
    assert isinstance(report, LeakReport)
    assert len(notebook.user["calls"]) > 5


def test_a_cell_that_ends_soon_is_repeated(notebook):
    notebook.run(SETUP)
    assert isinstance(notebook.check("train(30)", "-n 5"), LeakReport)


def test_an_interrupt_of_a_long_first_run_reports_its_steps(notebook, long):
    notebook.run(SETUP)
    typed = notebook.run("%%leakcheck -q -v the_report\ntrain(1_700, KeyboardInterrupt())")
    assert isinstance(typed.error, KeyboardInterrupt)
    report = notebook.user["the_report"]
    assert isinstance(report, MonitorReport)
    assert "was interrupted" in report.record.notes[0]
    assert notebook.user["calls"] == [1_700]


def test_what_the_cell_raises_is_raised(notebook, long):
    notebook.run(SETUP)
    typed = notebook.run("%%leakcheck -q -v the_report\ntrain(100, ValueError('no'))")
    assert isinstance(typed.error, ValueError)
    assert "ended early" in str(notebook.user["the_report"].verdict)
