"""The shipped notebooks, executed as they are."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SIXTH = "06_many_engines.ipynb"
AT_NIGHT = ("03_causes_and_cures.ipynb", SIXTH)  # a minute of two processors, each
EXECUTED = [
    pytest.param(file, id=file.stem, marks=pytest.mark.nightly if file.name in AT_NIGHT else ()) for file in NOTEBOOKS
]
MAX_BYTES = 1_000_000
OF_A_MACHINE = re.compile(r"[\s\"'(](?:/home/(?!me/)|/root|/tmp|/Users|C:\\)|Linux-\d")

pytestmark = [pytest.mark.untraced, pytest.mark.notebook]


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Return a function that executes a notebook of this folder once per test run."""
    finished = {}

    def execute(name):
        if name == SIXTH:
            pytest.importorskip("ipyparallel", reason="notebook 6 starts engines: pip install ipyparallel")
        if name not in finished:
            notebook = nbformat.read(FOLDER / name, 4)
            folder = tmp_path_factory.mktemp("notebook")
            NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
            finished[name] = notebook
        return finished[name]

    return execute


def outputs_of(notebook, cell_id):
    return next(cell.outputs for cell in notebook.cells if cell.id == cell_id)


def words_of(notebook, cell_id):
    texts = [
        output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs_of(notebook, cell_id)
    ]
    return "\n".join(texts)


