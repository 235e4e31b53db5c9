"""Any change can be tried: what is right is called cured, what is wrong is not, and nothing of the trial stays."""

from __future__ import annotations

import functools
import importlib
import linecache
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from IPython.core.error import UsageError

import leaklab
from leaklab.model.cure import CureOutcome

pytestmark = pytest.mark.untraced


@pytest.fixture(autouse=True)
def no_other_cells() -> None:
    linecache.clearcache()  # cells that other tests ran in this process are sources as well


@pytest.mark.parametrize(
    "body",
    [
        "return",
        "pass",
        "if 0:\n        kept.append(torch.ones(size))",
        "return 1\n    kept.append(torch.ones(size))",
        "rows = []\n    def keep():\n        kept.append(torch.ones(size))\n    return 1",
    ],
)
def test_a_function_that_does_nothing_any_more_is_no_cure(notebook, body):
    notebook.run("import torch\nkept = []\ndef handle(size):\n    kept.append(torch.ones(size))")
    report = notebook.check("handle(3000)", "-n 16")
    cure = leaklab.try_change(report, f"def handle(size):\n    {body}")
    assert cure.outcome is CureOutcome.LESSENED
    assert "but handle() does nothing any more" in cure.evidence


LOG = """\
class Log:
    def __init__(self):
        self.rows = []
    def add(self, row):
        self.rows.append(row)
log = Log()
"""


def test_what_ran_once_runs_again_in_the_copies(notebook):
    notebook.run(LOG)
    report = notebook.check("log.add(bytearray(5000))", "-n 16")
    log = notebook.user["log"]
    change = (
        "--- cell\n+++ cell\n@@ -1,6 +1,7 @@\n+import collections\n class Log:\n     def __init__(self):\n"
        "-        self.rows = []\n+        self.rows = collections.deque(maxlen=4)\n"
    )
    cure = leaklab.try_change(report, change)
    assert cure.outcome is CureOutcome.CURED
    assert cure.evidence.endswith("run again first")
    assert notebook.user["log"] is log
    assert type(log.rows) is list
    assert "collections" not in notebook.user


HELPER = """\
import torch
class Counter:
    def __init__(self):
        self.seen = []
    def __call__(self, module, inputs, output):
        self.seen.append(output.detach())
def measure(model, batch):
    counter = Counter()
    model.register_forward_hook(counter)
    model(batch)
    return len(counter.seen)
net = torch.nn.Linear(32, 512)
"""


def test_what_earlier_runs_have_left_does_not_hide_that_a_change_holds(notebook):
    notebook.run(HELPER)
    report = notebook.check("n = measure(net, torch.ones(4, 32))", "-n 16")
    change = (
        "@@ -9,2 +9,3 @@\n-    model.register_forward_hook(counter)\n"
        "+    handle = model.register_forward_hook(counter)\n"
        "     model(batch)\n+    handle.remove()\n"
    )
    cure = leaklab.try_change(report, change)
    assert cure.outcome is CureOutcome.CURED
    assert cure.evidence.endswith("run again first")
    assert len(notebook.user["net"]._forward_hooks) > 16


METER = """\
import torch
class Meter:
    total = torch.zeros(())
    def update(self, value):
        self.total = self.total + value
net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 1))
meter = Meter()
def step():
    loss = net(torch.randn(128, 64)).pow(2).mean()
    loss.backward()
    return loss
"""


def test_a_graph_that_earlier_runs_have_left_does_not_hide_that_a_change_of_the_cell_holds(notebook):
    notebook.run(METER)
    report = notebook.check("meter.update(step())", "-n 16")
    total = notebook.user["meter"].total
    cure = leaklab.try_change(report, "meter.update(step().item())")
    assert cure.outcome is CureOutcome.CURED
    assert cure.evidence.endswith("run again first")
    assert notebook.user["meter"].total is total
    assert leaklab.try_change(report, "meter.update(step() + 0)").outcome is not CureOutcome.CURED


def test_what_ran_once_is_refused_where_no_copy_can_be_made(notebook, monkeypatch):
    monkeypatch.setenv("LEAKLAB_CHILDREN", "0")
    notebook.run("limit = 0\nrows = []")
    report = notebook.check("rows.append(bytearray(5000))\ndel rows[:-limit or len(rows) - 10 ** 6]", "-n 80")
    cure = leaklab.try_change(report, "@@ -1 +1 @@\n-limit = 0\n+limit = 5\n")
    assert cure.outcome is CureOutcome.NOT_TRIED
    assert "it changes what ran once" in cure.evidence


