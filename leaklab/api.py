"""The check of a function, for scripts and tests."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from leaklab.model import Settings
from leaklab.pipeline import check_steps
from leaklab.report import LeakReport
from leaklab.running import drive


def leakcheck(
    function: Callable[[], object],
    *,
    runs: int = 40,
    warmup: int = 1,
    seconds: float = 60.0,
    name: str = "",
    namespace: dict[str, Any] | None = None,
) -> LeakReport:
    """Run *function* repeatedly and say whether it leaks, what grows, and who holds it.

    Args:
        function: Called without arguments; what it returns is dropped.
        runs: Upper limit of measured runs, at least 5; fewer are made where that answers.
        warmup: Runs before measuring.
        seconds: No new run starts after this many seconds of running.
        name: A name for this check, shown in its report.
        namespace: The variables among which holders are looked for first; by default the globals of *function*.

    Returns:
        The report.

    Raises:
        TypeError: if *function* cannot be called, or is a coroutine function.
        ValueError: if the settings allow no verdict.
        BaseException: whatever *function* raises, with the partial report as its attribute ``leaklab_report``.
    """
    __tracebackhide__ = True
    _refuse_what_cannot_be_called(function)
    settings = Settings(max_runs=runs, n_warmups=warmup, max_seconds=seconds, name=name)
    names = getattr(inspect.unwrap(function), "__globals__", None) if namespace is None else namespace
    finished = drive(check_steps(settings, names), lambda _number: function())
    report = LeakReport(finished.check)
    if finished.error is not None:
        try:
            finished.error.leaklab_report = report  # type: ignore[attr-defined]  # for whoever catches it
        finally:
            raise finished.error
    return report


def _refuse_what_cannot_be_called(function: object) -> None:
    if not callable(function):
        msg = f"leakcheck needs a function to call, not {type(function).__name__}"
        raise TypeError(msg)
    if inspect.iscoroutinefunction(function):
        msg = "leakcheck calls a plain function; wrap the coroutine: lambda: asyncio.run(work())"
        raise TypeError(msg)
