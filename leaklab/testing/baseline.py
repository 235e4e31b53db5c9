"""The file of leaks that are known: they fail a suite when they get much worse, and are told when they are gone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from leaklab.errors import ReportError
from leaklab.files import write_bytes

_HEAD = "# Leaks that are known: a test, then the fingerprint of each of its leaks, how much, and what it is.\n"
_RATE = re.compile(r"(?P<bytes>[\d.]+) B, (?P<count>[\d.]+) a run  ")
_MUCH_WORSE = 2.0
_NOISE_BYTES, _NOISE_COUNT = 100.0, 1.0
"""By so much more, a leak has not become worse: the sizes of lists and texts are not the same in every check."""


class KnownLeak(NamedTuple):
    """A leak as a baseline has it.

    Attributes:
        words: What it is.
        bytes_per_run: How much each run leaves; None in a baseline that was written before it held this.
        count_per_run: How many objects, entries, descriptors; None likewise.
    """

    words: str
    bytes_per_run: float | None = None
    count_per_run: float | None = None

    def worse(self, now: KnownLeak) -> str:
        """Return how much worse the leak is *now*, one clause; empty if it is not twice as large."""
        for before, after, noise, unit in (
            (self.bytes_per_run, now.bytes_per_run, _NOISE_BYTES, " B"),
            (self.count_per_run, now.count_per_run, _NOISE_COUNT, ""),
        ):
            if before is not None and after is not None and after > max(_MUCH_WORSE * before, before + noise):
                return f"{before:,.0f}{unit} every run in the baseline, {after:,.0f}{unit} now"
        return ""


def read_baseline(path: Path) -> dict[str, dict[str, KnownLeak]]:
    """Return what *path* says: for each test the known leaks by their fingerprints.

    Raises:
        ReportError: if the file cannot be read, or a line of it cannot be understood.
    """
    known: dict[str, dict[str, KnownLeak]] = {}
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        msg = f"cannot read the baseline {str(path)!r}: {error}; --leakcheck-update-baseline writes one"
        raise ReportError(msg) from error
    test = ""
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            test = line.strip()
            known.setdefault(test, {})
            continue
        fingerprint, _, words = line.strip().partition("  ")
        if not test:
            msg = f"line {number} of the baseline {str(path)!r} is a fingerprint before any test: {line.strip()!r}"
            raise ReportError(msg)
        rate = _RATE.match(words)
        known[test][fingerprint] = (
            KnownLeak(words)
            if rate is None
            else KnownLeak(words[rate.end() :], float(rate["bytes"]), float(rate["count"]))
        )
    return known


def write_baseline(path: Path, known: Mapping[str, Mapping[str, KnownLeak]]) -> None:
    """Write the tests in the order of their names, one block each."""
    blocks = [
        "\n".join([test, *(f"    {print_}  {_written(leak)}" for print_, leak in sorted(found.items()))])
        for test, found in sorted(known.items())
        if found
    ]
    write_bytes(path, (_HEAD + "".join(f"\n{block}\n" for block in blocks)).encode("utf-8"))


def _written(leak: KnownLeak) -> str:
    if leak.bytes_per_run is None or leak.count_per_run is None:
        return leak.words
    return f"{leak.bytes_per_run:.0f} B, {leak.count_per_run:.4g} a run  {leak.words}"


def stale_entries(known: Mapping[str, Iterable[str]], found: Mapping[str, Iterable[str]]) -> list[tuple[str, str]]:
    """Return the known leaks, as test and fingerprint, that the tests in *found* do not have any more."""
    return [
        (test, fingerprint)
        for test, leaks in sorted(known.items())
        if test in found
        for fingerprint in sorted(leaks)
        if fingerprint not in set(found[test])
    ]