def test_in_this_process_everything_is_put_back(notebook, monkeypatch):
    monkeypatch.setenv("LEAKLAB_CHILDREN", "0")
    notebook.run("rows, other = [], []")
    report = notebook.check("rows.append(bytearray(5000))", "-n 16")
    n_rows = len(notebook.user["rows"])
    cure = leaklab.try_change(report, "rows.append(bytearray(5000))\nrows.clear()\nother[:] = [1]")
    assert cure.outcome is CureOutcome.CURED
    assert len(notebook.user["rows"]) == n_rows
    assert notebook.user["other"] == []


def test_what_drops_the_callbacks_of_others_is_no_cure(notebook):
    notebook.run("class Bus:\n    def __init__(self):\n        self.listeners = []\nbus = Bus()")
    report = notebook.check("big = bytearray(5000)\nbus.listeners.append(lambda: len(big))", "-n 16")
    change = "big = bytearray(5000)\nbus.listeners.append(lambda: len(big))\nbus.listeners.clear()"
    cure = leaklab.try_change(report, change)
    assert cure.outcome is CureOutcome.LESSENED
    assert "it would drop callbacks that may be in use" in cure.evidence


def test_apply_writes_the_changed_cell_and_the_old_one_comes_back(notebook, monkeypatch):
    notebook.run("import torch\nrows, better = [], 'rows[:] = [torch.ones(900)]'")
    cell = "%%leakcheck -q -v report -n 16 --try better\nrows.append(torch.ones(900))"
    assert notebook.run(cell).error is None
    report = notebook.user["report"]
    assert report.leaks[0].cures[0].outcome is CureOutcome.CURED
    assert report.patch().splitlines()[-2:] == ["-rows.append(torch.ones(900))", "+rows[:] = [torch.ones(900)]"]
    written: list[tuple[str, bool]] = []
    monkeypatch.setattr(notebook.shell, "set_next_input", lambda text, replace: written.append((text, replace)))
    applied = report.apply(0)
    new = "%%leakcheck -q -v report -n 16 --try better\nrows[:] = [torch.ones(900)]"
    assert (applied.old, applied.new) == (cell, new)
    assert "run it to check it" in repr(applied)
    applied.undo()
    assert written == [(new, True), (cell, True)]


def test_the_magic_shows_the_change_with_its_proof(notebook):
    notebook.run("rows = []\nbetter = 'rows[:] = [bytearray(5000)]'")
    typed = notebook.run("%%leakcheck -n 16 --try better\nrows.append(bytearray(5000))")
    assert "Apply your change to this cell, line 2." in typed.out
    assert "-> 0 B every run" in typed.out


def test_the_magic_tries_a_cell_that_awaits(notebook):
    notebook.run("import asyncio\nrows = []\nbetter = 'await asyncio.sleep(0)\\nrows[:] = [bytearray(5000)]'")
    cell = "await asyncio.sleep(0)\nrows.append(bytearray(5000))"
    typed = notebook.run(f"%%leakcheck -q -v report -n 16 --try better\n{cell}")
    assert typed.error is None
    assert notebook.user["report"].leaks[0].cures[0].outcome is CureOutcome.CURED
    with pytest.raises(leaklab.ChangeError, match=r"the cell uses await.*use %%leakcheck --try"):
        leaklab.try_change(notebook.user["report"], notebook.user["better"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--try nowhere", "there is none called 'nowhere'"),
        ("--try number", "a change must be a str, a unified diff or new source, not int"),
        ("--try broken", "the change is not valid Python"),
        ("--try same", "the change leaves the program as it is"),
        ("--try same --cure", "--try tries your change and no other"),
        ("--try same --group", "--try and --group exclude each other"),
    ],
)
def test_bad_input_is_refused_in_one_sentence_before_the_cell_runs(notebook, options, message):
    notebook.run("rows, number, broken, same = [], 3, 'rows.append(', 'rows.append(1)'")
    error = notebook.run(f"%%leakcheck {options}\nrows.append(1)").error
    assert isinstance(error, UsageError)
    assert message in str(error)
    assert notebook.user["rows"] == []