def test_there_is_a_notebook():
    assert FOLDER / "01_find_a_leak.ipynb" in NOTEBOOKS


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_notebook_is_kept_with_what_it_shows_and_nothing_of_the_machine(file):
    cells = [cell for cell in nbformat.read(file, 4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), "python docs/run_notebooks.py"
    outputs = [output for cell in cells for output in cell.outputs]
    assert any("text/html" in output.get("data", {}) for output in outputs)
    assert [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"] == []
    text = file.read_text("utf-8")
    assert len(text) < MAX_BYTES
    assert OF_A_MACHINE.findall(text) == []


@pytest.mark.parametrize("file", EXECUTED)
def test_what_a_notebook_is_kept_with_is_of_the_kinds_that_it_shows_today(file, executed):
    kept, made = (
        [{kind for output in cell.get("outputs", ()) for kind in output.get("data", {})} for cell in notebook.cells]
        for notebook in (nbformat.read(file, 4), executed(file.name))
    )
    assert kept == made


@pytest.mark.parametrize("file", EXECUTED)
def test_notebook_runs_without_a_word_on_stderr(file, executed):
    notebook = executed(file.name)
    streams = [
        output for cell in notebook.cells for output in cell.get("outputs", ()) if output.output_type == "stream"
    ]
    assert [output.text for output in streams if output.name == "stderr"] == []


@pytest.mark.parametrize("file", EXECUTED)
def test_executed_notebook_stays_small(file, executed):
    assert len(nbformat.writes(executed(file.name))) < MAX_BYTES


def test_first_notebook_names_the_list_that_keeps_the_graphs(executed):
    words = words_of(executed("01_find_a_leak.ipynb"), "leak")
    assert "holder: trainer.epoch_outputs" in words
    assert "cause:  graph-kept" in words


def test_first_notebook_says_leak_before_the_repair(executed):
    assert words_of(executed("01_find_a_leak.ipynb"), "verdict").startswith("leak: ")


def test_holder_of_the_first_notebook_can_be_evaluated(executed):
    assert int(words_of(executed("01_find_a_leak.ipynb"), "holder")) > 100


def test_first_notebook_draws_the_path(executed):
    assert any(
        "<img" in output.data.get("text/html", "") for output in outputs_of(executed("01_find_a_leak.ipynb"), "graph")
    )


def test_first_notebook_shows_the_plot(executed):
    (output,) = outputs_of(executed("01_find_a_leak.ipynb"), "plot")
    assert "image/png" in output.data


def test_comparison_of_the_first_notebook_says_fixed(executed):
    assert words_of(executed("01_find_a_leak.ipynb"), "compare").rstrip().endswith("fixed")


SECOND = "02_why_is_it_alive.ipynb"
RELEASES = ("hook-release", "graph-release", "cam-release", "optim-release", "array-release", "thread-release")


@pytest.mark.parametrize("cell_id", RELEASES)
def test_second_notebook_lets_go_of_everything_it_asks_about(executed, cell_id):
    assert "gone: True" in words_of(executed(SECOND), cell_id)


def test_second_notebook_shrinks_what_a_small_view_keeps(executed):
    assert words_of(executed(SECOND), "view-release").split("\n")[0].strip() == "39 MiB are kept"
    assert "5 KiB are kept" in words_of(executed(SECOND), "view-release")


def test_second_notebook_names_the_cycles_that_are_never_freed(executed):
    for cell_id in ("graph-ask", "cam-ask", "optim-ask"):
        assert words_of(executed(SECOND), cell_id).startswith("IMMORTAL  lost(): ")


def test_second_notebook_draws_in_both_styles(executed):
    for cell_id in ("hook-graph", "hook-objgraph"):
        (output,) = outputs_of(executed(SECOND), cell_id)
        assert "data:image/svg+xml" in output.data["text/html"]


def test_first_notebook_says_clean_after_the_repair(executed):
    assert "clean" in words_of(executed("01_find_a_leak.ipynb"), "check-again").lower()


FIFTH = "05_watch_and_report.ipynb"


def test_fifth_notebook_raises_the_alarm_at_the_fourth_execution_and_not_before(executed):
    lines = [words_of(executed(FIFTH), f"watched-{number}") for number in (1, 2, 3, 4)]
    assert ["ALARM" in line for line in lines] == [False, False, False, True]


def test_fifth_notebook_names_what_one_search_leaves(executed):
    words = words_of(executed(FIFTH), "memdiff")
    assert "+1 torch.Tensor (2000,) float32 cpu with a graph, 7.81 KiB, held by search.recent[4]" in words
    assert "search.recent (list) grew by 1 entry" in words


def test_fifth_notebook_compares_with_its_mark(executed):
    assert "search.recent (list) grew by 10 entries of torch.Tensor, 5 -> 15" in words_of(
        executed(FIFTH), "mark-compare"
    )


def test_fifth_notebook_calls_the_repaired_search_bounded_and_the_leak_fixed(executed):
    assert words_of(executed(FIFTH), "compare").rstrip().endswith("now bounded: fixed")
    assert "its holder is a collections.deque(maxlen=20), which drops its oldest entry" in " ".join(
        words_of(executed(FIFTH), "again").split()
    )


def test_report_of_the_fifth_notebook_is_read_back_with_both_verdicts(executed):
    verdicts = words_of(executed(FIFTH), "read-back").strip().split("\n")
    assert [verdict.split(":")[0] for verdict in verdicts] == ["leak", "bounded"]


def test_each_notebook_says_its_place_and_names_the_next():
    for number, file in enumerate(NOTEBOOKS, 1):
        cells = nbformat.read(file, 4).cells
        assert f"*Notebook {number} of {len(NOTEBOOKS)}" in cells[0].source
        assert number == len(NOTEBOOKS) or NOTEBOOKS[number].name in cells[-1].source


@pytest.mark.nightly
def test_sixth_notebook_names_the_odd_engine_and_what_it_keeps(executed):
    assert words_of(executed(SIXTH), "gather").startswith("LEAK  in 1 of 4 engines (engine 2): `suspicious` grows by ")
    assert "odd: (2,)\nheld by: suspicious" in words_of(executed(SIXTH), "odd")


@pytest.mark.nightly
def test_sixth_notebook_shows_the_report_of_every_engine(executed):
    shown = [output for output in outputs_of(executed(SIXTH), "check") if "text/html" in output.get("data", {})]
    assert len(shown) == 4


@pytest.mark.nightly
def test_sixth_notebook_leaks_nowhere_after_the_repair(executed):
    assert not words_of(executed(SIXTH), "gather-again").startswith(("LEAK", "NO VERDICT"))
