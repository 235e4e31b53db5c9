"""A monitor around real loops: what it finds, what it leaves alone, and that every exit brings all back."""

from __future__ import annotations

import gc
import json
import linecache
import pickle
import queue
import subprocess
import sys
import threading
import tracemalloc
import weakref
from collections import deque
from pathlib import Path

import numpy as np
import pytest
import torch
from samples import history_leak

import leaklab
from leaklab.decide.loop_states import LoopStates
from leaklab.decide.rising_level import Free
from leaklab.errors import LeakFound
from leaklab.loop.levels import LevelWatch
from leaklab.loop.running import running_monitors
from leaklab.loop.stretch import not_clean, without_their_memory
from leaklab.model import Check, Outcome, Settings, Verdict
from leaklab.model.loop import LEVEL, LoopState

pytestmark = pytest.mark.untraced


class Batch:
    """Something that can be referred to weakly."""

    def __init__(self) -> None:
        self.data = torch.ones(64)


def test_a_buffer_that_fills_is_withdrawn():
    buffer = []
    with leaklab.monitor(first_step=20, quiet=True) as watch:
        for _ in range(1_000_000):  # how often the loop is looked at depends on what a look costs here
            buffer.append(torch.ones(16))
            if len(buffer) > 1_200:
                buffer.pop(0)
            watch.step()
            if watch.changes and watch.changes[-1].state is LoopState.STOPPED:
                break
    assert [change.state for change in watch.changes][-1] is LoopState.STOPPED
    assert not watch.status.is_alarm
    assert watch.status.state is LoopState.STEADY


def test_a_cache_that_fills_more_and_more_slowly_is_never_certain():
    cache = {}
    with leaklab.monitor(first_step=20, quiet=True) as watch:
        for step in range(1_000):
            cache.setdefault(int(8 * step**0.5), torch.ones(16))
            watch.step()
    assert {change.state for change in watch.changes} == {LoopState.GROWING}, "told at four times the steps"
    assert watch.status.state is LoopState.GROWING


def test_nothing_of_a_step_is_alive_two_steps_later_also_while_it_is_checked_and_traced():
    kept, alive = [], []

    def loop(watch):
        last = None
        for _ in range(1_300):
            batch = Batch()
            kept.append(batch.data.sum())
            if last is not None and last() is not None:
                alive.append(watch.status.step)
            last = weakref.ref(batch)
            del batch
            watch.step()

    with leaklab.monitor(first_step=20, quiet=True) as watch:
        loop(watch)
    assert watch.report.leaks or watch.changes, "a check with traced runs was made"
    assert alive == []


@pytest.mark.parametrize(
    ("at_step", "kind"),  # before a check, within its runs, within those that are traced
    [
        (5, ValueError), (60, KeyboardInterrupt), (1_180, KeyboardInterrupt),
        pytest.param(60, GeneratorExit, marks=pytest.mark.nightly),
        pytest.param(700, ValueError, marks=pytest.mark.nightly),
    ],
)  # fmt: skip
def test_whatever_ends_the_loop_the_collector_and_the_tracers_are_as_before(at_step, kind):
    kept = []
    thresholds, frozen = gc.get_threshold(), gc.get_freeze_count()
    watch = leaklab.monitor(first_step=20, quiet=True)
    with pytest.raises(kind), watch:
        for i in range(2_000):
            kept.append(torch.ones(4))
            if i == at_step:
                raise kind
            watch.step()
    assert (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()) == (True, thresholds, frozen)
    assert sys.gettrace() is None
    assert threading.gettrace() is None
    assert not tracemalloc.is_tracing()
    assert sys._getframe().f_trace is None
    assert watch not in running_monitors()
    assert watch.report.record.failure == kind.__name__
    leaklab.leakcheck(lambda: None, runs=5, seconds=5)  # no claim of the check is left


def test_a_monitor_that_is_dropped_in_the_middle_thaws_what_it_froze():
    frozen = gc.get_freeze_count()
    watch = leaklab.monitor(first_step=20, quiet=True)
    watch.start()
    watch.step(60)
    assert gc.get_freeze_count() > frozen + 10_000
    del watch
    assert gc.get_freeze_count() == frozen


