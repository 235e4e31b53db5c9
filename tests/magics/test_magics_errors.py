"""``%%leakcheck`` where something is wrong: a slip in the line, an error in the cell, an interrupt."""

from __future__ import annotations

import gc
import traceback
import weakref

import pytest
from IPython.core.error import UsageError
from notebook_shell import Notebook

pytestmark = pytest.mark.untraced


def own_lines(error: BaseException) -> list[tuple[str, int]]:
    """Function and line of each frame that belongs to the user's cell."""
    frames = traceback.extract_tb(error.__traceback__)
    return [(frame.name, frame.lineno) for frame in frames if "ipython-input" in frame.filename][1:]


FORMS = ".html or .json or .txt or .md or .csv or .collapsed or .speedscope.json"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-n 2", "the number of runs must be at least 5 to tell a leak from a warm-up, not 2"),
        ("-n abc", "argument -n/--runs: invalid int value: 'abc'"),
        ("-w -1", "the number of warm-up runs must be 0 or more, not -1"),
        ("-t 0", "the time limit must be a positive number of seconds, not 0.0"),
        ("-t nan", "the time limit must be a positive number of seconds, not nan"),
        ("--frobnicate", "unrecognized arguments: --frobnicate"),
        ("some words", "unrecognized arguments: some words"),
        ("-T /no/such/folder/report.html", "there is no folder '/no/such/folder'"),
        ("-T report.pdf", f"the name must end in {FORMS}, not in '.pdf'"),
        ("-T report", f"the name must end in {FORMS}, and has no suffix"),
        ("-v 1x", "-v needs the name of a variable, not '1x'"),
        ("-v class", "-v needs the name of a variable, not 'class'"),
        ("-v", "argument -v/--variable: expected one argument"),
        ("--setup 'await thing()'", "--setup cannot await: run that code in a cell above"),
    ],
)
def test_a_slip_in_the_line_is_one_sentence_and_the_cell_does_not_run(notebook: Notebook, options, message):
    typed = notebook.run(f"%%leakcheck {options}\nran = True")
    assert type(typed.error) is UsageError
    assert typed.err.startswith("UsageError: ")
    assert message in typed.err
    assert typed.err.strip().count("\n") == 0
    assert typed.out == ""
    assert "ran" not in notebook.user


@pytest.mark.parametrize("cell", ["# only a remark\n", "\n\n", "   \n# x"])
def test_a_cell_without_code_is_refused_in_one_sentence(notebook, cell):
    typed = notebook.run(f"%%leakcheck\n{cell}")
    assert type(typed.error) is UsageError
    assert "the cell is empty: put the code to check below" in typed.err


@pytest.mark.parametrize("name", ["leakcheck", "memdiff"])
@pytest.mark.parametrize("above", ["# my step", "x = 1", "%load_ext leaklab"])
def test_a_cell_magic_below_another_line_says_where_it_must_stand(notebook, above, name):
    typed = notebook.run(f"{above}\n%%{name} -q\nran = True")
    assert type(typed.error) is UsageError
    assert f"%%{name} must be the first line of its cell" in typed.err
    assert "ran" not in notebook.user


def test_the_line_magic_says_how_to_check_a_cell(notebook):
    typed = notebook.run("%leakcheck --no-sites")
    assert type(typed.error) is UsageError
    assert "%leakcheck needs a statement to check" in typed.err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%leakcheck xs.append(2) -n 5", "-n comes after 'xs.append(2)': put options first"),
        ("%memdiff before -v change", "-v comes after 'before': put options first"),
        ("%whyalive xs -v why", "-v comes after 'xs': put options first"),
    ],
)
def test_an_option_behind_what_it_is_for_is_named(notebook, line, message):
    typed = notebook.run(f"xs = []\n{line}")
    assert type(typed.error) is UsageError
    assert typed.err.strip() == f"UsageError: {message}"
    assert notebook.user["xs"] == []


def test_what_only_looks_like_an_option_is_run(notebook):
    typed = notebook.run("xs, n = [[4]], 3\n%memdiff -q y = xs[-1][0] -n")
    assert typed.error is None
    assert notebook.user["y"] == 1
    assert notebook.run("%memdiff -q shown = !echo -v").error is None
    assert list(notebook.user["shown"]) == ["-v"]


@pytest.mark.parametrize("line", ["", "--setup 'x = = 2'"])
def test_a_syntax_error_is_raised_and_nothing_runs(notebook, line):
    body = "ran = True" if line else "ran = True\nx = = 2"
    typed = notebook.run(f"%%leakcheck {line}\n{body}")
    assert type(typed.error) is SyntaxError
    assert "x = = 2" in typed.out
    assert "ast_parse" not in typed.out
    assert "ran" not in notebook.user
    assert not typed.result.success


def test_a_syntax_error_in_the_cell_keeps_the_setup_from_running(notebook):
    notebook.run("%%leakcheck --setup 'prepared = 1'\nx = = 2")
    assert "prepared" not in notebook.user


