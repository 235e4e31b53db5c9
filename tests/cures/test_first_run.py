"""A change that reads a variable before the first run has bound it is refused: in a new kernel it would raise."""

from __future__ import annotations

import linecache

import pytest

from leaklab.cure.proposal import Program
from leaklab.cure.trial_runs import names_missing
from leaklab.model.cure import Change


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
