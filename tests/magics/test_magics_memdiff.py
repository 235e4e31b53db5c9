"""``%memdiff`` and ``%%memdiff`` in a real shell: what they run, what they compare, what they refuse."""

from __future__ import annotations

import gc

import pytest
import torch

from leaklab.reports.heap_diff import MemDiff


@pytest.fixture(scope="module")
def warm(shared_notebook):
    """The first comparison in a process imports what the later ones have."""
    shared_notebook.run("%load_ext leaklab")
    shared_notebook.run("%%memdiff -q\n[1]")


@pytest.mark.untraced
def test_a_cell_that_makes_one_tensor_shows_exactly_that_tensor(warm, notebook):
    notebook.user["torch"] = torch
    typed = notebook.run("%%memdiff -v made\nx = torch.ones(64, 128)")
    assert notebook.user["made"].lines == ("+1 torch.Tensor (64, 128) float32 cpu, 32.0 KiB, held by x",)
    assert "  +1 torch.Tensor (64, 128) float32 cpu, 32.0 KiB, held by x\n" in typed.out
    assert notebook.user["x"].shape == (64, 128)
    assert typed.result.result is None


@pytest.mark.untraced
def test_a_cell_of_nothing_but_a_comment_shows_nothing(warm, notebook):
    assert "nothing was made or freed" in notebook.run("%%memdiff\n# nothing at all").out


def test_a_statement_is_taken_as_it_is_written(notebook):
    assert notebook.run('%memdiff -q print("hi -n 2")').out == "hi -n 2\n"


def test_options_end_where_the_statement_begins(notebook, tmp_path):
    """One statement with all of them: -q shows nothing, -o returns, -v stores, -T saves."""
    page = tmp_path / "d.html"
    typed = notebook.run(f"%memdiff -q -o -v made -T {page} words = '-q  -v'.split()")
    assert notebook.user["words"] == ["-q", "-v"]
    assert type(notebook.user["made"]) is MemDiff
    assert typed.result.result is notebook.user["made"]
    assert "<!DOCTYPE html>" in page.read_text()


def test_marks_are_compared_with_now_and_with_each_other(notebook):
    notebook.user["torch"] = torch
    marked = notebook.run("%memdiff --mark before")
    assert marked.out.startswith("marked 'before': ")
    notebook.run("y = torch.zeros(7)")
    notebook.run("'a result'")
    now = notebook.run("%memdiff -v now before")
    assert "+1 torch.Tensor (7,) float32 cpu, 28 B, held by y" in now.out
    lines, names = notebook.user["now"].lines, notebook.user["now"].variables.index
    assert not [name for name in names if name.startswith("_") or name in ("In", "Out")]
    assert not [line for line in lines if "linecache" in line or "history" in line]
    notebook.run("%memdiff --mark after")
    notebook.run("%memdiff -q -v past before after")
    past = notebook.user["past"]
    assert (past.record.before, past.record.after) == ("before", "after")
    assert past.tensors["shape"].tolist() == ["(7,)"]
    assert past.tensors["holders"].tolist() == ["y"]
    notebook.run("before = 3")
    shown = notebook.run("%memdiff before").out
    assert shown.startswith("'before' means the mark here")
    unknown = notebook.run("%memdiff befor")
    assert str(unknown.error) == (
        "there is no mark 'befor'; the marks are before, after; to run it as code write %memdiff (befor)"
    )
    assert "not 3" in str(notebook.run("%memdiff before after before").error)


def test_without_a_mark_there_is_nothing_to_compare_with(notebook):
    assert str(notebook.run("%memdiff").error) == (
        "there is no mark to compare with: make one with %memdiff --mark before"
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("%memdiff --mark 'two words'", "a mark is called by one bare name"),
        ("%memdiff --mark a x = 1", "--mark NAME takes no code"),
        ("%%memdiff x = 1\npass", "%%memdiff takes options only"),
        ("%memdiff a.npz b.pickle", "cannot be compared"),
        ("%memdiff missing.npz", "cannot read 'missing.npz'"),
        ("%memdiff missing_a.pickle missing_b.pickle", "there is no file 'missing_a.pickle'"),
        ("%memdiff await work()", "%memdiff STATEMENT cannot await"),
        ("%memdiff -T d.docx x = 1", "must end in .html"),
        ("%memdiff -v 3 x = 1", "-v needs the name of a variable"),
    ],
)
def test_what_makes_no_sense_is_refused_with_one_sentence(notebook, line, words):
    typed = notebook.run(line)
    assert type(typed.error).__name__ == "UsageError"
    assert words in str(typed.error)
    assert "\n" not in str(typed.error)


def test_an_error_of_the_cell_comes_after_the_report_and_gc_is_as_before(notebook):
    typed = notebook.run("%%memdiff\nx = [1]\nraise KeyError('mine')")
    assert type(typed.error) is KeyError
    assert "the code raised KeyError" in typed.out
    assert gc.isenabled()


def test_a_syntax_error_is_raised_before_anything_runs(notebook):
    assert type(notebook.run("%%memdiff\nx = = 1").error) is SyntaxError
    assert "x" not in notebook.user


def test_the_value_of_a_last_expression_is_shown_and_not_kept(notebook):
    assert "42" in notebook.run("%memdiff 6 * 7").out
    assert notebook.user["Out"] == {}


def test_a_cell_that_awaits_is_compared_like_any_other(warm, notebook):
    notebook.user["torch"] = torch
    notebook.run("%%memdiff -v made\nimport asyncio\nawait asyncio.sleep(0)\ny = torch.ones(32, 32)")
    assert "+1 torch.Tensor (32, 32) float32 cpu, 4.00 KiB, held by y" in notebook.user["made"].lines


def test_cuda_compares_the_card_before_and_after_a_statement(notebook, device):
    device.training.run(1)
    notebook.user["train"] = device.training.run
    notebook.run("%memdiff --cuda -v grown train(3)")
    assert notebook.user["grown"].growth_bytes == 3 * 1_000_000
    assert not device.is_on


def test_cuda_stops_recording_where_the_statement_raises(notebook, device):
    typed = notebook.run("%memdiff --cuda 1/0")
    assert isinstance(typed.result.error_in_exec, ZeroDivisionError)
    assert not device.is_on


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what is said where there is no device")
def test_cuda_without_a_device_is_one_sentence_and_runs_nothing(notebook):
    typed = notebook.run("%memdiff --cuda ran = True")
    assert "needs a CUDA device" in str(typed.result.error_in_exec)
    assert "ran" not in notebook.user


def test_cuda_without_a_statement_says_what_is_missing(notebook):
    typed = notebook.run("%memdiff --cuda")
    assert "needs a statement" in str(typed.result.error_in_exec)
