"""Only one check runs at a time: others are refused in one sentence, and the first one is none the worse."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time

import pytest

import leaklab
from leaklab.check.pipeline import check_steps
from leaklab.errors import CheckRunningError
from leaklab.model import Settings
from leaklab.runtime.gc_control import GcState, gc_paused

pytestmark = pytest.mark.untraced

KEPT: list[object] = []


class Left:
    pass


def leaks():
    KEPT.append(Left())


def clean():
    Left()


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = GcState.now(), gc.get_freeze_count() > 2_000, sys.gettrace()
    yield
    KEPT.clear()
    assert before == (GcState.now(), gc.get_freeze_count() > 2_000, sys.gettrace())
    assert_free()


def assert_free():
    steps = check_steps(Settings(), None)
    assert next(steps) == 0
    steps.close()


def refused(function=clean, words="thread"):
    with pytest.raises(leaklab.LeaklabError, match=words) as caught:
        leaklab.leakcheck(function, runs=5)
    assert "\n" not in str(caught.value)
    assert caught.value._render_traceback_() == [f"CheckRunningError: {caught.value}"]


def test_a_second_thread_is_refused_and_the_first_check_is_right():
    under_way, may_end, reports = threading.Event(), threading.Event(), []

    def slow():
        leaks()
        under_way.set()
        may_end.wait(10)

    first = threading.Thread(target=lambda: reports.append(leaklab.leakcheck(slow, runs=8)), name="training")
    first.start()
    under_way.wait(10)
    refused(words=r"^a check is running in the thread 'training': start this one when it has ended$")
    may_end.set()
    first.join()
    assert [(report.leaked, report.leaks[0].count_per_run) for report in reports] == [(True, 1.0)]


def test_threads_that_start_at_once_are_one_check_and_refusals():
    start, ends = threading.Barrier(4), []

    def work():
        time.sleep(0.02)

    def check():
        start.wait()
        try:
            ends.append(str(leaklab.leakcheck(work, runs=6, sites=False).verdict.outcome))
        except leaklab.LeaklabError as error:
            ends.append(type(error).__name__)

    threads = [threading.Thread(target=check) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends.count("CheckRunningError") == 3


def test_a_check_inside_the_checked_code_is_refused_where_it_stands():
    with pytest.raises(
        leaklab.LeaklabError, match=r"^a check is already running in this thread: checks cannot be nested$"
    ):
        leaklab.leakcheck(lambda: leaklab.leakcheck(clean), runs=5)


def test_code_that_bears_the_refusal_is_checked_to_its_end():
    def bold():
        refused(words="in this thread")
        leaks()

    report = leaklab.leakcheck(bold, runs=8, sites=False)
    assert (report.leaked, report.check.failure) == (True, "")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_error_of_the_code_gives_the_place_back(error):
    def fails():
        raise error

    with pytest.raises(error):
        leaklab.leakcheck(fails)


def test_a_check_that_is_thrown_away_gives_the_place_back():
    steps = check_steps(Settings(), None)
    next(steps)
    with pytest.raises(CheckRunningError):
        next(check_steps(Settings(), None))
    del steps


def test_a_check_that_never_began_takes_no_place():
    steps = check_steps(Settings(), None)
    assert_free()
    del steps


def test_an_error_thrown_into_a_check_gives_the_place_back():
    steps = check_steps(Settings(), None)
    next(steps)
    with pytest.raises(KeyboardInterrupt):
        steps.throw(KeyboardInterrupt)


def test_checks_that_await_beside_each_other_are_refused():
    from leaklab.check.runner import drive_async

    async def once(_number):
        await asyncio.sleep(0.001)

    async def both():
        checks = [drive_async(check_steps(Settings(max_runs=6, sites=False), None), once) for _ in range(2)]
        return await asyncio.gather(*checks, return_exceptions=True)

    first, second = asyncio.run(both())
    assert (first.error, type(second)) == (None, CheckRunningError)


def test_a_check_in_a_watch_and_a_watch_in_a_check_are_allowed(capsys):
    with leaklab.watch("around", quiet=True) as around:
        assert leaklab.leakcheck(leaks, runs=6, sites=False).leaked
    assert around.diff is not None

    def watched():
        with leaklab.watch("inside", quiet=True):
            leaks()

    assert leaklab.leakcheck(watched, runs=5, sites=False).leaked


def test_a_collector_that_another_thread_has_paused_is_no_switch_of_the_users():
    paused, may_end = threading.Event(), threading.Event()

    def look():
        with gc_paused():
            paused.set()
            may_end.wait(10)

    other = threading.Thread(target=look)
    other.start()
    paused.wait(10)
    assert not gc.isenabled()
    state = GcState.now()
    report = leaklab.leakcheck(clean, runs=5, sites=False)
    may_end.set()
    other.join()
    assert (state.enabled, gc.isenabled()) == (True, True)
    assert not any("the garbage collector is off" in note for note in report.notes)
