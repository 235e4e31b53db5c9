"""The file of leaks that are known: they do not fail a suite, and are told when they are gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from leaklab.errors import ReportError
from leaklab.files import write_bytes

_HEAD = "# Leaks that are known: a test, then the fingerprint of each of its leaks with what it is.\n"


def read_baseline(path: Path) -> dict[str, dict[str, str]]:
    """Return what *path* says: for each test the known fingerprints, with words.

    Raises:
        ReportError: if the file cannot be read, or a line of it cannot be understood.
    """
    known: dict[str, dict[str, str]] = {}
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
        known[test][fingerprint] = words
    return known


def write_baseline(path: Path, known: Mapping[str, Mapping[str, str]]) -> None:
    """Write the tests in the order of their names, one block each."""
    blocks = [
        "\n".join([test, *(f"    {print_}  {words}" for print_, words in sorted(found.items()))])
        for test, found in sorted(known.items())
        if found
    ]
    write_bytes(path, (_HEAD + "".join(f"\n{block}\n" for block in blocks)).encode("utf-8"))


def stale_entries(known: Mapping[str, Mapping[str, str]], found: Mapping[str, Iterable[str]]) -> list[tuple[str, str]]:
    """Return the known leaks, as test and fingerprint, that the tests in *found* do not have any more."""
    return [
        (test, fingerprint)
        for test, leaks in sorted(known.items())
        if test in found
        for fingerprint in sorted(leaks)
        if fingerprint not in set(found[test])
    ]
