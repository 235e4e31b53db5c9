"""The fixture: a test gives a function to be checked, and fails with the report if it leaks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from leaklab.reports.check import LeakReport
    from leaklab.testing.baseline import KnownLeak
    from leaklab.testing.outcome import CheckedTest


class LeakedError(AssertionError):
    """A function that a test has given to the fixture leaks; the message is the report."""


@dataclass(frozen=True)
class Leakcheck:
    """Runs functions repeatedly; what the fixture ``leakcheck`` is.

    Attributes:
        runs: Upper limit of measured runs where the test names none; None lets the cost of a run decide.
        seconds: Time limit of each function's runs where the test names none.
        min_bytes: From how many bytes per run a leak counts where the test does not say.
        baseline: Leaks that do not count unless they are much worse, by their fingerprints.
        accepts: Whether no leak fails the test, because the baseline is being written.
        file: The path of the test's module.
        off: Whether checks are switched off: a test that asks for one is skipped.
        note: Called with what each check told.
    """

    runs: int | None
    seconds: float
    min_bytes: int
    baseline: Mapping[str, KnownLeak]
    accepts: bool
    file: str
    off: bool
    note: Callable[[CheckedTest], None]

    def __call__(
        self,
        function: Callable[[], object],
        *,
        runs: int | None = None,
        warmup: int = 2,
        seconds: float | None = None,
        known: Collection[str] = (),
        min_bytes: int | None = None,
    ) -> LeakReport:
        """Run *function* repeatedly, and fail the test if it leaks.

        Args:
            function: Called without arguments.
            runs: Upper limit of measured runs, at least 5; None lets the cost of a run decide.
            warmup: Runs before measuring.
            seconds: No new run starts after so many seconds of running; None is what ``--leakcheck-seconds`` says.
            known: Fingerprints of leaks that do not count, beside those of the baseline.
            min_bytes: From how many bytes per run a leak counts; None is what ``--leakcheck-min-bytes`` says.

        Returns:
            The report; ``bounded`` and ``inconclusive`` do not fail.

        Raises:
            AssertionError: if *function* leaks; the message is the report.
            TypeError, ValueError: as `leaklab.leakcheck`, for arguments that allow no check.
        """
        __tracebackhide__ = True
        if self.off:
            pytest.skip("checks are switched off: --leakcheck=none")
        from leaklab.check.api import leakcheck  # noqa: PLC0415 - a suite without checks pays for none of it
        from leaklab.runtime.ours import as_the_users  # noqa: PLC0415
        from leaklab.testing.baseline import KnownLeak  # noqa: PLC0415
        from leaklab.testing.checking import judge_report  # noqa: PLC0415

        limit = self.seconds if seconds is None else seconds
        least = self.min_bytes if min_bytes is None else min_bytes
        with as_the_users(self.file):
            report = leakcheck(
                function, runs=self.runs if runs is None else runs, warmup=warmup, seconds=limit, min_bytes=least
            )
        checked = judge_report(report, {**self.baseline, **{print_: KnownLeak("") for print_ in known}})
        self.note(checked)
        if checked.fails and not self.accepts:
            raise LeakedError(checked.in_full)
        return report
