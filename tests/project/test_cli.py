"""The leaklab command, run as a user runs it."""

import json
import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import nbformat
import pytest
from samples import clean_check, history_leak, leaky_check

import leaklab
from leaklab import cli
from leaklab import notebooks as demo
from leaklab.errors import LeaklabError
from leaklab.reports.check import LeakReport

pytestmark = pytest.mark.untraced

OUTSIDE = re.compile(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//|@import|url\(\s*["']?https?:""")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The demo, run once: exit status and the two files it wrote."""
    folder = tmp_path_factory.mktemp("demo")
    page, notebook = folder / "page.html", folder / "executed.ipynb"
    status = cli.main(["demo", "--html", str(page), "--notebook", str(notebook)])
    return SimpleNamespace(status=status, page=page, notebook=notebook)


def shipped(monkeypatch, tmp_path, *cells):
    """Let the demo find a notebook with these *cells* instead of the shipped one."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbformat.write(notebook, tmp_path / "shipped.ipynb")
    monkeypatch.setattr(demo, "find_notebook", lambda: tmp_path / "shipped.ipynb")
    monkeypatch.chdir(tmp_path)


def report(*, leaked, holder="trainer.epoch_outputs"):
    """A report written by hand."""
    if not leaked:
        return LeakReport(clean_check())
    return LeakReport(replace(leaky_check(), leaks=(replace(history_leak(), holder=holder),)))


@pytest.mark.notebook
def test_demo_finds_explains_and_cures_the_shipped_leak(done):
    assert done.status == 0


def test_demo_prints_the_report_the_second_verdict_and_where_the_page_is(tmp_path, monkeypatch, capsys):
    before, after = report(leaked=True), report(leaked=False)
    executed = demo.Demo(notebook=nbformat.v4.new_notebook(), before=before, after=after)
    monkeypatch.setattr(demo, "run_demo", lambda **_options: executed)
    assert cli.main(["demo", "--html", str(tmp_path / "page.html")]) == 0
    printed = capsys.readouterr().out
    assert str(before).partition("\nEvidence")[0] in printed
    assert "\nCLEAN  " in printed
    assert "Evidence" not in printed
    assert "leaklab watch train.py" in printed
    assert str(tmp_path / "page.html") in printed


def test_demo_that_found_nothing_ends_with_status_1_and_says_so(tmp_path, monkeypatch, capsys):
    blind = demo.Demo(notebook=nbformat.v4.new_notebook(), before=report(leaked=False), after=report(leaked=False))
    monkeypatch.setattr(demo, "run_demo", lambda **_options: blind)
    assert cli.main(["demo", "--html", str(tmp_path / "page.html")]) == 1
    assert "leaklab: the shipped leak was not found (clean: " in capsys.readouterr().err


def test_a_terminal_says_which_cell_runs_and_nothing_of_that_stays(monkeypatch, tmp_path, capsys):
    shipped(monkeypatch, tmp_path, "raise ValueError('no spirals today')")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert cli.main(["demo"]) == 1
    drawn = capsys.readouterr().err.split("\r")
    assert drawn[1] == "cell 1 of 2: raise ValueError('no spirals today')"
    assert not drawn[-2].strip()
    assert drawn[-1] == "leaklab: the notebook failed: ValueError: no spirals today\n"


@pytest.mark.notebook
def test_demo_page_tells_the_leak_and_asks_nothing_of_the_network(done):
    page = done.page.read_text(encoding="utf-8")
    assert "trainer.epoch_outputs" in page
    assert "data:image/svg+xml;base64," in page
    assert OUTSIDE.findall(page) == []


@pytest.mark.notebook
def test_demo_notebook_is_the_shipped_one_with_outputs(done):
    executed, source = (nbformat.read(file, 4) for file in (done.notebook, demo.find_notebook()))
    assert [cell.source for cell in executed.cells] == [cell.source for cell in source.cells]
    assert all(cell.execution_count for cell in executed.cells if cell.cell_type == "code")


def test_demo_says_in_one_line_which_error_ended_the_notebook(monkeypatch, tmp_path, capsys):
    shipped(monkeypatch, tmp_path, "raise ValueError('no spirals today')")
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr().err == "leaklab: the notebook failed: ValueError: no spirals today\n"
    assert not (tmp_path / "leaklab_demo.html").exists()


def test_demo_runs_in_this_interpreter_whatever_the_user_calls_python3(monkeypatch, tmp_path, capsys):
    kernel = tmp_path / "kernels" / "python3"
    kernel.mkdir(parents=True)
    broken = {"argv": ["/does/not/exist", "{connection_file}"], "display_name": "broken", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(broken))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    shipped(monkeypatch, tmp_path, "import sys\nraise ValueError(sys.prefix)")
    assert cli.main(["demo"]) == 1
    assert f"ValueError: {sys.prefix}" in capsys.readouterr().err


def test_demo_leaves_the_ipython_profile_of_the_user_alone(monkeypatch, tmp_path, capsys):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("IPYTHONDIR", raising=False)
    shipped(monkeypatch, tmp_path, "raise ValueError(get_ipython().ipython_dir)")
    assert cli.main(["demo"]) == 1
    assert "leaklab-demo-" in capsys.readouterr().err
    assert [path for path in home.rglob("*") if path.is_file()] == []


def test_demo_gives_up_after_the_time_limit(monkeypatch, tmp_path, capsys):
    shipped(monkeypatch, tmp_path, "import time\ntime.sleep(60)")
    assert cli.main(["demo", "--timeout", "1.5"]) == 1
    assert "did not finish within 1.5 seconds" in capsys.readouterr().err


def test_demo_refuses_a_page_in_a_folder_that_does_not_exist(tmp_path, capsys):
    assert cli.main(["demo", "--html", str(tmp_path / "nowhere" / "page.html")]) == 1
    assert "does not exist" in capsys.readouterr().err


def test_demo_says_when_the_notebook_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "PACKAGE_FOLDER", str(tmp_path / "leaklab"))
    with pytest.raises(LeaklabError, match="missing from this installation"):
        demo.find_notebook()


def test_notebook_inside_an_installed_package_is_found(monkeypatch, tmp_path):
    folder = tmp_path / "leaklab" / "_notebooks"
    folder.mkdir(parents=True)
    (folder / demo.NOTEBOOK).write_text("{}")
    monkeypatch.setattr(demo, "PACKAGE_FOLDER", str(tmp_path / "leaklab"))
    assert demo.find_notebook() == folder / demo.NOTEBOOK


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (report(leaked=True), report(leaked=False), ""),
        (report(leaked=False), report(leaked=False), "the shipped leak was not found"),
        (
            report(leaked=True, holder="sys.modules"),
            report(leaked=False),
            "the shipped leak was found, but not what holds it",
        ),
        (report(leaked=True), report(leaked=True), "the repaired loop still counts as a leak"),
    ],
)
def test_demo_fails_unless_the_leak_is_found_explained_and_cured(before, after, words):
    failure = demo.Demo(notebook=None, before=before, after=after).failure
    assert failure[: len(words)] == words
    assert bool(failure) == bool(words)


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"leaklab {leaklab.__version__}\n"


@pytest.mark.parametrize("arguments", [["dance"], ["demo", "--timeout", "0"], ["demo", "--timeout", "soon"]])
def test_senseless_command_line_ends_with_status_2_and_usage(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage: leaklab" in capsys.readouterr().err


def test_interrupt_ends_in_one_line(monkeypatch, capsys):
    def interrupted(**_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run_demo", interrupted)
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr().err == "leaklab: interrupted\n"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["dmeo"], "did you mean demo?"),
        (["demo", "--htlm", "x"], "leaklab demo: error: unrecognized arguments: --htlm x; did you mean --html?"),
        (["cuda", "shwo", "x"], "did you mean show?"),
        (["compare", "a", "b", "--hmtl=c"], "did you mean --html?"),
    ],
)
def test_a_word_that_is_spelt_like_a_known_one_is_answered_with_that(arguments, meant, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert meant in capsys.readouterr().err


def test_a_word_that_is_like_none_gets_no_guess(capsys):
    with pytest.raises(SystemExit):
        cli.main(["demo", "--qqqqq"])
    assert "did you mean" not in capsys.readouterr().err


def test_each_step_of_the_demo_is_a_cell_of_the_shipped_notebook():
    cells = nbformat.read(demo.find_notebook(), 4).cells
    first_lines = [cell.source.partition("\n")[0] for cell in cells if cell.cell_type == "code"]
    assert [line for line in demo.DEMO_STEPS if line not in first_lines] == []


def test_the_demo_says_each_step_as_it_begins(monkeypatch, tmp_path, capsys):
    first, second, *_ = demo.DEMO_STEPS
    shipped(monkeypatch, tmp_path, first + " break", "raise ValueError('no spirals today')")
    monkeypatch.setattr(demo, "DEMO_STEPS", {first + " break": "a network is trained", second: "never reached"})
    assert cli.main(["demo"]) == 1
    assert "\n  1 of 2  a network is trained\n" in capsys.readouterr().out


def test_the_page_of_the_demo_begins_with_the_cards():
    before, after = report(leaked=True), report(leaked=False)
    page = demo.as_page(demo.Demo(notebook=nbformat.v4.new_notebook(), before=before, after=after))
    places = [page.index(words) for words in ("<main>", "What leaklab found", ">LEAK<", ">CLEAN<")]
    assert places == sorted(places)


def test_the_page_of_the_demo_is_loaded_again(tmp_path):
    before, after = report(leaked=True), report(leaked=False)
    file = tmp_path / "demo.html"
    file.write_text(demo.as_page(demo.Demo(nbformat.v4.new_notebook(), before, after)), "utf-8")
    assert [one.check for one in leaklab.load(file).record.checks] == [before.record, after.record]


def test_without_a_command_all_of_them_are_shown(capsys):
    assert cli.main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert all(f"\n    {name} " in shown.err for name in ("demo", "run", "compare", "watch", "attach", "mcp"))
