"""Changes are tried in whole checks: what is said of them, what is left behind, how the first run is looked at."""

from __future__ import annotations

import gc
import importlib
import linecache
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from descent import DESCENT
from notebook_shell import Notebook

import leaklab
from leaklab.cure.new_kernel import names_missing
from leaklab.cure.source import Program, Proposal
from leaklab.model.cure import Change, Cure, CureOutcome
from leaklab.text import format_bytes

pytestmark = pytest.mark.untraced

SETUP = f"""\
{DESCENT}net = torch.nn.Linear(16, 16)
opt = Descent(net.parameters())
history = []

def train():
    opt.zero_grad()
    loss = net(torch.randn(64, 16)).pow(2).mean()
    loss.backward()
    opt.step()
    history.append(loss)
"""
Propose = Callable[..., None]


@pytest.fixture
def propose(monkeypatch: pytest.MonkeyPatch) -> Propose:
    """Let the proposals be (words, before, after[, not tried]): *before* is found in the sources of the program."""

    def set_proposals(*rows: tuple[str, ...], filename: str = "", emptied: tuple[str, ...] = ()) -> None:
        def proposals_for(case: Any) -> tuple[Proposal, ...]:
            return tuple(proposal(case.program, *row) for row in rows)

        def proposal(program: Any, words: str, before: str, after: str, not_tried: str = "") -> Proposal:
            home = filename or program.checked
            lines = (program.source(home) or "").splitlines()
            number = next((n for n, line in enumerate(lines, 1) if line.strip() == before), 0)
            indent = " " * (len(lines[number - 1]) - len(lines[number - 1].lstrip())) if number else ""
            change = Change(program.place(home, number), indent + before, indent + after, home, number)
            return Proposal(words, (change,), not_tried, emptied)

        monkeypatch.setattr("leaklab.check.cures.proposals_for", proposals_for)
        monkeypatch.setattr("leaklab.check.cures._LEAST_TRIAL_SECONDS", 60.0)  # a busy machine is no reason

    return set_proposals


def outcomes(cures: tuple[Cure, ...]) -> dict[str, CureOutcome]:
    return {cure.words: cure.outcome for cure in cures}


def evidence(cures: tuple[Cure, ...]) -> dict[str, str]:
    return {cure.words: cure.evidence for cure in cures}


def file_of(notebook: Notebook, name: str) -> str:
    return str(notebook.user[name].__code__.co_filename)


def test_every_outcome_is_told_with_its_figures(notebook, propose):
    notebook.run(SETUP)
    code = notebook.user["train"].__code__
    propose(
        ("nothing", "opt.step()", "opt.step(); None"),
        ("breaks", "loss = net(torch.randn(64, 16)).pow(2).mean()",
         "loss = net(torch.randn(64, 16)).detach().pow(2).mean().requires_grad_()"),
        ("raises", "history.append(loss)", "history.append(loss.nothing)"),
        ("detaches", "history.append(loss)", "history.append(loss.detach())"),
        filename=file_of(notebook, "train"),
    )  # fmt: skip
    (leak,) = notebook.check("train()", "--cure -n 8", cures=True).leaks
    found, why = outcomes(leak.cures), evidence(leak.cures)
    assert found == {
        "detaches": CureOutcome.LESSENED, "nothing": CureOutcome.NO_EFFECT, "breaks": CureOutcome.HARMFUL,
        "raises": CureOutcome.HARMFUL,
    }  # fmt: skip
    assert leak.cures[0].words == "detaches"
    assert "no longer gets a gradient" in why["breaks"]
    assert "raises AttributeError" in why["raises"]
    assert "1 object per run (was" in why["nothing"]
    assert notebook.user["train"].__code__ is code
    assert all(type(entry) is torch.Tensor and entry.requires_grad for entry in notebook.user["history"])


def test_a_change_that_ends_the_leak_is_shown_as_code_with_its_proof(notebook, propose):
    notebook.run(SETUP)
    propose(("Store only the number.", "history.append(loss)", "history.append(loss.item())"),
            filename=file_of(notebook, "train"))  # fmt: skip
    report = notebook.check("train()", "--cure -n 8", cures=True)
    (cure,) = report.leaks[0].cures
    assert cure.outcome is CureOutcome.CURED
    told = format_bytes(report.leaks[0].bytes_per_run)
    assert cure.evidence.startswith(f"8 runs with this change: 0 B per run (was {told})")
    assert "same gradients" in cure.evidence
    text = str(report)
    assert f"\n                + history.append(loss.item())\n  proof       {told} -> 0 B every run" in text
    assert cure.changed_cell.splitlines()[21].strip() == "history.append(loss.item())"
    assert report.patch().splitlines()[2:] == [
        "@@ -22,1 +22,1 @@", "-    history.append(loss)", "+    history.append(loss.item())",
    ]  # fmt: skip
    assert cure.changes[0].filename
    assert '"filename":""' in report.to_json()
    assert {type(entry) for entry in notebook.user["history"]} == {torch.Tensor}


