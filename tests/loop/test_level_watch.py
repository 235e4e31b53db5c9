"""What the levels of a loop say depends on whose memory is in them."""

from __future__ import annotations

import numpy as np
import pytest

from leaklab.decide.loop_consequence import Free
from leaklab.decide.loop_states import LoopStates
from leaklab.loop.levels import LevelWatch
from leaklab.model.loop import LEVEL, LoopState

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
