"""Cells that change the world under the check: the verdict is right or says what it could not measure."""

from __future__ import annotations

import gc
import sys

import pytest
import torch
from notebook_shell import Notebook

pytestmark = pytest.mark.untraced

LEAK = "history.append(torch.ones(1000))\n"
FEW = "-n 8"
"""A leak is seen in as many; what is clean is followed for as long as by default."""


@pytest.fixture
def user(notebook: Notebook) -> dict[str, object]:
    notebook.user.update(torch=torch, gc=gc, history=[])
    return notebook.user


def note_with(report, words: str) -> bool:
    return any(words in note for note in report.notes)


@pytest.mark.parametrize(
    "deletes",
    ["globals().clear()", "del x", "history = None; x = [0]", "get_ipython().run_line_magic('reset', '-f')"],
)
def test_a_cell_that_deletes_or_rebinds_its_names_is_clean(notebook, user, deletes):
    report = notebook.check(f"import torch\nhistory = []\nx = torch.ones(10)\n{deletes}")
    assert str(report.verdict).startswith("clean"), str(report)


CHANGES = {
    "switched off": "gc.disable()",
    "switched on": "gc.enable()",
    "thresholds": "gc.set_threshold(5, 6, 7)",
    "saving all garbage": "gc.set_debug(gc.DEBUG_SAVEALL)",
    "a callback more": "gc.callbacks.append(print_nothing)",
    "thawed": "gc.unfreeze()",
}


CLEAN_BY_NIGHT = {"switched on", "thresholds", "thawed"}


@pytest.mark.parametrize(
    ("change", "leaks"),
    [
        pytest.param(
            change,
            leaks,
            id=f"{'leaky' if leaks else 'clean'}-{name}",
            marks=pytest.mark.nightly if name in CLEAN_BY_NIGHT and not leaks else (),
        )
        for leaks in (True, False)
        for name, change in CHANGES.items()
    ],
)
def test_a_cell_that_turns_the_collectors_switches_gets_a_right_verdict(notebook, user, change, leaks):
    user["print_nothing"] = lambda phase, info: None
    before = gc.isenabled(), gc.get_threshold(), gc.get_debug(), list(gc.callbacks)
    report = notebook.check(f"{change}\n{LEAK if leaks else 'x = torch.ones(1000)'}", FEW if leaks else "")
    assert (gc.isenabled(), gc.get_threshold(), gc.get_debug(), list(gc.callbacks)) == before
    gc.garbage.clear()
    if leaks:
        assert report.leaked
        assert "history" in [leak.holder for leak in report.leaks]
    elif "callbacks" in change:
        assert "gc.callbacks" in str(report) or not report.leaked
    else:
        assert not report.leaked, str(report)


def test_what_was_put_back_is_told(notebook, user):
    assert note_with(notebook.check("gc.disable()", FEW), "put back: on again")


def test_a_cell_that_freezes_gets_a_right_verdict_and_a_note(notebook, user):
    try:
        report = notebook.check(f"{LEAK}gc.freeze()", FEW)
        assert report.leaked
        assert note_with(report, "gc.freeze()")
    finally:
        gc.unfreeze()


def test_a_clean_cell_that_freezes_is_not_called_a_leak(notebook, user):
    try:
        assert not notebook.check("x = torch.ones(1000)\ngc.freeze()").leaked
    finally:
        gc.unfreeze()


@pytest.fixture
def frozen_list(notebook: Notebook, user):
    user["frozen_history"] = []
    gc.collect()
    gc.freeze()
    yield user["frozen_history"]
    gc.unfreeze()


def test_objects_that_the_user_froze_stay_frozen(notebook, frozen_list):
    before = gc.get_freeze_count()
    assert before > 1000
    notebook.check("x = torch.ones(10)")
    assert abs(gc.get_freeze_count() - before) < 200  # some of the frozen objects die in the meantime
    assert all(thing is not frozen_list for thing in gc.get_objects())


def test_a_clean_cell_is_clean_beside_frozen_objects(notebook, frozen_list):
    assert str(notebook.check("x = torch.ones(10)").verdict).startswith("clean")


def test_a_leak_into_a_frozen_list_is_found_with_its_holder(notebook, frozen_list):
    report = notebook.check("frozen_history.append(torch.ones(1000))", FEW)
    assert report.leaked
    assert report.leaks[0].holder == "frozen_history"


THREAD = """
import threading
thread = threading.Thread(target=stop.wait, name='left over', daemon=True)
thread.start()
"""


def test_threads_that_live_on_are_told(notebook, user):
    import threading

    user["stop"] = threading.Event()
    try:
        report = notebook.check(THREAD, "-n 8")
        assert report.leaked or note_with(report, "more threads run than before")
        assert note_with(report, "more threads run than before")
    finally:
        user["stop"].set()


def test_a_thread_that_ends_is_nobodys_leak(notebook, user):
    cell = "import threading\nthread = threading.Thread(target=len, args=('',))\nthread.start()\nthread.join()"
    assert not notebook.check(cell).leaked


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork on this system")
def test_a_cell_that_forks_is_checked_in_the_parent_only(notebook, user):
    cell = "import os\nchild = os.fork()\nif child == 0:\n    os._exit(0)\nos.waitpid(child, 0)\n" + LEAK
    report = notebook.check(cell, "-n 8")
    assert report.leaks[0].holder == "history"


def test_a_cell_that_starts_a_process_is_clean(notebook, user):
    user["python"] = sys.executable
    report = notebook.check("import subprocess\nsubprocess.run([python, '-S', '-c', ''], check=True)", "-n 6")
    assert not report.leaked, str(report)


def test_a_cell_that_turns_grad_mode_off_is_measured(notebook, user):
    try:
        assert notebook.check(f"torch.set_grad_enabled(False)\n{LEAK}", "-n 8").leaked
    finally:
        torch.set_grad_enabled(True)
