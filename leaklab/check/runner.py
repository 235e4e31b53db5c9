"""Run the user's code whenever a check asks for it, here or in a child, and keep its exception for afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, replace

from leaklab.check.session import Ran, RunRequest, Steps
from leaklab.model import Check
from leaklab.runtime.child import begin_child, wait_for, why_no_child
from leaklab.version import PACKAGE_FOLDER


@dataclass(frozen=True, slots=True)
class Finished:
    """A check that has ended.

    Attributes:
        check: What was measured.
        error: What the user's code raised, to be raised again once the record has been shown; None if nothing.
    """

    check: Check
    error: BaseException | None


def drive(steps: Steps, run_once: Callable[[int], object]) -> Finished:
    """Call *run_once* with the run's number (0 for a warm-up) as often as *steps* wants.

    After an interrupt no code of the user's runs again: every further run is told to have ended with it.
    """
    error: BaseException | None = None
    # Closed also where an interrupt hits these very lines: the collector gets its state back at once.
    with closing(steps):
        try:
            wanted = next(steps)
            while True:
                started = time.perf_counter()
                if error is None or isinstance(error, Exception):
                    error = None
                    try:
                        _run(wanted, run_once)
                    except BaseException as raised:  # noqa: BLE001 - raised again by the caller, after the report
                        error = raised
                wanted = steps.send(_ran(started, error))
        except StopIteration as stop:
            return Finished(stop.value, _to_raise(stop.value, error))
        finally:
            # The user's frames know this one as their caller: a name for the error would close a cycle.
            del error


async def drive_async(steps: Steps, run_once: Callable[[int], Awaitable[object]]) -> Finished:
    """As `drive`, for code that awaits."""
    error: BaseException | None = None
    with closing(steps):
        try:
            wanted = next(steps)
            while True:
                started = time.perf_counter()
                if error is None or isinstance(error, Exception):
                    error = None
                    try:
                        await _run_async(wanted, run_once)
                    except BaseException as raised:  # noqa: BLE001 - raised again by the caller, after the report
                        error = raised
                wanted = steps.send(_ran(started, error))
        except StopIteration as stop:
            return Finished(stop.value, _to_raise(stop.value, error))
        finally:
            del error


def _run(wanted: int | RunRequest, run_once: Callable[[int], object]) -> None:
    if not isinstance(wanted, RunRequest):
        run_once(wanted)
        return
    with wanted.around:
        for _ in range(wanted.times):
            run_once(wanted.number)


async def _run_async(wanted: int | RunRequest, run_once: Callable[[int], Awaitable[object]]) -> None:
    if not isinstance(wanted, RunRequest):
        await run_once(wanted)
        return
    with wanted.around:
        for _ in range(wanted.times):
            await run_once(wanted.number)


def _to_raise(check: Check, error: BaseException | None) -> BaseException | None:
    """Return what the caller raises after the report: not what only a traced run raised, unless it was an interrupt."""
    return error if check.failure or not isinstance(error, Exception) else None


def _ran(started: float, error: BaseException | None) -> Ran:
    return time.perf_counter() - started, type(error).__name__ if error is not None else ""


def without_own_frames(error: BaseException) -> BaseException:
    """Return *error* with a traceback that begins in the user's code.

    Our frames would tell the user nothing, and one of them refers to *error*: with it, whatever the user's frames hold
    would live until the next collection.
    """
    here = PACKAGE_FOLDER + os.sep
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(here):
        traceback = traceback.tb_next
    return error.with_traceback(traceback)


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
    if why := "the code uses await" if awaits else why_no_child():
        return (yield from _ordinary(make_steps, why))
    with closing(make_steps()) as steps:
        first = next(steps)
        number = first if isinstance(first, int) else first.number
        is_warm_up = not number
        ran: Ran | None = (yield first) if is_warm_up else None
        if ran is not None and ran[1]:
            return (yield from _sent(steps, ran))
        idle_seconds = _IDLE_SECONDS + _IDLE_RUNS * (ran[0] if ran is not None else 0.0)
        try:
            child = yield from begin_child(
                lambda: _answered(steps, first) if ran is None else _sent(steps, ran), idle_seconds=idle_seconds
            )
        except OSError:
            return (yield from _ordinary(make_steps, "the system could not start another process"))
    try:
        ended_by = yield from wait_for([child], number)
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
        yield number  # the run that the user sees
    return _with_note(
        check, "the runs happened in a copy of the process: your variables are as they were after one run"
    )


def _ordinary(make_steps: Callable[[], Steps], why: str) -> Steps:
    check = yield from make_steps()
    return _with_note(check, f"not isolated: the runs were made in this process, because {why}")


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
