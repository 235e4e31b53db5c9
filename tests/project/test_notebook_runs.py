"""`leaklab run` and `leaklab compare`, with a real kernel."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from leaklab import cli
from leaklab.errors import LeaklabError
from leaklab.notebooks import run_notebook
from leaklab.reports.notebook import load_report

pytestmark = [pytest.mark.untraced, pytest.mark.notebook]
LOAD = "%load_ext leaklab\nimport time\nkept = []"
LEAKY = "%%leakcheck --name step -n 8\nprint('said once')\nkept.append([0])"
FAILING = "1 / 0"


def write(path, *cells):
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(notebook, path)
    return path


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A notebook whose check leaks and whose last cell fails, run once: exit status, source and files."""
    folder = tmp_path_factory.mktemp("run")
    # The loop keeps the kernel busy for a second, so that the progress line is shown and taken away again.
    clean = "%%leakcheck --name clean -n 12\ntime.sleep(0.1)"
    file = write(folder / "training.ipynb", LOAD, LEAKY, clean, "import leaklab", FAILING, "kept = None")
    source = file.read_bytes()
    status = cli.main(["run", str(file), "--html", str(folder / "a.html"), "--json", str(folder / "a.json")])
    assert file.read_bytes() == source
    return folder, status


def test_the_checks_made_before_a_cell_failed_are_exported_and_the_status_is_1(done):
    folder, status = done
    report = load_report(folder / "a.json")
    assert status == 1
    assert [(one.check.settings.name, one.leaked) for one in report.reports] == [("step", True), ("clean", False)]
    assert report.collection.title == "training.ipynb"
    assert report.collection.failure == "the notebook failed: ZeroDivisionError: division by zero"


def test_the_progress_line_of_a_kernel_changes_no_verdict(done):
    clean = load_report(done[0] / "a.json").reports[1].check
    assert clean.verdict.outcome.value == "clean"
    assert (clean.leaks, clean.bounded, clean.containers, clean.tensors) == ((), (), (), ())


def test_the_page_says_why_the_notebook_ended(done):
    assert "ZeroDivisionError" in (done[0] / "a.html").read_text(encoding="utf-8")


def test_page_and_record_of_one_run_compare_as_the_same_leak_and_do_not_pass(done, capsys):
    assert cli.main(["compare", str(done[0] / "a.html"), str(done[0] / "a.json")]) == 1
    assert "still leaks" in capsys.readouterr().out


def test_a_clean_report_compared_with_itself_passes(tmp_path, capsys):
    import samples

    from leaklab.reports.check import LeakReport

    LeakReport(samples.clean_check()).to_html(tmp_path / "clean.html")
    assert cli.main(["compare", str(tmp_path / "clean.html"), str(tmp_path / "clean.html")]) == 0
    assert capsys.readouterr().out == "evaluation: clean: runs 2 to 11 left nothing behind\n"


def test_a_notebook_that_never_loads_leaklab_is_told_so(tmp_path, capsys):
    assert cli.main(["run", str(write(tmp_path / "plain.ipynb", "x = 1"))]) == 1
    assert "the notebook made no check: it must load leaklab (%load_ext leaklab)" in capsys.readouterr().err


def test_a_notebook_that_takes_too_long_still_hands_over_its_checks(tmp_path):
    made = "import leaklab\nfrom samples import leaky_check\nr = leaklab.LeakReport(leaky_check())\n"
    path = str(Path(__file__).parents[1])
    slow = write(
        tmp_path / "slow.ipynb", f"import sys; sys.path.insert(0, {path!r})\n{made}", "import time; time.sleep(600)"
    )
    run = run_notebook(slow, max_seconds=15, redact=True)
    assert run.failure == "the notebook did not finish within 15 seconds; allow more with --timeout"
    assert [noted.place for noted in run.report.collection.checks] == ["variable r"]
    assert run.report.collection.redacted


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.ipynb", None, "cannot read"),
        ("x.ipynb", "{", "is not a notebook that can be read"),
        ("x.ipynb", "\0" * 5000, "it does not begin like one$"),
        ("x.py", "print(1)", "it does not begin like one; a script is run by `leaklab watch .*x.py`$"),
    ],
)
def test_what_is_no_notebook_is_refused_before_a_kernel_starts(tmp_path, name, content, message):
    file = tmp_path / name
    if content:
        file.write_text(content)
    with pytest.raises(LeaklabError, match=message):
        run_notebook(file)


def test_a_file_in_a_folder_that_does_not_exist_is_refused_before_the_run(tmp_path, capsys):
    file = write(tmp_path / "plain.ipynb", FAILING)
    assert cli.main(["run", str(file), "--html", str(tmp_path / "nowhere" / "a.html")]) == 1
    assert "there is no folder" in capsys.readouterr().err