def test_what_a_change_empties_is_there_again_afterwards(notebook, propose):
    notebook.run(f"{SETUP}\nhistory.append('mine')")
    propose(("empty", "train()", "train(); history.clear()"), emptied=("history",))
    (leak,) = notebook.check("train()", "--cure -n 8", cures=True).leaks
    assert outcomes(leak.cures) == {"empty": CureOutcome.CURED}
    assert notebook.user["history"][0] == "mine"
    assert len(notebook.user["history"]) > 9  # the warm-up, those that are measured, those that are traced


@pytest.mark.nightly
def test_a_variable_may_get_another_type_where_the_changed_line_binds_it(notebook, propose):
    notebook.run("import torch\nseen = []\ntotal, other = torch.zeros(3), torch.zeros(3)")
    cell = "total = torch.ones(3)\nother = total + 1\nseen.append(torch.ones(300))"
    propose(("another", "total = torch.ones(3)", "total = 3.0"), ("own", "seen.append(torch.ones(300))", "total = 3.0"))
    (leak,) = notebook.check(cell, "--cure -n 8", cures=True).leaks
    assert outcomes(leak.cures) == {"another": CureOutcome.HARMFUL, "own": CureOutcome.CURED}
    assert "other is float instead of torch.Tensor" in evidence(leak.cures)["another"]
    assert type(notebook.user["total"]) is torch.Tensor


def test_an_interrupt_in_a_trial_ends_all_of_them_and_is_raised_after_the_report(notebook, propose, monkeypatch):
    monkeypatch.setenv("LEAKLAB_CHILDREN", "0")
    notebook.run(SETUP)
    code = notebook.user["train"].__code__
    propose(("interrupted", "history.append(loss)", "raise KeyboardInterrupt"),
            ("later", "history.append(loss)", "history.append(1)"), filename=file_of(notebook, "train"))  # fmt: skip
    state = gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()
    typed = notebook.run("%%leakcheck -q -v report --cure -n 8\ntrain()")
    assert isinstance(typed.error, KeyboardInterrupt)
    (leak,) = notebook.user["report"].leaks
    assert outcomes(leak.cures) == dict.fromkeys(("interrupted", "later"), CureOutcome.NOT_TRIED)
    assert notebook.user["train"].__code__ is code
    assert (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()) == state
    notebook.forget_error()


def test_an_interrupt_while_a_child_works_is_raised_after_the_report(notebook, propose, monkeypatch):
    def interrupted(*_args: Any) -> None:
        raise KeyboardInterrupt

    notebook.run("import torch\nhistory = []")
    propose(("local", "history.append(torch.ones(500))", "torch.ones(500)"))
    monkeypatch.setattr("leaklab.runtime.child.select.select", interrupted)
    typed = notebook.run("%%leakcheck -q -v report --cure -n 8\nhistory.append(torch.ones(500))")
    assert isinstance(typed.error, KeyboardInterrupt)
    (leak,) = notebook.user["report"].leaks
    assert outcomes(leak.cures) == {"local": CureOutcome.NOT_TRIED}
    assert "KeyboardInterrupt" in leak.cures[0].evidence
    notebook.forget_error()


def test_what_trials_do_is_done_in_children_only(notebook, propose):
    notebook.run("import torch\nhistory, calls = [], []")
    cell = "calls.append(1)\nhistory.append(torch.ones(500))"
    propose(("stops", "history.append(torch.ones(500))", "raise KeyboardInterrupt"),
            ("hangs", "history.append(torch.ones(500))", "import os; os._exit(1)"),
            ("swaps", "history.append(torch.ones(500))", "history[:] = [1.0]"))  # fmt: skip
    report = notebook.check(cell, "--cure -n 8", cures=True)
    assert outcomes(report.leaks[0].cures)["stops"] is CureOutcome.HARMFUL
    assert evidence(report.leaks[0].cures)["hangs"] == "the copy of the process died"
    history, calls = notebook.user["history"], notebook.user["calls"]
    assert {type(entry) for entry in history} == {torch.Tensor}
    assert len(history) == len(calls)
    assert len(calls) <= 1 + 8 + 5  # the warm-up, those that are measured, those that are traced


