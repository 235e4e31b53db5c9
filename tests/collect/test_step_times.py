"""How long the latest steps took: a ring of numbers."""

from __future__ import annotations

from leaklab.collect import StepTimes, step_times
from leaklab.decide import find_periods


def test_the_latest_steps_are_kept_with_their_numbers(monkeypatch):
    times = StepTimes()
    for step in range(1, 3):
        times.note(step / 10)
    assert [column.tolist() for column in times.series()] == [[1, 2], [0.1, 0.2]]
    for step in range(3, step_times.N_STEPS + 6):
        times.note(step)
    steps, seconds = times.series()
    assert (steps[0], steps[-1], len(steps)) == (6, step_times.N_STEPS + 5, step_times.N_STEPS)
    assert (seconds == steps).all()


def test_the_period_of_a_validation_is_found_in_them():
    times = StepTimes()
    for step in range(1, 6_000):
        times.note(0.5 if step % 300 == 0 else 0.05 + 0.001 * (step % 7))
    assert find_periods(*times.series()) == (300,)
