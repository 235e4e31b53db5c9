"""Ignite: handlers watch the runs of a real engine."""

from __future__ import annotations

import pytest

engine_module = pytest.importorskip("ignite.engine")

from leaklab.frameworks.ignite import attach  # noqa: E402
from leaklab.model.loop import LoopState  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.untraced]  # the package's own
LATE = 10**9
Events = engine_module.Events


def update(engine, batch):
    if batch == "die":
        raise KeyError(batch)
    return batch


def test_a_step_is_an_iteration_and_the_engine_tells_how_many_come():
    engine = engine_module.Engine(update)
    watch = attach(engine, first_step=LATE, quiet=True)
    engine.run([1, 2, 3], max_epochs=4)
    status = watch.monitor.status
    assert (status.step, status.total_steps) == (12, 12)


def test_of_data_without_a_length_it_is_known_after_the_first_epoch():
    engine = engine_module.Engine(update)
    watch = attach(engine, first_step=LATE, quiet=True)
    known = []
    engine.add_event_handler(Events.EPOCH_COMPLETED, lambda: known.append(watch.monitor.total_steps))
    engine.add_event_handler(Events.EPOCH_STARTED, lambda engine: engine.set_data(iter([1, 2, 3])))
    engine.run(iter([1, 2, 3]), max_epochs=2)
    assert known == [6, 6]


def test_an_error_of_the_engine_is_raised_as_ever_and_ends_the_watch():
    engine = engine_module.Engine(update)
    watch = attach(engine, first_step=LATE, quiet=True)
    with pytest.raises(KeyError):
        engine.run([1, "die"])
    assert watch.monitor.record.failure == "KeyError"


def test_an_error_that_the_user_handles_stays_handled():
    engine = engine_module.Engine(update)
    seen = []
    engine.add_event_handler(Events.EXCEPTION_RAISED, lambda engine, error: seen.append(type(error)))
    attach(engine, first_step=LATE, quiet=True)
    engine.run([1, "die"])
    assert seen[0] is KeyError


def test_a_run_that_is_terminated_ends_the_watch():
    engine = engine_module.Engine(lambda engine, batch: engine.terminate())
    watch = attach(engine, first_step=LATE, quiet=True)
    engine.run([1, 2, 3])
    assert watch.monitor.status.step == 1
    assert watch.monitor.record.failure == ""
    watch.count_step()
    assert watch.monitor.status.step == 1


def test_handlers_that_are_added_every_epoch_are_named_after_the_engine():
    engine = engine_module.Engine(update)
    watch = attach(engine, first_step=30, overhead=1.0, quiet=True)

    @engine.on(Events.EPOCH_STARTED)
    def add(engine):
        kept = [0.0] * 100
        engine.add_event_handler(Events.COMPLETED, lambda: kept)

    engine.run([1, 2, 3, 4], max_epochs=400)
    changes = watch.monitor.changes
    assert changes[0].state is LoopState.GROWING
    assert "engine._event_handlers" in changes[0].words