@pytest.mark.nightly
def test_what_needs_a_thread_of_this_process_is_tried_here(notebook, propose, monkeypatch):
    monkeypatch.setattr("leaklab.cure.trial_runs._IDLE_SECONDS", 2.0)
    notebook.run(
        "import torch\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "history, pool = [], ThreadPoolExecutor(1)\npool.submit(int).result()"
    )
    propose(("local", "history.append(pool.submit(torch.ones, 500).result())", "pool.submit(torch.ones, 500).result()"))
    cell = "history.append(pool.submit(torch.ones, 500).result())"
    (leak,) = notebook.check(cell, "--cure -n 8", cures=True).leaks
    notebook.run("pool.shutdown()")
    assert outcomes(leak.cures) == {"local": CureOutcome.CURED}


@pytest.mark.nightly
def test_a_thread_may_run_the_changed_code_meanwhile(notebook, propose):
    notebook.run("import torch\nhistory = []\ndef step():\n    history.append(torch.ones(500))")
    propose(("local", "history.append(torch.ones(500))", "[].append(torch.ones(500))"),
            filename=file_of(notebook, "step"))  # fmt: skip
    stop, n_calls = threading.Event(), [0]
    quiet = notebook.user["step"].__code__.replace(co_consts=notebook.user["step"].__code__.co_consts)

    def call() -> None:
        while not stop.wait(0.01):
            n_calls[0] += 1

    thread = threading.Thread(target=call)
    thread.start()
    try:
        report = notebook.check("step()", "--cure -n 8", cures=True)
    finally:
        stop.set()
        thread.join()
    assert outcomes(report.leaks[0].cures) == {"local": CureOutcome.CURED}
    assert notebook.user["step"].__code__ == quiet
    assert n_calls[0]


def test_a_cell_that_awaits_and_one_with_magics_are_changed_as_they_run(notebook, propose):
    notebook.run("import asyncio, torch\nhistory = []")
    propose(("local", "history.append(torch.ones(500))", "torch.ones(500)"))
    cell = "await asyncio.sleep(0)\n%pwd\nhistory.append(torch.ones(500))"
    (leak,) = notebook.check(cell, "--cure -n 8", cures=True).leaks
    assert outcomes(leak.cures) == {"local": CureOutcome.CURED}
    assert leak.cures[0].changes[0].where == "this cell, line 4"


@pytest.mark.by_day(1)
@pytest.mark.parametrize("options", ["-n 8 --no-cure", "-n 8 --no-sites"])
def test_no_trial_is_made_where_that_is_not_wanted(notebook, propose, options):
    notebook.run("import torch\nhistory = []")
    propose(("local", "history.append(torch.ones(500))", "torch.ones(500)"))
    (leak,) = notebook.check("history.append(torch.ones(500))", options, cures=True).leaks
    assert leak.cures == ()


def test_where_no_child_can_be_a_slow_cell_is_changed_on_request_only(notebook, propose, monkeypatch):
    monkeypatch.setattr("leaklab.check.cures._MOST_TRIED_SECONDS", 0.001)
    monkeypatch.setenv("LEAKLAB_CHILDREN", "0")
    notebook.run("import time, torch\nhistory = []")
    propose(("local", "history.append(torch.ones(500))", "torch.ones(500)"))
    cell = "time.sleep(0.002)\nhistory.append(torch.ones(500))"
    (leak,) = notebook.check(cell, "-n 8", cures=True).leaks
    assert outcomes(leak.cures) == {"local": CureOutcome.NOT_TRIED}
    assert "--cure" in leak.cures[0].evidence
    (leak,) = notebook.check(cell, "--cure -n 8", cures=True).leaks
    assert outcomes(leak.cures) == {"local": CureOutcome.CURED}