def test_what_the_loop_chose_for_the_collector_meanwhile_stays():
    with leaklab.monitor(first_step=20, quiet=True) as watch:
        for i in range(900):
            if i == 300:
                gc.disable()
            watch.step()
    try:
        assert not gc.isenabled()
        assert watch.report.checks, "of how many depends on what they cost here"
    finally:
        gc.enable()


def test_cyclic_garbage_with_the_collector_off_is_found():
    gc.disable()
    try:
        with leaklab.monitor(first_step=20, total_steps=3_600, quiet=True) as watch:
            for _ in range(3_600):
                batch = Batch()
                batch.me = batch
                watch.step()
    finally:
        gc.enable()
    assert watch.report.leaked
    assert watch.report.leaks[0].cause.startswith(("cycle", "garbage")), watch.report.leaks[0].cause


def test_a_proven_leak_that_matters_ends_the_loop_only_where_that_was_asked_for():
    kept = []
    with (
        pytest.raises(LeakFound, match=r"`kept.*grows by 1 tensor"),
        leaklab.monitor(first_step=20, total_steps=10**9, fail=True, quiet=True) as watch,
    ):
        for _ in range(4_000):
            kept.append(torch.ones(1_000))
            watch.step()
    assert watch.status.is_alarm
    assert watch.status.full_at_step is not None


def test_a_loop_that_ends_within_a_check_still_tells_what_grew():
    kept = []
    with leaklab.monitor(first_step=20, quiet=True) as watch:
        for _ in range(400):
            kept.append(torch.ones(64))
            watch.step()
    check = watch.report.checks[0]
    assert check.verdict.outcome.value in ("inconclusive", "leak")
    assert "kept" in str(check.verdict)


def test_roots_give_their_names_and_are_not_kept():
    class Trainer:
        def __init__(self):
            self.log = []

    trainer = Trainer()
    with leaklab.monitor(first_step=20, roots={"trainer": trainer}, quiet=True) as watch:
        for _ in range(1_400):
            trainer.log.append(torch.ones(8))
            watch.step()
        assert watch.changes[0].words.startswith("`trainer.log` grows by 1 tensor")
        known = weakref.ref(trainer)
        del trainer
        gc.collect()
        assert known() is None


def test_steps_counts_holds_no_item_and_closes_with_the_loop():
    loader = (Batch() for _ in range(50))
    watched = leaklab.steps(loader, "pass", quiet=True)
    seen = []
    for batch in watched:
        seen.append(weakref.ref(batch))
        del batch
        assert seen[-1]() is None
    assert watched.monitor.status.step == 50
    assert running_monitors() == ()
    early = leaklab.steps(range(100), quiet=True)
    assert early.monitor.total_steps == 100
    for item in early:
        if item == 10:
            break
    gc.collect()
    assert early.monitor.status.step == 10
    assert running_monitors() == ()


def test_epochs_share_one_monitor():
    with leaklab.monitor(quiet=True) as watch:
        for _ in range(3):
            assert list(watch.steps("abc")) == list("abc")
    assert watch.status.step == 9


def test_a_check_elsewhere_only_postpones_that_of_the_loop():
    def checked():
        with leaklab.monitor(first_step=5, quiet=True) as watch:
            for _ in range(40):
                watch.step()
        assert watch.report.checks == ()

    report = leaklab.leakcheck(checked, runs=5, seconds=20)
    assert not report.leaked


