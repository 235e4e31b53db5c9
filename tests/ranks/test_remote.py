"""What a worker runs: a check whose answer is text, whatever goes wrong."""

from __future__ import annotations

import sys
import threading
import types

import pytest
import torch

import leaklab
from leaklab.model.ranks import RankRecord
from leaklab.ranks.gathering import rank_here

pytestmark = pytest.mark.untraced


class Trainer:
    def __init__(self):
        self.kept = []
        self.error = None

    def step(self):
        self.kept.append(torch.ones(300, requires_grad=True).sum())
        if self.error is not None:
            raise self.error


def answer_of(text):
    (record,) = leaklab.merge([text]).record.ranks
    return record


def test_the_answer_names_the_place_by_the_methods_object():
    trainer = Trainer()
    record = answer_of(leaklab.remote.check(trainer.step, cure=False, sites=False))
    assert record.check.verdict.outcome is leaklab.Outcome.LEAK
    assert record.check.leaks[0].holder == "self.kept"
    assert record.pid > 0
    assert record.host


def test_a_step_that_leaves_nothing_is_clean_in_a_thread_as_well():
    answers = []
    thread = threading.Thread(target=lambda: answers.append(leaklab.remote.check(lambda: torch.ones(300))))
    thread.start()
    thread.join()
    assert str(leaklab.merge(answers)).startswith("CLEAN  in worker 0")


def test_what_the_function_of_a_thread_keeps_is_no_thread_that_was_left():
    answers = []

    def work():
        kept = []

        def step():
            kept.append(torch.ones(300, requires_grad=True).sum())

        answers.append(leaklab.remote.check(step, cure=False, sites=False))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    (leak,) = answer_of(answers[0]).check.leaks
    assert leak.path.root.startswith("running function ")
    assert leak.cause == "graph-kept"


def test_an_error_of_the_function_is_the_answer_with_what_was_found_until_then():
    trainer = Trainer()
    trainer.error = ValueError("nope\nsecond line")
    record = answer_of(leaklab.remote.check(trainer.step))
    assert record.error == "ValueError: nope"
    assert record.check.failure.startswith("ValueError in ")


def test_a_redacted_answer_does_not_quote_the_error():
    trainer = Trainer()
    trainer.error = ValueError("patient 17")
    text = leaklab.remote.check(trainer.step, redact=True)
    assert "patient" not in text
    assert answer_of(text).error == "ValueError"


def test_a_check_inside_a_check_is_an_answer():
    inner = []
    leaklab.leakcheck(lambda: inner.append(leaklab.remote.check(int)) if not inner else None, runs=5, sites=False)
    assert answer_of(inner[0]).error.startswith("CheckRunningError: a check is already running in this thread")


def test_a_leak_that_fails_the_check_is_an_answer_all_the_same():
    record = answer_of(leaklab.remote.check(Trainer().step, fail_on_leak=True, cure=False, sites=False))
    assert record.error == ""
    assert record.check.leaks


def test_a_wrong_call_raises():
    with pytest.raises(TypeError, match="leakcheck needs a function to call, not int"):
        leaklab.remote.check(3)
    with pytest.raises(TypeError, match="runs must be a whole number"):
        leaklab.remote.check(int, runs="many")


def test_the_rank_is_that_of_torchrun(monkeypatch):
    assert rank_here() == (-1, 0)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert rank_here() == (2, 4)
    record = answer_of(leaklab.remote.check(int, runs=5, sites=False))
    assert (record.rank, record.world_size, record.label) == (2, 4, "")


def test_a_report_is_saved_as_the_file_of_its_rank(monkeypatch, tmp_path):
    report = leaklab.leakcheck(int, runs=5, sites=False)
    with pytest.raises(leaklab.ReportError, match="this process has no rank: give one"):
        leaklab.remote.save(report, tmp_path)
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "3")
        assert leaklab.remote.save(report, tmp_path / "new").name == f"rank_{rank}.json"
    assert "rank 2 has no verdict: nothing came from it" in str(leaklab.merge(tmp_path / "new"))
    with pytest.raises(TypeError, match="save needs a LeakReport or a MonitorReport, not str"):
        leaklab.remote.save("report", tmp_path)


class Samples:
    """What samples the threads of a worker of Dask, with the loop that may stop it."""

    def __init__(self, *, is_running):
        self.running, self.told = is_running, []
        self.periodic_callbacks, self.loop = {"profile": self}, self

    def is_running(self):
        return self.running

    def stop(self):
        self.running = False
        self.told.append("stop")

    def start(self):
        self.running = True
        self.told.append("start")

    def add_callback(self, call):
        call()


def test_a_worker_of_dask_samples_nothing_while_it_is_checked(monkeypatch):
    ours, off = Samples(is_running=True), Samples(is_running=False)
    module = types.SimpleNamespace(Worker=types.SimpleNamespace(_instances={ours, off}))
    monkeypatch.setitem(sys.modules, "distributed.worker", module)
    seen = []
    leaklab.remote.check(lambda: seen.append(ours.running) if not seen else None, runs=5, sites=False, cure=False)
    assert seen == [False]
    assert ours.told == ["stop", "start"]
    assert off.told == []


class Engines:
    """A client of ipyparallel with two engines, of which one is gone and one answers."""

    ids = (0, 1)

    def __getitem__(self, engine):
        if engine == 1:
            raise IndexError(engine)
        return self

    def apply_async(self, function, *args):
        self.answer = function(*args)
        return self

    def get(self, timeout):
        return self.answer


class View:
    client = Engines()
    targets = "all"


def test_an_engine_without_a_check_and_one_that_is_gone_are_told():
    report = leaklab.gather(View())
    assert [one.label for one in report.record.ranks] == ["engine 0", "engine 1"]
    assert report.record.ranks[0].error == "it runs no IPython"
    assert report.record.ranks[1].error == "it cannot be reached: IndexError: 1"


def test_what_is_no_view_is_refused():
    with pytest.raises(TypeError, match=r"gather needs a direct view of engines, client\[:\], not int"):
        leaklab.gather(3)


def test_records_can_be_merged_as_they_are():
    record = RankRecord(0, 1, "host", 1, error="it was lost")
    assert "it was lost" in str(leaklab.merge([record]))