@pytest.mark.nightly
def test_on_request_the_trials_take_all_the_time_that_is_left(notebook, propose, monkeypatch):
    """What has begun is ended; the changes after it have time on request only."""
    notebook.run("import torch\nhistory = []")
    propose(
        ("another value", "history.append(torch.ones(500))", "history.append(torch.zeros(500))"),
        ("local", "history.append(torch.ones(500))", "torch.ones(500)"),
    )
    monkeypatch.setattr("leaklab.cure.trial_runs._most_at_once", lambda: 2)
    monkeypatch.setattr("leaklab.check.cures._LEAST_TRIAL_SECONDS", 0.0)
    monkeypatch.setattr("leaklab.check.cures._TRIALS_SHARE", 0.0)
    unasked = notebook.check("history.append(torch.ones(500))", "-n 8", cures=True).leaks[0].cures
    asked = notebook.check("history.append(torch.ones(500))", "--cure -n 8", cures=True).leaks[0].cures
    assert outcomes(unasked) == {"another value": CureOutcome.NO_EFFECT, "local": CureOutcome.NOT_TRIED}
    assert outcomes(asked) == {"another value": CureOutcome.NO_EFFECT, "local": CureOutcome.CURED}
    assert "--cure -t 300" in evidence(unasked)["local"]


@pytest.mark.by_day(1)
@pytest.mark.parametrize(("n", "outcome", "words"), [
    (3, CureOutcome.CURED, "3 entries of plain data per run stay, as in a log"),
    (20, CureOutcome.LESSENED, "20 entries of plain data per run stay"),
])  # fmt: skip
def test_what_stays_although_no_byte_does_is_told(notebook, propose, n, outcome, words):
    notebook.run("import torch\nhistory, rates = [], []")
    propose(("local", "history.append(torch.ones(500))", "torch.ones(500)"))
    cell = f"history.append(torch.ones(500))\nrates.extend([0.1] * {n})"
    cure = notebook.check(cell, "--cure", cures=True).leaks[0].cures[0]
    assert cure.outcome is outcome
    assert "0 B per run" in cure.evidence
    assert cure.evidence.endswith(f"; {words}")