def test_a_report_is_plain_and_comes_back_from_its_file(tmp_path):
    kept = []
    with leaklab.monitor("plain", first_step=20, quiet=True) as watch:
        for _ in range(1_300):
            kept.append(torch.ones(4))
            watch.step()
    report = watch.report
    assert pickle.loads(pickle.dumps(report)) == report  # noqa: S301
    report.save(tmp_path / "loop.json")
    assert leaklab.load(tmp_path / "loop.json") == report
    for suffix in (".html", ".txt", ".md"):
        report.save(tmp_path / f"loop{suffix}")
    page = (tmp_path / "loop.html").read_text("utf-8")
    assert "kept" in page
    assert "1 leak at step 1,300" in str(report)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"total_steps": 0}, ValueError, "total_steps must be a whole number above 0"),
        ({"total_steps": "9"}, TypeError, "total_steps must be a whole number above 0"),
        ({"overhead": 0}, ValueError, "overhead must be a share"),
        ({"first_step": -1}, ValueError, "first_step must be a whole number"),
        ({"name": 3}, TypeError, "the name of a monitor must be a str, not int"),
        ({"roots": {"model": {}}}, TypeError, "the root 'model' is a dict, which cannot be referred to weakly"),
    ],
)
def test_bad_arguments_are_answered_in_a_sentence(arguments, error, words):
    with pytest.raises(error, match=words):
        leaklab.monitor(**arguments)


def test_a_monitor_is_used_once_and_counts_only_while_it_runs():
    watch = leaklab.monitor(quiet=True)
    with pytest.raises(RuntimeError, match="the monitor is not running"):
        watch.step()
    with watch:
        watch.step()
    with pytest.raises(RuntimeError, match="the monitor is not running"):
        watch.step()
    with pytest.raises(RuntimeError, match="has been started before"):
        watch.start()
    with pytest.raises(TypeError, match=r"leaklab\.steps goes through batches"):
        leaklab.steps(3)


def test_what_fails_within_the_watch_does_not_reach_the_loop(monkeypatch):
    def broken(*_args, **_kwargs):
        msg = "out of order"
        raise OSError(msg)

    with leaklab.monitor(first_step=5, quiet=True) as watch:
        monkeypatch.setattr("leaklab.loop.levels.find_periods", broken)
        for _ in range(12):
            watch.step()
    assert watch.report.record.notes == ("the check at step 5 was given up: OSError: out of order",)
    assert watch.status.step == 12


def test_what_is_told_may_end_the_loop():
    class EnoughError(Exception):
        pass

    def told(_change):
        raise EnoughError

    kept = []
    with pytest.raises(EnoughError), leaklab.monitor(first_step=20, on_change=told, quiet=True) as watch:
        for _ in range(1_400):
            kept.append(torch.ones(4))
            watch.step()


def test_what_was_proven_stays_proven_when_the_function_that_holds_it_returns():
    def loop(watch):
        history = []
        for _ in range(400):
            history.append(torch.ones(8))
            watch.step()

    with leaklab.monitor(first_step=20, quiet=True) as watch:
        loop(watch)
    assert watch.report.leaked, watch.changes
    assert watch.report.leaks[0].holder == "history in loop()"
    assert [change.state for change in watch.changes] == [LoopState.GROWING, LoopState.LEAK]


@pytest.mark.by_day(1)
@pytest.mark.parametrize("n_steps", [400, 1_100])  # the second ends within a second check
def test_what_is_emptied_after_the_last_step_has_grown_until_then(n_steps):
    kept = []
    with leaklab.monitor(first_step=20, quiet=True) as watch:
        for _ in range(n_steps):
            kept.append(Batch())
            watch.step()
        kept.clear()
    assert watch.report.leaked, watch.changes
    assert LoopState.STOPPED not in {change.state for change in watch.changes}
    assert "clean" not in {check.verdict.outcome.value for check in watch.report.checks}, watch.report.checks


@pytest.mark.parametrize("n_steps", [450, 700])
def test_a_warm_up_that_a_later_look_has_refuted_is_no_word_at_the_end(n_steps):
    class Table:
        """Made anew in the midst of the loop, as what a progress bar shows."""

        def __init__(self):
            self.rows = []

    def loop(watch):
        table, rare = Table(), []
        for step in range(n_steps):
            if step < 220:  # the first look is at step 200
                table.rows.append(Batch())
            if step == 300:
                table = Table()
            if step in {390, 410, 520, 560}:  # so that the second look, at step 400, leaves a question
                rare.append(Batch())
            watch.step()

    with leaklab.monitor(first_step=100, quiet=True) as watch:
        loop(watch)
    assert ".rows" not in str(watch.report), watch.report


