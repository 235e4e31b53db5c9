"""The whole check in a child: afterwards the user's variables are as after one run of the code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from leaklab.check.steps import Ran, RunRequest, Steps
from leaklab.model import Check
from leaklab.runtime.child import begin_child, wait_for, why_no_child

_IDLE_SECONDS, _IDLE_RUNS = 20.0, 10.0
"""A child that has computed nothing for so many seconds and runs waits for what it will never get."""


def isolated_steps(make_steps: Callable[[], Steps], *, awaits: bool = False) -> Steps:
    """Make one run here, and the check itself in a child.

    Args:
        make_steps: Makes a check that nothing has been asked of yet.
        awaits: Whether the code has to be awaited, which it cannot be in a child.

    Returns:
        The record of the child. Where there is none, or it tells of an error, that of an ordinary check made here: what
        the code raises must be raised where the user can look at it.
    """
    if why := "the code awaits" if awaits else why_no_child():
        return (yield from _ordinary(make_steps, why))
    with closing(make_steps()) as steps:
        first = next(steps)
        if not isinstance(first, int):  # no check begins so
            return (yield from _answered(steps, first))
        is_warm_up = not first
        ran: Ran | None = (yield first) if is_warm_up else None
        if ran is not None and ran[1]:
            return (yield from _sent(steps, ran))
        idle_seconds = _IDLE_SECONDS + _IDLE_RUNS * (ran[0] if ran is not None else 0.0)
        try:
            child = yield from begin_child(
                lambda: _answered(steps, first) if ran is None else _sent(steps, ran), idle_seconds=idle_seconds
            )
        except OSError:
            return (yield from _ordinary(make_steps, "the system refuses another process"))
    try:
        ended_by = yield from wait_for([child], first)
    finally:
        child.kill()
    if ended_by:
        with closing(make_steps()) as steps:
            next(steps)
            return (yield from _sent(steps, (0.0, ended_by)))
    check = child.answer
    if check is None or check.failure:
        why = child.failure if check is None else f"the code raised there ({check.failure})"
        return (yield from _ordinary(make_steps, why))
    if not is_warm_up:
        yield first  # the run that the user sees
    return _with_note(check, "the runs were made in a copy of the process: your variables are as after one run")


def _ordinary(make_steps: Callable[[], Steps], why: str) -> Steps:
    check = yield from make_steps()
    return _with_note(check, f"not isolated, the runs were made in this process: {why}")


def _with_note(check: Check, note: str) -> Check:
    return replace(check, notes=(*check.notes, note))


def _answered(steps: Steps, wanted: int | RunRequest) -> Steps:
    """Go on with *steps*, which have asked for *wanted*."""
    return (yield from _sent(steps, (yield wanted)))


def _sent(steps: Steps, ran: Ran) -> Steps:
    """Go on with *steps*, which hear first of *ran*."""
    while True:
        try:
            wanted = steps.send(ran)
        except StopIteration as stop:
            check: Check = stop.value
            return check
        ran = yield wanted
