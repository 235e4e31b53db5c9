"""``with leaklab.training_run(name)``: what of a run survives it, who holds it, and what the next one starts beside."""

from __future__ import annotations

import gc
import importlib
import pickle
import sys
import weakref

import pytest
import torch

import leaklab
from leaklab.model.process import MemoryLevels, TrainingRunRecord
from leaklab.reports.training_run import TrainingRun, memory_rows, run_text


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(100, 50, bias=False)


class Trainer:
    def __init__(self):
        self.model = Net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), momentum=0.9)


@pytest.fixture(scope="module")
def switched():
    """Run A is kept in a dict, run B is dropped, and starts beside A."""
    Trainer()  # the first optimizer imports half of torch
    runs = {}
    variables = {"runs": runs}
    with leaklab.training_run("A", namespace=variables, show=False) as a:
        runs["A"] = Trainer()
    alive = weakref.ref(runs["A"].model)
    with leaklab.training_run("B", namespace=variables, show=False) as b:
        Trainer()
    runs.clear()
    gc.collect()
    return a, b, alive


def test_what_survives_is_named_with_its_holder(switched):
    record = switched[0].record
    assert sum(count for s in record.survivors for _, count in s.models) == 1
    assert sum(s.n_optimizers for s in record.survivors) == 1
    assert {s.holder for s in record.survivors} == {"runs"}
    assert record.survivors[0].path.steps[0].reference == "runs"
    assert record.survivors[0].cause == "run-switch"


def test_storages_are_counted_once_and_belong_to_the_run(switched):
    record = switched[0].record
    assert record.tensor_bytes == 100 * 50 * 4
    assert record.after.tensors - record.before.tensors == 100 * 50 * 4


def test_a_run_that_leaves_nothing_says_so(switched):
    record = switched[1].record
    assert record.survivors == ()
    assert (record.n_tensors, record.tensor_bytes) == (0, 0)
    assert repr(switched[1]) == "<run 'B': none of its objects survive>"


def test_the_next_run_says_what_it_started_beside(switched):
    earlier = switched[1].record.earlier
    assert any("runs['A']" in survivor.holder for survivor in earlier)
    assert sum(survivor.n_bytes for survivor in earlier) >= 100 * 50 * 4
    assert "when it started, earlier models or optimizers were still alive" in str(switched[1])


def test_nothing_of_the_run_is_kept_by_the_record(switched):
    a, _b, alive = switched
    assert a.record.survivors
    assert alive() is None


def test_the_record_is_plain_data(switched):
    record = switched[0].record
    assert pickle.loads(pickle.dumps(record)) == record  # noqa: S301 - our own
    assert "<script" not in TrainingRun._around(record)._repr_html_()
    assert max(map(len, run_text(record).splitlines())) <= 100


def test_an_error_passes_through_and_is_named():
    gc.disable()
    try:
        with pytest.raises(ZeroDivisionError), leaklab.training_run("C", show=False, namespace={}) as c:
            1 / 0  # noqa: B018
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert c.record.failure == "ZeroDivisionError"
    assert gc.get_freeze_count() < 2_000


def test_a_block_that_thaws_the_heap_is_told_apart_from_a_clean_one():
    with leaklab.training_run("D", show=False, namespace={}) as d:
        gc.unfreeze()
    assert d.record.notes == (
        (
            "the block thawed the collector's objects (gc.freeze): objects that the run left cannot be distinguished "
            "from older ones"
        ),
    )


def test_a_run_is_used_once(switched):
    with pytest.raises(
        RuntimeError, match=r"the run 'A' has been used; begin another with leaklab\.training_run\('A'\)"
    ):
        switched[0].__enter__()


@pytest.mark.parametrize("name", [None, 3, print])
def test_a_run_needs_a_name(name):
    with pytest.raises(TypeError, match=r"a run needs a name, such as leaklab\.training_run\('A'\), not "):
        leaklab.training_run(name)


def test_a_peak_that_did_not_move_is_not_the_runs():
    low = MemoryLevels(0, 100, None, 500)
    assert [name for name, *_ in memory_rows(low, low)] == ["tensors", "process (resident)"]
    high = MemoryLevels(0, 100, 7, 600, 9)
    rows = list(memory_rows(MemoryLevels(0, 100, 5, 500, 8), high))
    assert [name for name, *_ in rows] == [
        "tensors", "accelerator", "process (resident)", "peak of the accelerator", "peak of the process",
    ]  # fmt: skip


def test_the_report_is_printed_unless_told_otherwise(capsys):
    with leaklab.training_run("E", namespace={}):
        pass
    assert capsys.readouterr().out.startswith("run 'E': none of its objects survive\n")


def test_a_hostile_name_is_escaped():
    record = TrainingRunRecord("<script>", 0.0, (), 0, 0, MemoryLevels(0, 0), MemoryLevels(0, 0))
    assert "&lt;script&gt;" in TrainingRun._around(record)._repr_html_()


def test_modules_imported_inside_are_one_note_and_their_content_is_no_place(tmp_path, monkeypatch):
    (tmp_path / "late_library.py").write_text(
        "class Big:\n    pass\n\n\ntable = [[number] for number in range(3000)]\n"
    )
    (tmp_path / "late_cache.py").write_text("import torch\n\ncache = [torch.zeros(50_000)]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    variables = {"kept": []}
    with leaklab.training_run("A", namespace=variables, show=False) as run:
        importlib.import_module("late_library")
        importlib.import_module("late_cache")
        variables["kept"].append([[number] for number in range(3000)])
    assert sorted(survivor.holder for survivor in run.record.survivors) == ["kept", "late_cache.__dict__"]
    assert run.record.notes == ("2 modules were imported; their contents are not listed",)
    for name in ("late_library", "late_cache"):
        del sys.modules[name]


def test_a_run_that_imports_nothing_has_no_note_on_it(switched):
    assert switched[0].record.notes == ()