def test_the_line_that_another_thread_runs_is_named():
    """A model computes in a worker, whose steps are counted; the event loop keeps what comes back."""
    linecache.getlines(__file__)  # as of a script that Python runs
    results, reports = queue.Queue(1), []

    def compute():
        with leaklab.monitor(first_step=20, quiet=True, namespace={}) as watch:
            for _ in range(1_500):
                results.put(bytearray(9_000))
                watch.step()
            reports.append(watch.report)
            results.put(None)

    def serve():
        done = []
        while (result := results.get()) is not None:
            done.append([result])
            assert sum(range(5_000)) > 0  # what else an event loop does

    threads = [threading.Thread(target=one) for one in (compute, serve)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [line.strip() for line in str(reports[0]).splitlines() if "<- " in line]
    assert any("done.append([result])  <-" in line for line in lines), reports[0]
    assert not any("watch.step()" in line or "<- keeps" in line for line in lines if "done." not in line), lines


def test_a_check_gives_no_all_clear_where_what_grew_was_gone_at_the_end():
    check = Check(Settings(), Verdict(Outcome.CLEAN, "because", 24), (), (), (), (), (), ())
    assert without_their_memory(check, []) is check
    verdict = without_their_memory(check, [history_leak()]).verdict
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.reason == "`trainer.history` grew and was gone when the loop ended"


@pytest.mark.parametrize(("outcome", "holder", "said"), [
    (Outcome.CLEAN, "kept", "inconclusive"), (Outcome.BOUNDED, "kept", "inconclusive"),
    (Outcome.BOUNDED, "", "bounded"), (Outcome.LEAK, "kept", "leak"),
])  # fmt: skip
def test_a_check_that_the_end_cut_gives_no_all_clear_to_what_was_emptied(outcome, holder, said):
    check = Check(Settings(), Verdict(outcome, "because", 24), (), (), (), (), (), ())
    assert not_clean(check, holder).verdict.outcome.value == said


def test_a_table_that_has_weak_references_to_what_leaks_is_no_leak_beside_it():
    kept, alive = [], weakref.WeakSet()
    with leaklab.monitor(first_step=20, quiet=True, namespace={"kept": kept, "alive": alive}) as watch:
        for _ in range(100):
            batches = [Batch() for _ in range(40)]
            kept.extend(batches)
            alive.update(batches)
            watch.step()
    assert [place.leak.holder for place in watch.record.places] == ["kept"]


DEEP = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(60)))


@pytest.mark.by_day(1)
@pytest.mark.parametrize("n_steps", [45, 70])  # ends after one phase, within the second
def test_a_running_sum_is_named_also_where_there_is_time_for_one_phase(n_steps):
    namespace = {"total": torch.zeros(())}
    with leaklab.monitor(first_step=20, quiet=True, namespace=namespace) as watch:
        for _ in range(n_steps):
            loss = DEEP(torch.ones(16, 8)).sum()
            loss.backward()
            namespace["total"] = namespace["total"] + loss
            watch.step()
    assert [place.leak.holder for place in watch.record.places] == ["total"], watch.changes


def test_memory_of_graphs_that_cannot_be_followed_is_that_of_the_callbacks_that_keep_them():
    callbacks = []

    def train():
        loss = DEEP(torch.ones(16, 8)).sum()
        callbacks.append(lambda: float(loss))

    with leaklab.monitor(first_step=150, quiet=True, namespace={"callbacks": callbacks}) as watch:
        for _ in range(300):
            train()
            watch.step()
    (place,) = watch.record.places
    assert place.leak.holder == "callbacks"
    assert place.bytes_per_step > 40_000  # of 60 products and as many tanh


def once_an_epoch(watch, n_steps):
    kept = []
    for step in range(n_steps):
        batch = Batch()
        if step % 5 == 4:
            kept.append(batch)
        watch.step()


def every_step_into_another_function(watch, n_steps):
    kept = []

    def into(batches):
        batches.append(Batch())

    for _ in range(n_steps):
        into(kept)
        watch.step()


