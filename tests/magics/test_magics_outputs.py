"""What IPython keeps of the output of cells, under a check that drops most of it."""

from __future__ import annotations

import pytest
from IPython.core import history

pytestmark = [
    pytest.mark.untraced,
    pytest.mark.skipif(not hasattr(history, "HistoryOutput"), reason="IPython keeps outputs from version 9 on"),
]


def lengths(notebook):
    return {number: len(outputs) for number, outputs in notebook.shell.history_manager.outputs.items()}


def test_a_cell_that_prints_much_leaks_into_ipythons_records(notebook):
    report = notebook.check("print('x' * 30_000)", "-n 16 --no-sites")
    assert report.leaked
    leak = report.leaks[0]
    assert leak.holder.endswith("HistoryManager.outputs")
    assert leak.cause == "notebook-history"
    assert leak.bytes_per_run > 25_000


def test_what_is_displayed_is_counted_too(notebook):
    notebook.run("from IPython.display import HTML, display")
    report = notebook.check("display(HTML('<p>' + 'x' * 30_000))", "-n 16 --no-sites")
    assert report.leaks[0].holder.endswith("HistoryManager.outputs")


def test_the_records_are_those_of_one_execution_afterwards(notebook):
    before = lengths(notebook)
    notebook.check("print('x' * 30_000)", "-n 16")
    after = lengths(notebook)
    (new,) = after.keys() - before.keys()
    assert new > 0
    assert after[new] == 1  # what the first run printed: the only one whose output is shown
    assert {number: after[number] for number in before} == before


def test_a_cell_that_fails_leaves_no_records_of_dropped_runs(notebook):
    notebook.run("n = [0]")
    typed = notebook.run("%%leakcheck -q\nprint('x' * 30_000)\nn[0] += 1\nif n[0] == 7: raise ValueError")
    assert isinstance(typed.error, ValueError)
    assert min(lengths(notebook)) > 0


def test_the_few_lines_that_most_cells_print_are_not_worth_a_word(notebook):
    report = notebook.check("print('loss', 0.25)", "-n 16")
    assert not report.leaked
    assert not report.check.notes
