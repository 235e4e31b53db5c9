"""One assertion for any test runner."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from leaklab.check.api import leakcheck
from leaklab.reports.check import LeakReport


def assert_no_leak(
    function: Callable[[], object],
    *,
    runs: int | None = None,
    warmup: int = 2,
    seconds: float = 20.0,
    known: Collection[str] = (),
    namespace: dict[str, Any] | None = None,
    min_bytes: int = 0,
) -> LeakReport:
    """Run *function* repeatedly, and fail the test if it leaks.

    Args:
        function: Called without arguments.
        runs: Upper limit of measured runs; None lets the cost of a run decide.
        warmup: Runs before measuring.
        seconds: No new run starts after so many seconds of running.
        known: Fingerprints of leaks that do not count.
        namespace: The variables among which holders are looked for first.
        min_bytes: Leaks of fewer bytes per run do not fail; threads, callbacks and descriptors always do.

    Returns:
        The report; ``bounded`` and ``inconclusive`` do not fail.

    Raises:
        AssertionError: if *function* leaks; the message is the report.
    """
    __tracebackhide__ = True
    report = leakcheck(function, runs=runs, warmup=warmup, seconds=seconds, namespace=namespace, min_bytes=min_bytes)
    if report.leaked and not {leak.fingerprint for leak in report.leaks} <= set(known):
        raise AssertionError(str(report))
    return report
