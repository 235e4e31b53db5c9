"""The shipped notebooks, executed as they are."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MAX_BYTES = 1_000_000

pytestmark = pytest.mark.notebook


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Return a function that executes a notebook of this folder once per test run."""
    finished = {}

    def execute(name):
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
def test_notebook_is_kept_without_outputs(file):
    cells = [cell for cell in nbformat.read(file, 4).cells if cell.cell_type == "code"]
    assert [cell.id for cell in cells if cell.outputs or cell.execution_count] == []


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_notebook_runs_without_a_word_on_stderr(file, executed):
    notebook = executed(file.name)
    streams = [
        output for cell in notebook.cells for output in cell.get("outputs", ()) if output.output_type == "stream"
    ]
    assert [output.text for output in streams if output.name == "stderr"] == []


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
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