def test_two_leaks_of_one_cell_are_cured_together(notebook, propose):
    notebook.run("import torch\nfirst, second = [], []")
    propose(("one", "first.append(torch.ones(900))", "torch.ones(900)"),
            ("two", "second.append({'n': torch.ones(300)})", "torch.ones(300)"))  # fmt: skip
    report = notebook.check(
        "first.append(torch.ones(900))\nsecond.append({'n': torch.ones(300)})", "--cure -n 8", cures=True
    )
    best = [leak.cures[0] for leak in report.leaks]
    assert [cure.outcome for cure in best] == [CureOutcome.CURED] * len(report.leaks)
    changed = [change.before for cure in best for change in cure.changes]
    assert sorted(changed) == ["first.append(torch.ones(900))", "second.append({'n': torch.ones(300)})"]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "cured_module.py").write_text(
        "kept = []\n\n\ndef work():\n    kept.append(bytearray(5000))\n    return len(kept)\n", "utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("cured_module")
    del sys.modules["cured_module"]


def test_a_function_of_a_module_is_changed_in_memory_only(module, propose, tmp_path):
    source = (tmp_path / "cured_module.py").read_text("utf-8")
    code = module.work.__code__
    propose(("local", "kept.append(bytearray(5000))", "[].append(bytearray(5000))"))
    report = leaklab.leakcheck(module.work, cure=True, runs=8)
    assert outcomes(report.leaks[0].cures) == {"local": CureOutcome.CURED}
    assert report.patch().startswith("--- ")
    assert module.work.__code__ is code
    assert (tmp_path / "cured_module.py").read_text("utf-8") == source


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_a_function_that_torch_scripted_is_not_tried(tmp_path, monkeypatch, propose):
    (tmp_path / "scripted_module.py").write_text(
        "import torch\nkept = []\n\n\ndef double(x: torch.Tensor):\n    y = x * 2\n    return y\n\n\n"
        "fast = torch.jit.script(double)\n\n\ndef work():\n    kept.append(fast(torch.ones(500)))\n", "utf-8"
    )  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("scripted_module")
    propose(("local", "y = x * 2", "y = x * 3"))
    (leak,) = leaklab.leakcheck(module.work, cure=True, runs=8).leaks
    assert outcomes(leak.cures) == {"local": CureOutcome.NOT_TRIED}
    assert "scripted" in leak.cures[0].evidence


@pytest.fixture(autouse=True)
def no_other_cells(monkeypatch):
    monkeypatch.setattr(linecache, "cache", {})  # cells that other tests ran in this process bind names as well


def program(cell: str, function: str = "") -> Program:
    return Program({}, lambda _name: cell, lambda _name, line: f"line {line}", "<the cell>", function)


def change_of(cell: str, after: str) -> Change:
    return Change("line", cell.splitlines()[0], after, "<the cell>", 1)


@pytest.mark.parametrize(("cell", "first_line"), [
    ("net = make()\nnet.train()", "net.zero_grad()\nnet = make()"),
    ("from torch import nn\nnn.Linear(1, 1)", "nn.init\nfrom torch import nn"),
    ("import numpy.linalg\nnumpy.ones(1)", "numpy.ones(2)\nimport numpy.linalg"),
    ("for step in range(3): pass\nprint(step)", "print(step)\nfor step in range(3): pass"),
    ("with open(p) as f: f.read()", "f.close()\nwith open(p) as f: f.read()"),
    ("def work(): return 1\nwork()", "work()\ndef work(): return 1"),
    ("total = 0\ntotal += 1", "total += 0"),
    ("rows = [1]\nrows", "seen = [row for row in rows]\nrows = [1]"),
    ("(n := 3)\nprint(n)", "print(n)\n(n := 3)"),
    ("a, *b = 1, 2\nprint(b)", "b.clear(); a, *b = 1, 2"),
    ("class Net: pass\nNet()", "Net.cache = 1\nclass Net: pass"),
    ("x = 1\ndef f(): return x\nf()", "def g(): return x\ng()\nx = 1"),
    ("t = Timer()\nt", "if 'other' in globals(): t.close()\nt = Timer()"),
    ("t = Timer()\nt", "if 't' in names: t.close()\nt = Timer()"),
    ("t = Timer()\nt", "try: t.close()\nexcept OSError: pass\nt = Timer()"),
])  # fmt: skip
def test_a_name_that_only_the_run_binds_may_not_be_read_before(cell, first_line):
    assert names_missing([change_of(cell, first_line)], program(cell))


@pytest.mark.parametrize(("cell", "first_line"), [
    ("net = make()\nnet.train()", "net = make()\nnet.zero_grad()"),
    ("history.append(1)", "history.clear()\nhistory.append(1)"),  # of another cell: the unchanged one reads it as well
    ("y = [x for x in xs]\nx = 3", "y = [x + 1 for x in xs]"),
    ("y = {k: v for k, v in d.items()}\nk = v = 1", "y = {k: v + 1 for k, v in d.items()}"),
    ("if a: x = 1\nprint(a)", "if a: x = 1; print(x)"),
    ("x = 1\ny = x", "def later(): return x\nx = 1"),
    ("f = lambda x: x\nx = 1", "f = lambda x: x + 1"),
    ("def f(x=1): return x\nx = f()", "def f(x=2):\n    y = x\n    return y"),
    ("try: go()\nexcept OSError as e: e.add_note('')", "try: go(1)"),
    ("import os\nos.name", "import os; os.name"),
    ("t = Timer()\nt", "if 't' in globals(): t.close()\nt = Timer()"),
    ("t = Timer()\nt", "t.close() if 't' in dir() else None\nt = Timer()"),
    ("t = Timer()\nt", "if x and 't' in vars():\n    t.close()\nt = Timer()"),
    ("t = Timer()\nt", "try: t.close()\nexcept (OSError, NameError): pass\nt = Timer()"),
    ("t = Timer()\nt", "try: t.close()\nexcept: pass\nt = Timer()"),
])  # fmt: skip
def test_a_name_that_is_there_may_be_read(cell, first_line):
    assert names_missing([change_of(cell, first_line)], program(cell)) == ()


def test_a_name_that_another_cell_binds_is_there_unless_that_is_the_same_cell_earlier(monkeypatch):
    cell = "net = make()\nout = net(x)\nout.backward()"
    tried = [change_of(cell, "net.zero_grad()\nnet = make()")]
    monkeypatch.setitem(linecache.cache, "/home/me/<cell 1>", (9, None, [cell.replace("x", "x2")], "/home/me/<cell 1>"))
    assert names_missing(tried, program(cell)) == ("net",)
    monkeypatch.setitem(linecache.cache, "/home/me/<cell 2>", (9, None, ["net = Other()\n"], "/home/me/<cell 2>"))
    assert names_missing(tried, program(cell)) == ()


def test_of_a_function_the_names_count_that_it_binds_for_all():
    text = "def step():\n    global net\n    net = make()\n    loss = net(x)"
    changes = [Change("line", "    net = make()", "    net.zero_grad()\n    net = make()", "<the cell>", 3)]
    assert names_missing(changes, program(text, "step")) == ("net",)
    assert names_missing(changes, program("net = None\n\n" + text, "step")) == ()


def test_a_name_that_a_module_binds_for_itself_is_not_there(monkeypatch, tmp_path):
    cell = "net = make()\nout = net(x)"
    module = tmp_path / "models.py"
    module.write_text("net = None\n")
    monkeypatch.setitem(linecache.cache, str(module), (11, module.stat().st_mtime, ["net = None\n"], str(module)))
    assert names_missing([change_of(cell, "net.zero_grad()\nnet = make()")], program(cell)) == ("net",)


@pytest.mark.nightly
def test_of_a_chain_of_errors_the_last_one_is_kept_alone(notebook):
    notebook.run(
        "import torch\nclass Client:\n    failed = None\n    def fetch(self):\n        batch = torch.randn(100, 50)\n"
        "        raise RuntimeError('no shard') from self.failed\n    def run(self):\n        try:\n"
        "            self.fetch()\n        except RuntimeError as problem:\n            self.failed = problem\n"
        "client = Client()"
    )
    (leak,) = notebook.check("client.run()", "--cure -n 8 -t 120", cures=True).leaks
    (cure,) = [cure for cure in leak.cures if cure.outcome is CureOutcome.CURED]
    assert [line.strip() for line in cure.changes[0].after.splitlines()] == [
        "problem.__cause__ = problem.__context__ = None",
        "self.failed = problem.with_traceback(None)",
    ]


def test_of_links_both_ways_those_back_are_cut_and_no_trial_holds_the_first(notebook):
    notebook.run(
        "import torch\nclass Node:\n    def __init__(self, parent=None):\n"
        "        self.state, self.parent, self.children = torch.randn(64), parent, []\n"
        "    def grow(self):\n        self.children = [Node(self) for _ in range(3)]\nroot = Node()"
    )
    (leak,) = notebook.check("root.grow()\nroot = root.children[1]", "--cure -n 8 -t 120", cures=True).leaks
    assert leak.cures[0].outcome is CureOutcome.CURED, leak.cures
    assert leak.cures[0].changes[0].after.splitlines()[-1] == "root.parent = None"


def test_a_window_that_is_longer_than_a_trial_is_filled_before_it_is_judged(notebook):
    notebook.run("import torch\nrecent = []")
    cell = "recent = recent + [torch.randn(500)]\nmean = torch.stack(recent[-40:]).mean()"
    (leak,) = notebook.check(cell, "--cure -n 8 -t 120", cures=True).leaks
    (cure,) = [cure for cure in leak.cures if cure.outcome is CureOutcome.CURED]
    assert cure.changes[0].after.splitlines()[-1] == "recent = recent[-40:]"
    assert cure.evidence.startswith("49 runs with this change: 0 B per run")


MEANS = """\
import time
kept, n_steps = [], 0

def step():
    global n_steps
    n_steps += 1
    kept.append([n_steps % 4 + 1.0] * 200)
"""
EMPTIED = ("Empty it", "step()", "step(); kept.clear()")


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ("sum(one[0] for one in kept) / n_steps", 'prints "'),  # a mean over all steps, of what one run has kept
        ("type(kept).__name__", ""),
        ("time.perf_counter()", ""),  # the unchanged code prints another one, too
    ],
)
def test_a_change_after_which_a_run_prints_something_else_is_told_with_it(notebook, propose, shown, told):
    assert notebook.run(MEANS).error is None
    propose(EMPTIED)
    (leak,) = notebook.check(f"step()\nprint({shown})", "--cure -n 16", cures=True).leaks
    (cure,) = leak.cures
    assert cure.outcome is CureOutcome.CURED
    assert ('prints "' in cure.evidence) == bool(told), cure.evidence
    assert ("instead of" in cure.evidence) == bool(told)


def test_a_change_that_leaves_what_is_printed_comes_first(notebook, propose):
    assert notebook.run(MEANS).error is None
    propose(EMPTIED, ("As one number", "print(n_steps, len(kept))", "print(n_steps, n_steps); kept.clear()"))
    (leak,) = notebook.check("step()\nprint(n_steps, len(kept))", "--cure -n 16", cures=True).leaks
    assert [cure.words for cure in leak.cures if cure.outcome is CureOutcome.CURED] == ["As one number", "Empty it"]
    assert 'prints "' not in leak.cures[0].evidence
    assert 'prints "' in leak.cures[1].evidence