def test_the_line_of_a_syntax_error_counts_the_magics_own(notebook):
    assert notebook.run("%%leakcheck\ny = 1\nx = = 2").error.lineno == 3


def test_an_error_of_the_setup_is_raised_before_any_run(notebook):
    typed = notebook.run("%%leakcheck --setup 'raise ValueError(1)'\nran = True")
    assert type(typed.error) is ValueError
    assert "ran" not in notebook.user


FAILS_IN_RUN_4 = "n += 1\nif n == 5:\n    raise {error}\n"


def test_an_error_in_a_run_shows_and_stores_what_was_measured_then_is_raised(notebook):
    notebook.user["n"] = 0
    typed = notebook.run("%%leakcheck -v found\n" + FAILS_IN_RUN_4.format(error="ValueError('mine')"))
    assert type(typed.error) is ValueError
    assert typed.error.args == ("mine",)
    assert notebook.user["found"].check.failure == "ValueError in run 4"
    assert notebook.user["found"].verdict.n_runs == 3  # the run that failed is not counted
    assert typed.out.index("ended early") < typed.out.index("ValueError: mine")
    assert own_lines(typed.error) == [("<module>", 4)]


@pytest.mark.parametrize("n_warmups", [0, 1, 3])
@pytest.mark.parametrize("n_good", [1, 2, 3, 4])
def test_a_cell_that_cannot_run_so_often_ends_in_its_own_error(notebook, n_good, n_warmups):
    """The most ordinary one cannot run twice: it replaces what it starts from."""
    notebook.run("n = 0")
    typed = notebook.run(f"%%leakcheck -w {n_warmups} -v report\nn += 1\nif n > {n_good}:\n    raise KeyError(n)")
    assert type(typed.error) is KeyError, typed.error
    failed = notebook.user["report"].check.failure
    number = f"warm-up run {n_good + 1}" if n_good < n_warmups else f"run {n_good + 1 - n_warmups}"
    assert failed.endswith(f"in {number}"), failed


def test_an_interrupt_shows_and_stores_what_was_measured_then_is_raised(notebook):
    notebook.user["n"] = 0
    typed = notebook.run("%%leakcheck -v found\n" + FAILS_IN_RUN_4.format(error="KeyboardInterrupt"))
    assert type(typed.error) is KeyboardInterrupt
    assert notebook.user["found"].check.failure == "KeyboardInterrupt in run 4"
    assert "ended early" in typed.out


def test_an_error_in_the_warm_up_is_told_as_such(notebook):
    notebook.run("%%leakcheck -v found\n1 / 0")
    assert notebook.user["found"].check.failure == "ZeroDivisionError in warm-up run 1"
    assert str(notebook.user["found"].verdict).startswith("inconclusive")


def test_the_traceback_shows_the_users_frames_only(notebook):
    typed = notebook.run("%%leakcheck\ndef inner():\n    raise ValueError('mine')\ndef outer():\n    inner()\nouter()")
    assert own_lines(typed.error) == [("<module>", 6), ("outer", 5), ("inner", 3)]
    assert "leaklab/" not in typed.out
    assert "leaklab\\" not in typed.out


FAILS_WITH_A_BIG_LOCAL = """
import weakref
class Big: pass
def work():
    big = Big()
    refs.append(weakref.ref(big))
    raise ValueError('mine')
"""


@pytest.mark.parametrize("call", ["work()", "import asyncio\nawait asyncio.sleep(0)\nwork()"])
def test_nothing_of_a_failed_run_lives_once_the_error_is_forgotten(notebook, call):
    refs: list[weakref.ref[object]] = notebook.user.setdefault("refs", [])
    notebook.run(FAILS_WITH_A_BIG_LOCAL)
    typed = notebook.run(f"%%leakcheck\n{call}")
    assert type(typed.error) is ValueError
    assert refs[0]() is not None
    del typed
    notebook.forget_error()
    gc.collect()  # what IPython's own rendering of a traceback leaves are cycles
    assert refs[0]() is None


def test_a_report_that_cannot_be_written_in_the_end_is_one_sentence(notebook, tmp_path):
    target = tmp_path / "report.json"
    typed = notebook.run(f"%%leakcheck -T {target} -v found\nimport os\nos.makedirs({str(target)!r}, exist_ok=True)")
    assert type(typed.error) is UsageError
    assert "report.json" in typed.err
    assert notebook.user["found"] is not None


def test_the_cells_own_error_wins_over_a_report_that_cannot_be_written(notebook, tmp_path):
    target = tmp_path / "report.json"
    typed = notebook.run(f"%%leakcheck -T {target}\nimport os\nos.makedirs({str(target)!r})\n1 / 0")
    assert type(typed.error) is ZeroDivisionError
    assert "report.json" in typed.err


def test_system_exit_ends_the_check_and_is_raised(notebook):
    with pytest.warns(UserWarning, match="To exit"):
        typed = notebook.run("%%leakcheck -v found\nraise SystemExit(3)")
    assert type(typed.error) is SystemExit
    assert notebook.user["found"].check.failure == "SystemExit in warm-up run 1"
