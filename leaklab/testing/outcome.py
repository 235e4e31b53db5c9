"""What checking a test told, in plain values: it crosses from a copy of the process, and needs nothing of a check."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_UNCHECKED = ("not checked", "not repeatable")
_TOO_MANY = 0.1
"""Where more than this share of the tests could not be checked, the suite counts as not checked."""
_N_REASONS = 3


@dataclass(frozen=True, slots=True)
class CheckedTest:
    """What checking a test told.

    Attributes:
        note: What the reader should know, in a sentence; empty if nothing.
        text: The leaks that count, a few lines each; empty if none does.
        whole: The report on them; empty where another test's report explains them all.
        placed: The same leaks, the fields of `leaklab.testing.code_hosts.PlacedLeak` each.
        fingerprints: Each leak's fingerprint, with what it is in words, bytes per run and count per run.
        explains: The fingerprints of those of them that need no other explanation with another test.
        record_json: The record of a test that leaks; empty for others.
        properties: For the report of the test, and so for JUnit's file.
        is_of_plugins: Whether there are leaks, all of them what plug-ins of pytest keep for themselves.
    """

    note: str = ""
    text: str = ""
    whole: str = ""
    placed: tuple[tuple[str | int, ...], ...] = ()
    fingerprints: Mapping[str, tuple[str, float, float]] = field(default_factory=dict)
    explains: tuple[str, ...] = ()
    record_json: str = ""
    properties: list[tuple[str, object]] = field(default_factory=list)
    is_of_plugins: bool = False

    @property
    def in_full(self) -> str:
        """The leaks that count, and the report."""
        return "\n".join(filter(None, (self.text, self.whole)))

    @property
    def fails(self) -> bool:
        """Whether the test is to fail."""
        return bool(self.text)


def without_report(outcome: str, note: str) -> CheckedTest:
    """Return what is known of a test without a whole check: *outcome* in a word or two, *note* in a sentence."""
    properties: list[tuple[str, object]] = [("leaklab_outcome", outcome)]
    if outcome in _UNCHECKED:
        properties.append(("leaklab_reason", note))
    return CheckedTest(note=note, properties=properties)


def not_checked(why: str) -> CheckedTest:
    """Return what is known of a test that could not be checked, because of *why*, one clause."""
    return without_report("not checked", f"not checked: {why}")


class Tally:
    """Counts what the checks of a suite told, by the reports of its tests."""

    def __init__(self, reports: Iterable[Any]) -> None:
        self._outcomes: dict[str, int] = {}
        self._reasons: dict[str, int] = {}
        self._seconds = 0.0
        for report in reports:
            if getattr(report, "when", "") != "call" or hasattr(report, "context"):
                continue
            found = dict(report.user_properties)
            if outcome := found.get("leaklab_outcome"):
                self._outcomes[outcome] = self._outcomes.get(outcome, 0) + 1
                self._seconds += float(found.get("leaklab_seconds", 0))
            if reason := found.get("leaklab_reason"):
                words = re.sub(r" in run \d+", "", reason)
                self._reasons[words] = self._reasons.get(words, 0) + 1

    @property
    def summary(self) -> str:
        """How many tests were checked, and with which outcome; empty if none was."""
        words = ", ".join(f"{count} {outcome}" for outcome, count in _largest_first(self._outcomes))
        if not words:
            return ""
        hints = ["-vv shows what keeps a leak"] if "leak" in self._outcomes else []
        hints += ["-rA shows why a test was not checked"] if self._reasons else []
        hint = f" ({', '.join(hints)})" if hints else ""
        return f"leakcheck: {words}; {self._seconds:.1f} s of checks{hint}"

    @property
    def too_many_unchecked(self) -> str:
        """How many tests could not be checked, and why, if they are too many; empty if not."""
        n_unchecked, n_all = sum(self._reasons.values()), sum(self._outcomes.values())
        if n_unchecked <= _TOO_MANY * n_all:
            return ""
        reasons = _largest_first(self._reasons)
        words = [f"{count} {reason}" for reason, count in reasons[:_N_REASONS]]
        if left := sum(count for _reason, count in reasons[_N_REASONS:]):
            words.append(f"{left} for other reasons")
        return f"leakcheck: {n_unchecked} of {n_all} tests that pass could not be checked: {'; '.join(words)}"


def _largest_first(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda one: -one[1])
