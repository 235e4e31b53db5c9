"""Runs of a cell whose output is dropped leave streams, hooks and publishers as executions of the cell would."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from textwrap import dedent

import pytest
from IPython.core import history
from notebook_shell import Notebook

from leaklab.magics.cell import Cell

TEE = """
import sys
class Tee:
    def __init__(self, below): self.below, self.lines = below, ['a line of the log'] * 60
    def write(self, text): self.lines.append(text); return self.below.write(text)
    def flush(self): self.below.flush()
"""


@contextmanager
def screens() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """Stand in for the streams of a notebook."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        yield out, err


def run_dropped(notebook: Notebook, source: str, n_runs: int = 3) -> None:
    cell = Cell(notebook.shell, source)
    for number in range(1, n_runs + 1):
        cell.run(number, shown=False)
    cell.outputs.forget()


def test_streams_stay_as_the_cell_leaves_them(notebook):
    notebook.shell.run_cell(TEE)
    with screens() as (out, err):
        run_dropped(notebook, "sys.stdout = Tee(sys.stdout)\nprint('dropped')\nsys.stderr = Tee(sys.stderr)")
        assert sys.stdout.below.below.below is out
        assert sys.stderr.below.below.below is err
        assert sys.stdout.below.lines[-2:] == ["dropped", "\n"]  # the stream of the run before is written to as well
        print("seen", flush=True)  # noqa: T201 - on the streams of the cell
    assert out.getvalue() == "seen\n"


def test_a_stream_of_the_users_own_hears_what_dropped_runs_print(notebook):
    notebook.shell.run_cell(TEE)
    own = notebook.user["Tee"](sys.__stdout__)
    with redirect_stdout(own):
        run_dropped(notebook, "print('heard', flush=True)")
    assert own.lines.count("heard") == 3


def test_what_is_below_a_stream_of_the_users_own_is_silent(notebook, capfd):
    notebook.shell.run_cell(TEE)
    with redirect_stdout(notebook.user["Tee"](sys.__stdout__)):
        run_dropped(notebook, "print('dropped', flush=True)")
    assert not capfd.readouterr().out


@pytest.mark.parametrize("call", ["display(1)", "clear_output()", "sys.displayhook(1)", "print(1, file=sys.stderr)"])
def test_nothing_of_a_dropped_run_is_shown(notebook, call):
    with screens() as (out, err):
        run_dropped(notebook, f"import sys\nfrom IPython.display import clear_output, display\n{call}")
    assert out.getvalue() == err.getvalue() == ""


def test_what_is_no_text_is_refused_as_a_stream_does(notebook):
    with screens(), pytest.raises(TypeError, match="must be str, not bytes"):
        run_dropped(notebook, "import sys\nsys.stdout.write(b'x')")


def test_a_method_that_the_cell_wraps_stays_wrapped_and_works_afterwards(notebook):
    heard, publisher = [], notebook.shell.display_pub
    notebook.user.update(heard=heard, publisher=publisher)
    wrapping = """
        def publish(*args, below=publisher.publish, **options):
            heard.append(1)
            below(*args, **options)
        publisher.publish = publish
    """
    try:
        with screens() as (out, _err):
            run_dropped(notebook, dedent(wrapping))
            publisher.publish({"text/plain": "seen"})
    finally:
        del publisher.publish
    assert len(heard) == 3  # each run has wrapped what the run before had left
    assert out.getvalue() == "seen\n"


def test_hooks_and_methods_are_as_before_where_the_cell_leaves_them_alone(notebook):
    with screens() as (out, _err):
        before = dict(vars(out)), dict(vars(notebook.shell.display_pub)), sys.displayhook
        run_dropped(notebook, "print(1)\nimport sys\nsys.displayhook = print")  # IPython puts the hook back as well
        assert (dict(vars(out)), dict(vars(notebook.shell.display_pub)), sys.displayhook) == before


@pytest.mark.untraced
def test_a_stream_wrapped_again_by_every_run_is_a_leak(notebook):
    notebook.run(TEE)
    leak, *others = notebook.check("sys.stdout = Tee(sys.stdout)", "-n 8").leaks
    assert leak.holder == "sys.stdout"
    assert any("line 2" in site for site in leak.sites)
    assert not others


@pytest.mark.untraced
def test_a_stream_that_is_put_back_is_clean(notebook):
    notebook.run(TEE)
    cell = "old = sys.stdout\nsys.stdout = Tee(old)\nprint('x')\nsys.stdout = old"
    assert str(notebook.check(cell, "-n 8").verdict).startswith("clean")


@pytest.mark.untraced
def test_the_report_is_shown_where_a_cell_has_taken_the_stream_away(notebook):
    typed = notebook.run("%%leakcheck -n 5\nimport io, sys\nsys.stdout = io.StringIO()")
    assert typed.out.startswith("CLEAN")


def lengths(notebook):
    return {number: len(outputs) for number, outputs in notebook.shell.history_manager.outputs.items()}


@pytest.mark.untraced
@pytest.mark.skipif(not hasattr(history, "HistoryOutput"), reason="IPython keeps outputs from version 9 on")
def test_a_cell_that_prints_much_leaks_into_ipythons_records(notebook):
    report = notebook.check("print('x' * 30_000)", "-n 16 --no-sites")
    assert report.leaked
    leak = report.leaks[0]
    assert leak.holder.endswith("HistoryManager.outputs")
    assert leak.cause == "notebook-history"
    assert leak.bytes_per_run > 25_000


@pytest.mark.untraced
@pytest.mark.skipif(not hasattr(history, "HistoryOutput"), reason="IPython keeps outputs from version 9 on")
def test_what_is_displayed_is_counted_too(notebook):
    notebook.run("from IPython.display import HTML, display")
    report = notebook.check("display(HTML('<p>' + 'x' * 30_000))", "-n 16 --no-sites")
    assert report.leaks[0].holder.endswith("HistoryManager.outputs")


@pytest.mark.untraced
@pytest.mark.skipif(not hasattr(history, "HistoryOutput"), reason="IPython keeps outputs from version 9 on")
def test_the_records_are_those_of_one_execution_afterwards(notebook):
    before = lengths(notebook)
    notebook.check("print('x' * 30_000)", "-n 16")
    after = lengths(notebook)
    (new,) = after.keys() - before.keys()
    assert new > 0
    assert after[new] == 1  # what the first run printed: the only one whose output is shown
    assert {number: after[number] for number in before} == before


@pytest.mark.untraced
@pytest.mark.skipif(not hasattr(history, "HistoryOutput"), reason="IPython keeps outputs from version 9 on")
def test_a_cell_that_fails_leaves_no_records_of_dropped_runs(notebook):
    notebook.run("n = [0]")
    typed = notebook.run("%%leakcheck -q\nprint('x' * 30_000)\nn[0] += 1\nif n[0] == 7: raise ValueError")
    assert isinstance(typed.error, ValueError)
    assert min(lengths(notebook)) > 0


@pytest.mark.untraced
@pytest.mark.skipif(not hasattr(history, "HistoryOutput"), reason="IPython keeps outputs from version 9 on")
def test_the_few_lines_that_most_cells_print_are_not_worth_a_word(notebook):
    report = notebook.check("print('loss', 0.25)", "-n 16")
    assert not report.leaked
    assert not report.check.notes