def in_an_attribute(watch, n_steps):
    model = torch.nn.Linear(2, 2)
    model.seen = {}
    for step in range(n_steps):
        model.seen[step] = Batch()
        watch.step()


def until_it_is_full(watch, n_steps):
    kept = {}
    for step in range(n_steps):
        kept.setdefault(min(step, 30), Batch())
        watch.step()


def the_last_ten(watch, n_steps):
    kept = []
    for _ in range(n_steps):
        kept.append(Batch())
        del kept[:-10]
        watch.step()


def a_ring(watch, n_steps):
    kept = deque(maxlen=40)
    for _ in range(n_steps):
        kept.append(Batch())
        watch.step()


def test_what_another_thread_keeps_is_not_said_to_be_kept_by_the_line_that_waits_for_it():
    batches, kept, is_over = queue.Queue(2), [], threading.Event()

    def read():
        while not is_over.is_set():
            batch = Batch()
            kept.append(batch)
            batches.put(batch)

    reader = threading.Thread(target=read, name="reader", daemon=True)
    reader.start()
    with leaklab.monitor(first_step=20, quiet=True) as watch:
        for _ in range(200):
            batch = batches.get()
            batch.data.sum()
            watch.step()
    is_over.set()
    batches.get()
    reader.join()
    lines = [site.partition(": ")[2] for place in watch.record.places for site in place.leak.sites]
    assert watch.record.places
    assert all("in thread 'reader'" in line or line == "kept.append(batch)  # keeps it" for line in lines), lines


@pytest.fixture(scope="module")
def short_loops():
    program = Path(__file__).with_name("short_loops.py")
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


@pytest.mark.parametrize(
    ("loop", "state"),
    [
        ("into_a_list", "leak"),
        ("into_a_list_below_an_object", "leak"),
        ("until_there_are_so_many", "growing"),
        ("with_a_limit_far_away", "growing"),
        ("of_an_epoch", "growing"),
        ("that_the_end_of_an_epoch_empties", "growing"),
        ("that_is_asked_for_after_the_loop", "growing"),
    ],
)
def test_a_leak_of_a_short_loop_is_certain_where_nothing_in_the_code_could_end_it(short_loops, loop, state):
    assert short_loops[loop] == [state, 1, 1.0]


ENDED_EARLY = {
    once_an_epoch: ("kept in once_an_epoch()", "kept.append(batch)"),
    every_step_into_another_function: ("kept in every_step_into_another_function()", ""),
    in_an_attribute: ("model.seen in in_an_attribute()", "model.seen[step] = Batch()"),
    until_it_is_full: None,
    the_last_ten: None,
    a_ring: None,
}


@pytest.mark.by_day(3)
@pytest.mark.parametrize(("loop", "found"), ENDED_EARLY.items(), ids=lambda value: getattr(value, "__name__", None))
def test_what_a_short_loop_takes_along_when_it_ends_has_grown(loop, found):
    linecache.getlines(__file__)  # of a script it would be read
    watch = leaklab.monitor(first_step=20, quiet=True)
    with watch:
        loop(watch, 55)  # looked at from step 20 to 40, told at step 80
    places = watch.record.places
    assert [place.leak.holder for place in places] == ([] if found is None else [found[0]])
    assert {place.state for place in places} <= {LoopState.GROWING}
    lines = [site.partition(": ")[2] for place in places for site in place.leak.sites]
    assert lines == ([f"{found[1]}  # keeps it"] if found is not None and found[1] else [])


def test_a_dict_of_plain_data_that_the_collector_does_not_list_is_followed():
    namespace = {"seen": {}}
    with leaklab.monitor(first_step=20, quiet=True, namespace=namespace) as watch:
        for step in range(400):
            namespace["seen"][str(step)] = bytearray(9000)
            watch.step()
    assert not gc.is_tracked(namespace["seen"]) or sys.version_info >= (3, 14)
    assert [(place.state, place.leak.holder) for place in watch.record.places] == [(LoopState.LEAK, "seen")]
    assert LoopState.STOPPED not in {change.state for change in watch.changes}


