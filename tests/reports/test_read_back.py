"""Every report is written by the suffix of a file and read back as it was."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

import leaklab

RECORDS = Path(__file__).parents[1] / "guards" / "records"
CLASSES = {
    "check_two_leaks.json": leaklab.LeakReport,
    "whyalive_held.json": leaklab.WhyAlive,
    "autograd_tensor.json": leaklab.AutogradReport,
    "memdiff_cell.json": leaklab.MemDiff,
    "memdiff_named.json": leaklab.MemDiff,
    "memdiff_of_moments.json": leaklab.MemDiff,
    "notebook_before.json": leaklab.NotebookReport,
    "run_a.json": leaklab.TrainingRun,
    "run_b.json": leaklab.TrainingRun,
    "run_c.json": leaklab.TrainingRun,
    "cuda_of_2023.json": leaklab.CudaSnapshot,
    "cuda_oom.json": leaklab.CudaSnapshot,
    "cuda_step_3.json": leaklab.CudaSnapshot,
    "cuda_step_series.json": leaklab.SnapshotComparison,
    "cuda_steady_series.json": leaklab.SnapshotComparison,
}
BLOCKS = 'data-leaklab="blocks"'
OLDER_NAMES = {"check": "check", "autograd": "retention", "notebook": "collection"}


def fields_of(name):
    fields = json.loads((RECORDS / name).read_text("utf-8"))
    return {"format": "leaklab training run", **fields} if name.startswith("run_") else fields


@pytest.mark.parametrize("name", CLASSES)
def test_what_0_1_0_wrote_is_read_and_written_again_as_it_was(name):
    report = CLASSES[name].from_json(RECORDS / name)
    written = report.to_json()
    assert json.loads(written) == fields_of(name)
    again = CLASSES[name].from_json(written)
    assert again.record == report.record
    assert again.to_json() == written


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("suffix", [".html", ".json", ".txt", ".md"])
def test_every_report_is_saved_in_the_four_forms(name, suffix, tmp_path):
    report = CLASSES[name].from_json(RECORDS / name)
    report.save(tmp_path / f"report{suffix}")
    text = (tmp_path / f"report{suffix}").read_text("utf-8")
    if suffix == ".txt":
        assert text == str(report)
    elif suffix == ".md":
        assert text.startswith("# ")
    elif suffix == ".html":
        assert text.startswith("<!DOCTYPE html>")
    else:
        assert type(report).load(tmp_path / "report.json").record == report.record


@pytest.mark.parametrize("name", CLASSES)
def test_a_report_that_was_read_is_pickled_and_shown(name):
    report = CLASSES[name].from_json(RECORDS / name)
    assert pickle.loads(pickle.dumps(report)).record == report.record  # noqa: S301 - our own
    assert report._repr_html_() == report._repr_mimebundle_().get("text/html")


@pytest.mark.parametrize("name", [name for name in CLASSES if name.partition("_")[0] in OLDER_NAMES])
def test_the_older_name_of_the_record_is_an_alias(name):
    report = CLASSES[name].from_json(RECORDS / name)
    assert getattr(report, OLDER_NAMES[name.partition("_")[0]]) is report.record


@pytest.mark.parametrize("name", ["cuda_oom", "cuda_step_3", "cuda_of_2023"])
def test_a_snapshot_says_the_same_when_it_is_read_from_its_record(name):
    opened = leaklab.load_cuda_snapshot(RECORDS / f"{name}.pickle")
    read = leaklab.CudaSnapshot.from_json(opened.to_json())
    assert (read.record, str(read), repr(read)) == (opened.record, str(opened), repr(opened))
    assert read._repr_html_() == opened._repr_html_()
    assert (BLOCKS in opened.to_html()) is bool(opened.timelines)
    assert BLOCKS not in read.to_html()  # the map of blocks needs the file itself
    assert read.by_stack("project").equals(opened.by_stack("project"))
    assert read.facts == read.record


def test_a_snapshot_read_from_its_record_says_that_it_has_no_blocks():
    read = leaklab.CudaSnapshot.from_json(RECORDS / "cuda_step_3.json")
    with pytest.raises(leaklab.SnapshotError, match="was read from its record, which has no blocks; open the file"):
        leaklab.compare_cuda_snapshots([read, read])


def test_the_comparison_of_snapshots_says_the_same_when_it_is_read():
    compared = leaklab.compare_cuda_snapshots([RECORDS / f"cuda_step_{number}.pickle" for number in (1, 2, 3)])
    read = leaklab.SnapshotComparison.from_json(compared.to_json())
    assert read == compared
    assert read.to_html() == compared.to_html()
    assert read.series is read.record


def test_a_run_that_was_read_is_no_context_manager_any_more():
    read = leaklab.TrainingRun.from_json(RECORDS / "run_a.json")
    assert repr(read).startswith("<run 'A': ")
    with pytest.raises(RuntimeError, match="has been used"), read:
        pass


def test_a_run_that_has_not_ended_cannot_be_saved(tmp_path):
    run = leaklab.training_run("A", namespace={}, show=False)
    with pytest.raises(leaklab.ReportError, match="the run 'A' has not ended"):
        run.save(tmp_path / "run.json")


@pytest.mark.parametrize(
    ("kind", "name"), [(leaklab.MemDiff, "cuda_oom.json"), (leaklab.TrainingRun, "cuda_oom.json"),
                       (leaklab.CudaSnapshot, "cuda_step_series.json"), (leaklab.WhyAlive, "check_clean.json")]
)  # fmt: skip
def test_a_file_of_another_report_is_refused(kind, name):
    with pytest.raises(leaklab.ReportError, match="not a file of leaklab"):
        kind.from_json(RECORDS / name)


@pytest.mark.parametrize("name", ["cuda_oom.json", "cuda_step_series.json", "memdiff_named.json"])
def test_a_file_that_was_changed_is_refused(name):
    fields = {key: value for key, value in fields_of(name).items() if key not in ("stacks", "tensors")}
    with pytest.raises(leaklab.ReportError, match="was changed after leaklab wrote it"):
        CLASSES[name].from_json(json.dumps(fields))


def test_frames_of_wrong_types_are_refused():
    fields = fields_of("cuda_oom.json")
    fields["stacks"][0]["frames"] = [{"name": "f", "filename": "a.py", "line": "1"}]
    with pytest.raises(leaklab.ReportError, match="was changed after leaklab wrote it"):
        leaklab.CudaSnapshot.from_json(json.dumps(fields))


@pytest.mark.parametrize("name", ["check_clean.html", "notebook_before.html"])
def test_a_page_with_its_record_is_loaded(name):
    kind = leaklab.LeakReport if name.startswith("check") else leaklab.NotebookReport
    assert kind.load(RECORDS / name) == leaklab.load_report(RECORDS / name)


@pytest.mark.parametrize("name", [name for name in CLASSES if not name.startswith("run_")])
def test_every_page_is_read_back(name, tmp_path):
    report = CLASSES[name].from_json(RECORDS / name)
    report.save(tmp_path / "page.html")
    assert leaklab.load(tmp_path / "page.html").record == report.record
