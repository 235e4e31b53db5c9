"""An isolated check makes one run in this process, and finds what an ordinary one finds."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
import torch

import leaklab
from leaklab.model.cure import CureOutcome

pytestmark = pytest.mark.untraced

LEAKY = """\
calls.append(random.random())
print("a run")
history.append(net(torch.ones(8, 8)).sum())
"""
SETUP = "import random, torch\nnet = torch.nn.Linear(8, 8)\ncalls, history = [], []\nrandom.seed(1)"


@pytest.mark.parametrize("options", ["", "-w 0"], ids=["after a warm-up", "without a warm-up"])
def test_the_notebook_is_as_after_one_run_and_the_leak_is_found(notebook, options):
    notebook.run(SETUP)
    typed = notebook.run(f"%%leakcheck -q -v report --isolated --cure -n 8 {options}\n{LEAKY}")
    assert typed.error is None
    assert typed.out.count("a run") == 1
    report = notebook.user["report"]
    assert (len(notebook.user["calls"]), len(notebook.user["history"]), len(report.record.runs)) == (1, 1, 8)
    random.seed(1)
    assert notebook.user["calls"] == [random.random()]
    assert notebook.user["random"].getstate() == random.getstate()
    (leak,) = report.leaks
    assert (leak.holder, leak.cause) == ("history", "graph-kept")
    assert "history.append" in leak.sites[0]
    assert leak.cures[0].outcome is CureOutcome.CURED
    assert report.check.notes[-1] == (
        "the runs happened in a copy of the process: your variables are as they were after one run"
    )


def test_an_error_is_raised_in_this_process():
    calls: list[int] = []

    def fails_at_last() -> None:
        calls.append(1)
        if len(calls) > 4:
            raise KeyError(len(calls))

    with pytest.raises(KeyError) as caught:
        leaklab.leakcheck(fails_at_last, isolated=True)
    report: Any = caught.value.leaklab_report  # type: ignore[attr-defined]
    assert report.check.failure.startswith("KeyError")
    assert "not isolated" in report.check.notes[-1]


def test_an_interrupt_of_the_wait_is_raised_after_a_report(monkeypatch):
    def interrupted(*_args: object) -> None:
        raise KeyboardInterrupt

    calls: list[int] = []
    monkeypatch.setattr("leaklab.runtime.child.select.select", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        leaklab.leakcheck(lambda: calls.append(1), isolated=True)
    assert "KeyboardInterrupt" in caught.value.leaklab_report.check.failure  # type: ignore[attr-defined]
    assert calls == [1]


@pytest.mark.parametrize("awaits", [True, False])
def test_where_no_child_can_be_had_the_check_is_made_here_and_says_so(notebook, monkeypatch, awaits):
    notebook.run("import asyncio\ncalls = []")
    if not awaits:
        monkeypatch.setenv("LEAKLAB_CHILDREN", "0")
    cell = "await asyncio.sleep(0)\ncalls.append([])" if awaits else "calls.append([])"
    report = notebook.check(cell, "--isolated -n 8")
    assert report.leaked
    assert len(notebook.user["calls"]) > 8
    words = "the code uses await" if awaits else "child processes are switched off"
    assert report.check.notes[-1] == f"not isolated: the runs were made in this process, because {words}"


def test_a_child_that_waits_for_ever_is_given_up(monkeypatch):
    monkeypatch.setattr("leaklab.check.runner._IDLE_SECONDS", 1.0)
    here = threading.get_native_id()
    stuck = threading.Event()
    report = leaklab.leakcheck(
        lambda: None if threading.get_native_id() == here else stuck.wait(), isolated=True, runs=8
    )
    assert not report.leaked
    assert "the copy of the process hung" in report.check.notes[-1]


def test_ranks_cannot_be_isolated(notebook):
    with pytest.raises(ValueError, match="exclude each other"):
        leaklab.leakcheck(int, isolated=True, group=True)
    assert "exclude each other" in str(notebook.run("%%leakcheck --isolated --group\npass").error)


def test_tensors_of_the_model_are_not_trained_further():
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()

    before = net.weight.detach().clone()
    leaklab.leakcheck(step, isolated=True, runs=8)
    assert torch.allclose(before - 0.2, net.weight)