def test_a_short_loop_that_leaks_once_an_epoch_is_followed_until_it_is_certain():
    outputs = []
    with leaklab.monitor(first_step=20, quiet=True) as watch:
        for step in range(1, 301):
            if step % 60 == 0:
                outputs.extend(torch.ones(8) for _ in range(4))
            watch.step()
    assert watch.report.leaked, watch.changes
    assert watch.report.leaks[0].count_per_run == pytest.approx(4 / 60, rel=0.05)


@pytest.mark.parametrize(("n_steps", "state"), [(3, LoopState.WARMING_UP), (4, LoopState.GROWING)])
def test_a_loop_that_ends_a_few_steps_after_the_first_look_tells_what_each_of_them_left(n_steps, state):
    kept, log = [], []
    with leaklab.monitor(first_step=20, quiet=True) as watch:
        for number in range(20 + n_steps):
            kept.append(torch.ones(16))
            log.append(number)
            watch.step()
    assert watch.status.state is state
    assert ["kept" in place.leak.holder for place in watch.record.places] == [True] * (state is LoopState.GROWING)
    assert not watch.status.is_alarm


def test_a_loop_that_was_not_looked_at_is_not_said_to_be_without_growth():
    with leaklab.monitor(quiet=True) as watch:
        for _ in range(9):
            watch.step()
    said = str(watch.report)
    assert "no step has been looked at: it is not known whether anything grows" in said
    assert "no growth" not in said


def test_a_steady_loop_says_for_how_many_steps_also_when_it_is_interrupted():
    with pytest.raises(KeyboardInterrupt), leaklab.monitor(first_step=20, quiet=True) as watch:
        for step in range(80):
            if step == 70:
                raise KeyboardInterrupt
            watch.step()
    assert watch.status.state is LoopState.STEADY
    assert "nothing grew in the 50 steps that were looked at" in str(watch.report)


def test_memory_that_the_watch_takes_is_not_in_the_levels():
    with leaklab.monitor(first_step=20, quiet=True) as watch:
        for _ in range(250):
            watch.step()
    heap = watch.levels.heap_bytes
    assert max(heap) - heap[0] < 4 * 2**20


def test_importing_the_package_does_not_import_the_monitor():
    code = "import leaklab, sys; print('leaklab.loop' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


STEP = 2_000
PLENTY = Free(host=2.0**40)


@pytest.fixture
def watch(monkeypatch):
    """The watch of a loop whose heap rose by 6,000 bytes a step."""
    steps = np.linspace(1, STEP, 60)
    rising = LevelWatch(LoopStates())
    monkeypatch.setattr(rising.history, "heap", lambda: (steps, 6_000.0 * steps))
    return rising


def judged(watch, *, is_checking):
    changes = watch.judge(STEP, None, PLENTY, 0, is_checking=is_checking, is_last=False)
    return [(change.fingerprint.startswith(LEVEL), change.state) for change in changes]


def test_a_rise_is_told_between_checks_and_at_the_end(watch):
    assert judged(watch, is_checking=False) == [(True, LoopState.GROWING)]
    assert watch.judge(STEP, None, PLENTY, 0, is_checking=False, is_last=True) == []  # it is known


def test_a_rise_during_a_check_may_be_its_own_memory_and_is_looked_at_afterwards(watch):
    assert judged(watch, is_checking=True) == []
    assert judged(watch, is_checking=False) == [(True, LoopState.GROWING)]


@pytest.mark.parametrize(("per_step", "told"), [(215.0, []), (1_100.0, [(True, LoopState.GROWING)])])
def test_a_rise_is_told_if_it_matters_at_its_latest_pace(watch, monkeypatch, per_step, told):
    steps = np.linspace(1, STEP, 237)
    levels = np.minimum(steps, 120) * 7_500.0 + steps * per_step  # the first steps fill caches
    monkeypatch.setattr(watch.history, "heap", lambda: (steps, levels))
    assert judged(watch, is_checking=False) == told
