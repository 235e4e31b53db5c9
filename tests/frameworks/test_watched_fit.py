"""What all callbacks share: a monitor for each fit, ended with it, and nothing of the user's between two calls."""

from __future__ import annotations

import gc
import math
import pickle
import weakref

import pytest

from leaklab.frameworks.watched_fit import WatchedFit, whole_steps

LATE = 10**9  # no check begins in these tests


class Trainer:
    pass


def test_a_fit_is_watched_from_its_beginning_to_its_end():
    watch = WatchedFit("mine", first_step=LATE, quiet=True)
    watch.count_step()  # no fit yet: not counted, no error
    watch.begin_fit(100, {})
    watch.count_step()
    watch.count_step()
    watch.end_fit("ValueError")
    watch.count_step()
    status = watch.monitor.status
    assert (status.name, status.step, status.total_steps) == ("mine", 2, 100)
    assert watch.monitor.record.failure == "ValueError"
    assert "ended by ValueError" in str(watch.report)


def test_the_next_fit_gets_a_monitor_of_its_own_and_the_one_before_ends():
    watch = WatchedFit(first_step=LATE, quiet=True)
    watch.begin_fit(None, {}, rank=3)
    first = watch.monitor
    watch.begin_fit(math.inf, {})
    assert first.record.failure == "the next fit"
    assert first.name == "rank 3"
    assert watch.monitor is not first
    watch.end_fit()


def test_neither_the_callback_nor_its_report_keeps_the_trainer():
    watch, trainer = WatchedFit(first_step=LATE, quiet=True), Trainer()
    gone = weakref.ref(trainer)
    watch.begin_fit(10, {"trainer": trainer, "model": None})
    watch.count_step()
    del trainer
    gc.collect()
    assert gone() is None
    watch.end_fit()
    assert watch.report is not None


def test_an_exception_ends_the_watch_of_a_with_block():
    with pytest.raises(KeyError), WatchedFit(first_step=LATE, quiet=True) as watch:
        watch.begin_fit(10, {})
        raise KeyError
    assert watch.monitor.record.failure == "KeyError"


def test_a_copy_for_another_process_has_the_options_and_no_monitor():
    watch = WatchedFit("mine", first_step=LATE, quiet=True)
    watch.begin_fit(10, {})
    other = pickle.loads(pickle.dumps(watch))  # noqa: S301 - our own
    watch.end_fit()
    assert other.monitor is None
    other.count_step()
    other.begin_fit(5, {})
    other.end_fit()
    assert other.monitor.name == "mine"


def test_a_wrong_option_is_refused_before_the_fit():
    with pytest.raises(ValueError, match="overhead must be a share"):
        WatchedFit(overhead=3)


def test_there_is_no_report_before_the_first_fit():
    with pytest.raises(RuntimeError, match="give this callback to a trainer"):
        _ = WatchedFit().report


@pytest.mark.parametrize(
    ("total", "steps"), [(None, None), (math.inf, None), (math.nan, None), (0, None), (-1, None), (7.0, 7), (12, 12)]
)
def test_steps_that_nobody_knows_are_none(total, steps):
    assert whole_steps(total) == steps
