"""Two of one kind compared: what is new, still there, gone or fixed, as text and as a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from samples import clean_check, history_leak, hook_leak, leaky_check

import leaklab
from leaklab.cli import main
from leaklab.model import RootPath
from leaklab.model.check import KeptCheck, NotebookChecks
from leaklab.model.comparison import Fate
from leaklab.model.process import MemoryLevels, Survivor, TrainingRunRecord
from leaklab.reports.notebook import NotebookReport
from leaklab.reports.training_run import TrainingRun

MIB = 1024 * 1024


def survivor(holder, n_bytes):
    return Survivor("Net", (), 0, 2, 9, n_bytes, holder, RootPath("notebook variable", ()), "run-switch", "Let go.")


def training_run(name, *survivors, rss=100 * MIB):
    levels = MemoryLevels(tensors=MIB, rss=rss)
    return TrainingRun._around(TrainingRunRecord(name, 1.0, survivors, 2, MIB, levels, levels))


def a_check(*leaks, name="step"):
    check = leaky_check() if leaks else clean_check()
    return leaklab.LeakReport(replace(check, leaks=leaks, settings=replace(check.settings, name=name)))


def fates(rows):
    return {row.name: row.fate for row in rows}


def test_leaks_of_two_checks_are_fixed_still_there_or_new():
    fixed, still = replace(hook_leak(), fingerprint="a", holder="one"), history_leak()
    new = replace(hook_leak(), fingerprint="b", holder="two", what="other", count_per_run=9.0, holders=())
    compared = leaklab.compare(a_check(fixed, still), a_check(still, new))
    ((_name, comparison),) = compared.pairs
    assert fates(comparison.rows) == {"`one`": Fate.FIXED, "`trainer.history`": Fate.STILL, "`two`": Fate.NEW}
    markup = compared._repr_html_()
    assert all(f">{fate.value}<" in markup for fate in (Fate.FIXED, Fate.STILL, Fate.NEW))
    assert "border-top:9px solid" in markup


def test_a_leak_that_is_not_seen_in_a_check_that_proves_nothing_is_not_fixed():
    after = replace(clean_check(), failure="ValueError in run 3")
    compared = leaklab.compare(a_check(history_leak()), leaklab.LeakReport(after))
    assert [row.fate for row in compared.pairs[0][1].rows] == [Fate.UNPROVEN]


def test_training_runs_are_paired_by_holder_and_their_memory_has_bars(tmp_path):
    before = training_run("lr 1", survivor("model", MIB), survivor("cache", 2 * MIB))
    after = training_run("lr 2", survivor("cache", 4 * MIB), survivor("log", 100), rss=200 * MIB)
    compared = leaklab.compare(before, after)
    assert [(row.fate, row.before, row.after) for row in compared.record.rows] == [
        (Fate.STILL, 2 * MIB, 4 * MIB),
        (Fate.GONE, MIB, 0),
        (Fate.NEW, 0, 100),
    ]
    assert next(row.words for row in compared.record.levels) == "100 MiB -> 200 MiB"
    assert "training runs, lr 1 and lr 2: 1 new, 1 still there, 1 gone" in str(compared)
    compared.to_json(tmp_path / "c.json")
    assert leaklab.load(tmp_path / "c.json").record == compared.record
    assert "width:50.00%" in compared.to_html()


def test_two_graphs_show_what_each_operation_saves():
    x = torch.ones(10, requires_grad=True)
    short, long = (x * 2).exp().sum(), ((x * 2).exp() + x.sin()).sum()
    compared = leaklab.compare(leaklab.autograd(short), leaklab.autograd(long))
    assert fates(compared.record.rows)["SinBackward0"] is Fate.NEW


def test_files_of_moments_and_reports_are_compared_by_the_command(tmp_path, capsys):
    kept = []
    for number in (1, 2):
        kept.append(torch.ones(30_000 * number))
        leaklab.snapshot(f"m{number}").save(tmp_path / f"{number}.npz")
        training_run(f"r{number}", survivor("model", number * MIB)).to_json(tmp_path / f"{number}.json")
    for suffix in ("npz", "json"):
        files = [str(tmp_path / f"{number}.{suffix}") for number in (1, 2)]
        page = tmp_path / f"{suffix}.html"
        assert main(["compare", *files, "--html", str(page)]) == 0
        assert "border-top:9px solid" in page.read_text("utf-8")
        assert "http" not in page.read_text("utf-8").replace("http-equiv", "")
    assert "training runs, r1 and r2: 1 still there" in capsys.readouterr().out


def test_cuda_snapshots_are_compared_by_the_command(tmp_path, capsys):
    import pickle

    block = {"state": "active_allocated", "size": 512, "requested_size": 500, "address": 1 << 20, "frames": []}
    segment = {
        "device": 0, "address": 1 << 20, "total_size": 2 * MIB, "allocated_size": 512, "active_size": 512,
        "segment_type": "small", "stream": 0, "blocks": [block, {**block, "state": "inactive", "size": 2 * MIB - 512}],
    }  # fmt: skip
    for name in ("a.pickle", "b.pickle"):
        (tmp_path / name).write_bytes(pickle.dumps({"segments": [segment], "device_traces": []}))
    page = tmp_path / "page.html"
    assert main(["compare", str(tmp_path / "a.pickle"), str(tmp_path / "b.pickle"), "--html", str(page)]) == 0
    assert page.exists()
    assert "a.pickle" in capsys.readouterr().out


def test_two_files_of_different_kinds_are_refused_in_a_sentence(tmp_path, capsys):
    a_check(history_leak()).to_json(tmp_path / "check.json")
    training_run("r").to_json(tmp_path / "run.json")
    assert main(["compare", str(tmp_path / "check.json"), str(tmp_path / "run.json")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "check.json' is a LeakReport" in line
    assert "run.json' is a TrainingRun" in line
    assert "only two files of one kind" in line


def test_a_comparison_is_not_compared_again():
    compared = leaklab.compare(training_run("a"), training_run("b"))
    with pytest.raises(leaklab.ReportError, match="itself a comparison"):
        leaklab.compare(compared, compared)


def test_a_page_into_a_folder_that_is_missing_is_refused_before_the_work(tmp_path):
    assert main(["compare", "a.json", "b.json", "--html", str(tmp_path / "no" / "page.html")]) == 1


def test_checks_of_one_name_stand_together_in_the_page_of_a_notebook(tmp_path):
    checks = (a_check(history_leak()), a_check(name="other"), a_check(name="step"))
    page = tmp_path / "page.html"
    NotebookReport(NotebookChecks("nb", tuple(KeptCheck(check.record) for check in checks))).save(page)
    text = page.read_text("utf-8")
    first, again, other = (text.index(f'<section id="check-{number}"') for number in (1, 3, 2))
    assert first < again < other
    assert "since check 1 of the same name" in text[again:other]
    assert Path(page).stat().st_size < 2 * MIB
    assert len(leaklab.load_report(page).reports) == 3


RECORDS = Path(__file__).parents[1] / "guards" / "records"


@pytest.mark.parametrize("name", ["ranks_seven.json", "ranks_of_loops.json", "ranks_hostile.json"])
def test_what_ranks_have_in_common_with_themselves_is_still_there(name):
    report = leaklab.load(RECORDS / name)
    compared = leaklab.compare(report, report)
    assert str(compared).splitlines()[0].endswith(f": {len(report.leaks)} still there")