def test_without_a_leak_there_is_nothing_to_try(notebook):
    notebook.run("x, better = 0, 'x = 2'")
    report = notebook.check("x = 1", "-n 5")
    with pytest.raises(leaklab.ChangeError, match="no leak that a change could end: clean"):
        leaklab.try_change(report, "x = 2")
    assert notebook.run("%%leakcheck -q -n 5 -v report --try better\nx = 1").error is None
    assert not notebook.user["report"].leaks


MODULE = """\
import functools

kept = []


def work(size=5000):
    kept.append(bytearray(size))
    return len(kept)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "tried_module.py").write_text(MODULE, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield importlib.import_module("tried_module")
    del sys.modules["tried_module"]


NEW = "def work(size=5000):\n    kept[:] = [bytearray(size)]\n    return len(kept)"


def test_a_function_of_a_file_gets_its_new_source_for_the_trial(module, tmp_path):
    report = leaklab.leakcheck(module.work, runs=16, cure=False)
    cure = leaklab.try_change(report, NEW)
    assert cure.outcome is CureOutcome.CURED
    assert cure.changes[0].where == "tried_module.py:7"
    assert (tmp_path / "tried_module.py").read_text("utf-8") == MODULE
    cure = leaklab.try_change(report, "@@ -3 +3 @@\n-kept = []\n+kept = {}\n")
    assert cure.outcome is CureOutcome.NOT_TRIED
    assert "ran once" in cure.evidence


def test_a_lambda_is_made_anew_and_what_is_gone_has_to_be_given(module):
    vars(sys.modules[__name__])["tried"] = module
    report = leaklab.leakcheck(lambda: tried.work(), runs=16, cure=False)  # noqa: F821, PLW0108 - so people write it
    assert leaklab.try_change(report, NEW).outcome is CureOutcome.CURED
    part = functools.partial(module.work, 4000)
    report = leaklab.leakcheck(part, runs=16, cure=False)
    del part
    with pytest.raises(leaklab.ChangeError, match="the report has no code to run again"):
        leaklab.try_change(report, NEW)
    assert leaklab.try_change(report, NEW, functools.partial(module.work, 4000)).outcome is CureOutcome.CURED


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("tail", ["", "\n\nlast = 1"])
def test_git_applies_the_patch_of_a_change_that_held(tmp_path, monkeypatch, end, tail):
    path = tmp_path / "package" / "patched_module.py"
    path.parent.mkdir()
    path.write_bytes((MODULE + tail).replace("\n", end).encode())
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module("patched_module")
    try:
        report = leaklab.leakcheck(module.work, runs=16, cure=True, seconds=300.0)
    finally:
        del sys.modules["patched_module"]
    patch = report.patch(0, tmp_path / "fix.patch")
    assert patch.startswith("--- a/package/patched_module.py\n+++ b/package/patched_module.py\n@@ -")
    subprocess.run(["git", "apply", "fix.patch"], cwd=tmp_path, check=True, capture_output=True)  # noqa: S607
    assert path.read_bytes() != (MODULE + tail).replace("\n", end).encode()
    assert path.read_bytes().count(b"\r") in {0, path.read_bytes().count(b"\n")}


UPLOADER = """\
import queue, threading
class Uploader:
    def __init__(self):
        self.queue, self.buffer = queue.Queue(), bytearray(40_000)
        threading.Thread(target=self.work, daemon=True).start()
    def work(self):
        while (item := self.queue.get()) is not None:
            self.buffer[:len(item)] = item
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_change_that_ends_threads_by_an_error_is_no_cure(notebook):
    assert notebook.run(UPLOADER).error is None
    cell = "up = Uploader()\nup.queue.put(b'abc')"
    report = notebook.check(cell, "-n 12")
    broken = leaklab.try_change(report, "up = Uploader()\nup.buffer = None\nup.queue.put(b'abc')")
    assert broken.outcome is CureOutcome.HARMFUL, broken
    assert "a thread raises TypeError, which nobody catches" in broken.evidence
    assert leaklab.try_change(report, f"{cell}\nup.queue.put(None)").outcome is CureOutcome.CURED
