"""The magic %leakreport, the progress line, the completion of options, in a real shell."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from types import SimpleNamespace

import pytest
import samples
from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError

from leaklab.magics.progress_line import ProgressLine
from leaklab.model import Settings
from leaklab.model.sentences import Progress
from leaklab.reports.notebook import load_report

pytestmark = pytest.mark.untraced


@pytest.fixture(scope="module")
def exported(shared_notebook, tmp_path_factory):
    """Two checks, a look at an object and an unchecked variable, exported open and redacted."""
    folder = tmp_path_factory.mktemp("exported")
    notebook = shared_notebook
    notebook.run("%load_ext leaklab")
    notebook.run("store = {'pin 4711': []}")
    notebook.run("%%leakcheck -q -n 8 --name keeps\nstore['pin 4711'].append([])")
    notebook.run("%%leakcheck -q -n 8 --name clean --redact\npass")
    notebook.run("%whyalive -q store['pin 4711'][0]")
    typed = [
        notebook.run(f"%leakreport {option} {folder}/{name}")
        for option, name in (("", "a.json"), ("--redact", "b.json"))
    ]
    notebook.empty()
    return folder, typed


def test_every_check_of_the_notebook_is_in_the_file_with_its_cell(exported):
    folder, (typed, _) = exported
    report = load_report(folder / "a.json")
    assert [noted.check.settings.name for noted in report.collection.checks] == ["keeps", "clean"]
    assert [one.leaked for one in report.reports] == [True, False]
    first, second = (int(noted.place.removeprefix("In [").removesuffix("]")) for noted in report.collection.checks)
    assert second == first + 1
    assert typed.out.startswith("2 checks: 1 leak, 1 clean\nsaved to ")


def test_what_another_magic_told_is_in_the_file_too(exported):
    (view,) = load_report(exported[0] / "a.json").collection.views
    assert view.title.startswith("WhyAlive ")


def test_a_redacted_file_has_no_key_of_the_data_and_no_summary(exported):
    open_text, hidden = ((exported[0] / name).read_text() for name in ("a.json", "b.json"))
    assert "pin 4711" in open_text
    assert "pin 4711" not in hidden
    assert "store['hidden 1']" in hidden
    assert json.loads(hidden)["redacted"] is True


def test_a_notebook_without_a_check_is_told_how_to_make_one(notebook, tmp_path):
    typed = notebook.run(f"%leakreport {tmp_path}/file.html")
    assert type(typed.error) is UsageError
    assert "this notebook has no check yet: put %%leakcheck above a cell" in typed.err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("file.docx", "the name must end in .html or .json or .txt or .md or .pdf, not in '.docx'"),
        ("/no/such/folder/file.html", "there is no folder '/no/such/folder'"),
        ("", "the following arguments are required: file"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_in_a_sentence(notebook, line, message):
    assert message in notebook.run(f"%leakreport {line}").err


def test_the_journal_is_gone_with_the_extension(notebook):
    notebook.run("%%leakcheck -q -n 5\npass")
    notebook.run("%unload_ext leaklab")
    notebook.run("%load_ext leaklab")
    assert "this notebook has no check yet" in notebook.run("%leakreport x.html").err


def completed(notebook, line):
    with provisionalcompleter():
        return {found.text for found in notebook.shell.Completer.completions(line, len(line))}


def test_the_tab_key_completes_the_options_of_a_magic(notebook):
    assert "--fail-on-leak" in completed(notebook, "%%leakcheck --fa")
    assert "--redact" in completed(notebook, "%leakreport --re")


def test_after_unloading_nothing_is_completed(notebook):
    notebook.run("%unload_ext leaklab")
    assert "--fail-on-leak" not in completed(notebook, "%%leakcheck --fa")


def test_the_help_of_the_magic_shows_its_options_and_an_example(notebook):
    text = notebook.shell.find_line_magic("leakreport").__doc__
    assert "--redact" in text
    assert "%leakreport --title" in text
    assert "%%leakcheck -n 24 -v report" in notebook.shell.find_cell_magic("leakcheck").__doc__


class Terminal:
    """A standard output that says it is a terminal."""

    def __init__(self):
        self.written = []

    def isatty(self):
        return True

    def write(self, text):
        if text:
            self.written.append(text)

    def flush(self):
        pass


@pytest.fixture
def clock(monkeypatch):
    """Time stands still until a test moves it; the terminal is wide."""
    monkeypatch.setenv("COLUMNS", "200")
    now = [100.0]
    monkeypatch.setattr("leaklab.magics.progress_line.time.perf_counter", lambda: now[0])
    return now


@pytest.fixture
def terminal():
    return Terminal()


def test_the_progress_line_says_how_far_the_check_is_and_what_is_left_at_most(notebook, clock, terminal):
    with redirect_stdout(terminal):
        line = ProgressLine(notebook.shell, Settings(max_runs=40, max_seconds=60), is_shown=True)
        once = line.ticking(lambda number: number)
        assert [once(number) for number in range(5)] == [0, 1, 2, 3, 4]
        clock[0] += 1.0
        once(5)  # five runs took a second, and 36 are left
        clock[0] += 0.2
        once(6)  # too soon for another line
        assert terminal.written == [
            "\rleaklab: warming up ...",
            "\rleaklab: run 5 of 24 to 40, at most 7 s left, then the search for the line ...",
        ]
        line.close()
    assert "".join(terminal.written).split("\r")[3].strip() == ""
    assert terminal.written[-1] == "\r"


def test_the_time_left_never_exceeds_twice_the_limit_of_the_check(notebook, clock, terminal):
    with redirect_stdout(terminal):
        line = ProgressLine(notebook.shell, Settings(max_runs=1000, max_seconds=10), is_shown=True)
        once = line.ticking(lambda number: number)
        assert [once(number) for number in range(5)] == [0, 1, 2, 3, 4]
        clock[0] += 1.0
        once(5)
    assert terminal.written[1].endswith("at most 19 s left, then the search for the line ...")


def test_after_a_long_warm_up_the_line_says_what_the_check_would_need(notebook, clock, terminal):
    with redirect_stdout(terminal):
        line = ProgressLine(notebook.shell, Settings(max_seconds=60), is_shown=True)
        once = line.ticking(lambda number: number)
        once(0)
        clock[0] += 600.0
        once(1)
    assert terminal.written[1].strip() == (
        "leaklab: run 1; a run takes 10 min and 5 runs are needed, more than the limit of 60 s allows: interrupt and "
        "raise it (-t 3300), or check a smaller piece ..."
    )


def test_what_is_known_stands_beside_how_far_the_check_is_and_a_headline_that_changes_is_replaced(
    notebook, clock, terminal
):
    growing = (samples.history_leak(),)
    with redirect_stdout(terminal):
        line = ProgressLine(notebook.shell, Settings(max_seconds=60), is_shown=True)
        once = line.ticking(lambda number: number)
        once(0)
        clock[0] += 4.0
        line.note(Progress("runs", 3, growing))
        once(4)
        clock[0] += 4.0
        line.note(Progress("runs", 5))
        once(6)
    assert "growing so far, after 3 runs: `" in terminal.written[1]
    assert "nothing grows so far, after 5 runs" in terminal.written[2]


def test_a_quiet_check_writes_no_progress(notebook, clock, terminal):
    with redirect_stdout(terminal):
        line = ProgressLine(notebook.shell, Settings(), is_shown=False)
        clock[0] += 30.0
        line.ticking(lambda number: number)(1)
        line.close()
    assert terminal.written == []


@pytest.mark.parametrize(("home", "n_updates"), [("ipykernel.ipkernel", 1), ("ipyparallel.engine.kernel", 0)])
def test_a_report_stands_in_the_place_of_the_line_where_front_ends_update_it(clock, monkeypatch, home, n_updates):
    shown: list[tuple[str, object]] = []
    for name in ("display", "update_display"):
        monkeypatch.setattr(
            f"leaklab.magics.progress_line.{name}", lambda *args, name=name, **_: shown.append((name, *args))
        )
    kernel = type("Kernel", (), {"__module__": home})()
    shell = SimpleNamespace(kernel=kernel, display_pub=None)
    line = ProgressLine(shell, Settings(), is_shown=True)
    clock[0] += 1.0
    line.ticking(lambda number: number)(1)
    line.show("the report")
    assert shown[-1] == ("update_display" if n_updates else "display", "the report")
    assert len(shown) == 1 + n_updates
