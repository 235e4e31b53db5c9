"""Which statement of a cell leaves what behind: cells with the truth beside each line."""

from __future__ import annotations

import pytest
import torch
from notebook_shell import Notebook

pytestmark = pytest.mark.untraced

TWO_LEAKS = """
loss = model(torch.ones(4, 3)).sum()
log.append({"loss": loss, "names": [1]})
loss.backward()
handle = model.register_forward_hook(lambda *_: None)
model.zero_grad()
total = sum(entry["loss"].item() for entry in log)
"""
"""The dict with its list, and the tensor it holds; the hook's function."""

WITH_BLOCK = """
with torch.no_grad():
    features = model(torch.ones(16, 3))
    kept.append(features)
    kept.append(features[0])
mean = features.mean()
"""

HOOKS = """
batch = torch.ones(2, 3)
model.register_forward_hook(make_hook())
out = model(batch)
"""

GENERATOR = """
def count_up():
    yield from range(9)
counter = count_up()
waiting.append(counter)
first = next(counter)
"""
"""A generator that waits keeps the function it is of, too."""

REBINDING = """
scratch = [torch.ones(1000) for _ in range(3)]
scratch = None
kept.append(torch.ones(250))
"""

AWAITING = """
import asyncio
await asyncio.sleep(0)
kept.append(torch.ones(250))
state = await asyncio.sleep(0, result=torch.ones(5))
"""

RING = """
window.append(torch.ones(10))
kept.append(torch.ones(20))
old = window[0]
"""

EVICTION = """
cache[len(cache), serial()] = torch.ones(10)
cache.pop(next(iter(cache)))
"""

MANY_ON_A_LINE = """
a = [1]; kept.append(a); b = 2
"a text that is no docstring"
for step in range(3):
    kept.append([step])
@str
def decorated():
    pass
"""


@pytest.fixture
def cell(notebook: Notebook) -> Notebook:
    import collections
    import itertools

    def make_hook():
        return lambda *_: None

    notebook.user.update(
        torch=torch, model=torch.nn.Linear(3, 2), log=[], kept=[], waiting=[], make_hook=make_hook,
        window=collections.deque(maxlen=8), cache={(n, n): torch.ones(10) for n in range(5)},
        serial=itertools.count(100).__next__,
    )  # fmt: skip
    return notebook


def left(notebook: Notebook, cell: str, options: str = "--no-sites") -> dict[int, tuple[float, float]]:
    """The objects and tensors that each line left behind per run, by its number."""
    report = notebook.check(cell.strip("\n"), f"--statements -n 5 {options}")
    return {row.line: (row.objects_per_run, row.tensors_per_run) for row in report.record.statements}


CASES = [
    (TWO_LEAKS, {2: (1, 1), 3: (2, 0), 4: (0, 0), 5: (1, 0), 6: (0, 0), 7: (0, 0)}),
    (WITH_BLOCK, {2: (2, 2), 6: (0, 0)}),
    (HOOKS, {2: (0, 0), 3: (1, 0), 4: (0, 0)}),
    (GENERATOR, {2: (1, 0), 4: (1, 0), 5: (0, 0), 6: (0, 0)}),
    (REBINDING, {2: (0, 0), 3: (0, 0), 4: (1, 1)}),
    (AWAITING, {2: (0, 0), 3: (0, 0), 4: (1, 1), 5: (0, 0)}),
    (EVICTION, {2: (0, 0), 3: (0, 0)}),
    (MANY_ON_A_LINE, {2: (1, 0), 3: (0, 0), 4: (3, 0), 6: (0, 0)}),
]


@pytest.mark.parametrize(("source", "truth"), CASES)
def test_each_statement_has_what_it_left_behind(cell, source, truth):
    assert left(cell, source) == truth


def test_a_full_ring_beside_a_leak_of_the_same_type_leaves_nothing(cell):
    assert left(cell, RING, "--sites -n 12") == {2: (0, 0), 3: (1, 1), 4: (0, 0)}


def test_the_bytes_are_those_of_the_storages_that_are_new(cell):
    report = cell.check("kept.append(torch.ones(1000))\nlog.append(model.weight[0])", "--statements --no-sites -n 5")
    own, shared = report.record.statements
    assert 4000 < own.bytes_per_run < 4400
    assert shared.bytes_per_run < 400


def test_the_line_that_keeps_names_the_holder(cell):
    report = cell.check("tensor = torch.ones(10)\nkept.append(tensor)", "--statements -n 8")
    made, keeps = report.record.statements
    assert (made.tensors_per_run, made.holders) == (1, ())
    assert (keeps.tensors_per_run, keeps.holders) == (0, ("kept",))


def test_an_error_in_a_later_run_ends_it_and_the_report_stays(cell):
    cell.user["n"] = 0
    source = "n += 1\nkept.append(torch.ones(10))\nassert n != 12"
    report = cell.check(source, "--statements --no-sites -n 10")  # after one run to warm up: the twelfth is the first
    assert report.leaked
    assert cell.user["n"] == 12
    assert report.record.statements == ()
    assert any(
        "leaves behind: statement-by-statement run 1 ended with AssertionError" in note for note in report.record.notes
    )


def test_a_cell_that_raises_in_the_counted_runs_is_not_run_again(cell):
    cell.run("%%leakcheck -q -v the_report --statements --no-cure\nkept.append(1)\nraise ValueError")
    assert len(cell.user["kept"]) == 1
    assert cell.user["the_report"].record.statements == ()


def test_a_function_has_no_statements_to_run(cell):
    import leaklab
    from leaklab.model import Settings

    report = leaklab.leakcheck(lambda: None, settings=Settings(max_runs=8, statements=True))
    assert report.record.statements == ()
    assert "only the statements of a cell can be run one by one, not those of a function" in report.record.notes


def test_a_cell_is_shown_as_it_was_written_and_shows_nothing_of_these_runs(cell):
    source = '%time kept.append([])\nprint("said")\n"no docstring"'
    typed = cell.run(f"%%leakcheck --statements --no-sites --no-cure -n 5 -v the_report\n{source}")
    assert typed.out.count("said\n") == 1
    assert [row.source for row in cell.user["the_report"].record.statements] == source.splitlines()
    assert cell.user.get("__doc__") != "no docstring"


def test_frozen_objects_of_the_user_do_not_disturb(cell):
    import gc

    gc.freeze()
    try:
        assert left(cell, "a = [1]\nkept.append(a)", "--no-sites") == {2: (1, 0), 3: (0, 0)}
    finally:
        gc.unfreeze()
