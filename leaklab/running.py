"""Run the user's code whenever the pipeline asks for it, and keep its exception for afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from leaklab.checking.native_siting import Repeated
from leaklab.model import Check
from leaklab.pipeline import Ran, Steps


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
    """Call *run_once* with the run's number (0 for a warm-up) as often as *steps* wants."""
    error: BaseException | None = None
    # Closed also where an interrupt hits these very lines: the collector gets its state back at once.
    with closing(steps):
        try:
            number = next(steps)
            while True:
                started = time.perf_counter()
                try:
                    _run(number, run_once)
                except BaseException as raised:  # noqa: BLE001 - raised again by the caller, after the report
                    error = raised
                number = steps.send(_ran(started, error))
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
            number = next(steps)
            while True:
                started = time.perf_counter()
                try:
                    await _run_async(number, run_once)
                except BaseException as raised:  # noqa: BLE001 - raised again by the caller, after the report
                    error = raised
                number = steps.send(_ran(started, error))
        except StopIteration as stop:
            return Finished(stop.value, _to_raise(stop.value, error))
        finally:
            del error


def _run(number: int, run_once: Callable[[int], object]) -> None:
    if not isinstance(number, Repeated):
        run_once(number)
        return
    with number.around:
        for _ in range(number.times):
            run_once(number)


async def _run_async(number: int, run_once: Callable[[int], Awaitable[object]]) -> None:
    if not isinstance(number, Repeated):
        await run_once(number)
        return
    with number.around:
        for _ in range(number.times):
            await run_once(number)


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
    here = str(Path(__file__).parent) + os.sep
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(here):
        traceback = traceback.tb_next
    return error.with_traceback(traceback)
