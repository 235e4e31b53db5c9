"""leaklab is its own first patient: it grows nothing, keeps nothing, changes nothing."""

from __future__ import annotations

import gc
import itertools
import pickle
import sys
import weakref
from collections import Counter

import pytest
import torch
from notebook_shell import Notebook

import leaklab
from leaklab.check.pipeline import check_steps
from leaklab.model import Settings
from leaklab.runtime.ours import Origin, origin_of

pytestmark = pytest.mark.untraced  # a tracer makes objects of its own


def assert_nothing_grew(report: leaklab.LeakReport) -> None:
    check = report.check
    assert str(report.verdict).startswith("clean"), str(report)
    assert [run.n_kept for run in check.runs] == [0] * report.verdict.n_runs
    assert check.leaks == ()
    assert check.bounded == ()
    assert check.objects == ()
    assert check.tensors == ()
    assert check.containers == ()
    assert check.failure == ""


IN_A_ROW = [6, pytest.param(20, marks=pytest.mark.nightly)]


@pytest.mark.parametrize("times", IN_A_ROW)
def test_an_empty_cell_grows_nothing_many_times_in_a_row(notebook: Notebook, times):
    for _ in range(times):
        assert_nothing_grew(notebook.check("pass", "-n 12"))


@pytest.mark.parametrize("times", IN_A_ROW)
def test_an_empty_function_grows_nothing_many_times_in_a_row(times):
    for _ in range(times):
        assert_nothing_grew(leaklab.leakcheck(lambda: None, runs=12))


def test_what_leaklab_notes_of_a_folder_is_nothing_that_the_run_has_left(tmp_path, monkeypatch):
    """A run may be the first that calls a file of a folder: it is looked up whose that is."""
    folders = [tmp_path / f"project{n}" for n in range(12)]
    for folder in folders:
        (folder / "tool-1.0.dist-info").mkdir(parents=True)
        (folder / "tool-1.0.dist-info" / "RECORD").write_text("tool/__init__.py,,\n")
    monkeypatch.setattr(sys, "path", [*sys.path, *map(str, folders)])
    new = iter(folders)
    report = leaklab.leakcheck(lambda: origin_of(str(next(new) / "tool" / "x.py")), runs=10)
    assert_nothing_grew(report)
    assert origin_of(str(folders[0] / "tool" / "x.py")) is Origin.LIBRARY


def test_an_empty_cell_with_as_many_runs_as_there_are_grows_nothing(notebook):
    assert_nothing_grew(notebook.check("pass"))


def test_a_leaked_tensor_dies_with_its_last_user_while_the_report_lives(notebook):
    notebook.user.update(torch=torch, history=[])
    report = notebook.check("history.append(torch.ones(1000, requires_grad=True) * 2)", "-n 16")
    assert report.leaked
    refs = [weakref.ref(tensor) for tensor in notebook.user["history"]]
    notebook.user["history"].clear()
    notebook.user.clear()
    gc.collect()
    assert [ref() for ref in refs] == [None] * len(refs)
    assert report.leaks[0].holder == "history"


def test_a_report_makes_the_round_trip_through_pickle(notebook):
    notebook.user.update(torch=torch, history=[])
    report = notebook.check("history.append(torch.ones(1000))", "-n 8")
    assert pickle.loads(pickle.dumps(report)).check == report.check  # noqa: S301 - our own bytes


def own_objects() -> Counter[str]:
    """Objects of leaklab's classes that the collector knows, without modules, functions and classes."""
    gc.collect()
    names = [f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in gc.get_objects()]
    return Counter(name for name in names if name.startswith("leaklab"))


def test_nothing_of_leaklab_outlives_a_check_but_the_report():
    history: list[object] = []
    leaklab.leakcheck(lambda: history.append(torch.ones(1000)), runs=8)
    before = own_objects()
    report = leaklab.leakcheck(lambda: history.append(torch.ones(1000)), runs=8)
    assert report.leaked
    assert own_objects() - before != Counter()
    del report
    assert own_objects() == before


def gc_state() -> tuple[object, ...]:
    return gc.isenabled(), gc.get_threshold(), gc.get_debug(), list(gc.callbacks), gc.get_freeze_count()


@pytest.mark.parametrize("is_enabled", [True, False])
@pytest.mark.parametrize(
    ("error", "at_call"), [(None, 0), *itertools.product([ValueError, KeyboardInterrupt], [1, 4, 14])]
)
def test_the_collector_is_as_before_after_every_way_out(is_enabled, error, at_call):
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        if error is not None and len(calls) == at_call:
            raise error

    (gc.enable if is_enabled else gc.disable)()
    try:
        before = gc_state()
        if error is None:
            leaklab.leakcheck(work, runs=8)
        else:
            with pytest.raises(error):
                leaklab.leakcheck(work)
        assert gc_state() == before
    finally:
        gc.enable()


@pytest.mark.parametrize("n_steps", [1, 2, 4, 12])
def test_the_collector_is_as_before_when_a_check_is_given_up(n_steps):
    before = gc_state()
    steps = check_steps(Settings(), None)
    next(steps)
    for _ in range(n_steps - 1):
        steps.send((0.0, ""))
    steps.close()
    assert gc_state() == before


@pytest.mark.parametrize("n_steps", [1, 4, 12])
def test_the_collector_is_as_before_when_an_interrupt_hits_leaklab_itself(n_steps):
    before = gc_state()
    steps = check_steps(Settings(), None)
    next(steps)
    for _ in range(n_steps - 1):
        steps.send((0.0, ""))
    if n_steps == 1:  # the warm-up: nothing was measured that could be told
        with pytest.raises(KeyboardInterrupt):
            steps.throw(KeyboardInterrupt)
    else:
        raised_after_the_report = steps.throw(KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt), raised_after_the_report.around:
            pytest.fail("the interrupt was swallowed")
        with pytest.raises(StopIteration):
            steps.send((0.0, "KeyboardInterrupt"))
    assert gc_state() == before
