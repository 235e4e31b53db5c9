"""The errors leaklab raises, one tree.

::

    LeaklabError
    ├── LeakFound            --fail-on-leak: the check says leak
    ├── CheckRunningError    another check is under way in this process
    ├── RankError            ranks that check together cannot, or not any more
    ├── NotEnoughMemoryError the process gets no memory for what was asked
    ├── ReportError          a saved report cannot be read or written
    ├── SnapshotError        a memory snapshot cannot be read, written or taken
    ├── QueryError           a condition on objects cannot be understood
    ├── ChangeError          what somebody wrote to be tried is no change of the program
    ├── MetricsError         figures of a loop cannot be served or pushed
    └── MissingExtraError    an optional package is needed; the message names the extra
"""

from __future__ import annotations

import importlib.util
from typing import Any

from leaklab.text import printable

NO_MEMORY_TO_LOOK = (
    "there is not enough memory to look at all objects: let go of something large and ask again (about 100 bytes an "
    "object)"
)

ENDS = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit", "CancelledError", "RankError"})
"""Names of what ends a check: after one of these no code of the user's runs again."""


class LeaklabError(Exception):
    """Root of everything leaklab raises on purpose."""

    def __str__(self) -> str:
        """Return the message; what a file or a name in it could send to a terminal is an escape."""
        return printable(super().__str__())


def _in_one_line(error: LeaklabError) -> list[str]:
    """Show *error* in one line in IPython: what it says is the news, not where in leaklab it was raised."""
    return [f"{type(error).__name__}: {error}"]


class CheckRunningError(LeaklabError):
    """A check was started while another one runs in the same process; the message says where that one is."""

    _render_traceback_ = _in_one_line


class LeakFound(LeaklabError):  # noqa: N818 - an outcome, not a malfunction; the name is what a CI log should show
    """A check that was told to fail on a leak found one.

    Attributes:
        leaklab_report: The `LeakReport` of that check.
    """

    leaklab_report: Any = None
    _render_traceback_ = _in_one_line


class RankError(LeaklabError):
    """Ranks that were to check together cannot, or not any more; the message says which rank it is, and why.

    Attributes:
        leaklab_report: What this rank had found until then, a `LeakReport`; None if nothing had been run.
    """

    leaklab_report: Any = None
    _render_traceback_ = _in_one_line


class NotEnoughMemoryError(LeaklabError, MemoryError):
    """The process gets no memory for what was asked; the message says for what, and what to do."""

    _render_traceback_ = _in_one_line


class ReportError(LeaklabError):
    """A report file cannot be read or written; the message says what to do."""


class MissingExtraError(LeaklabError, ImportError):
    """A feature needs a package that is not installed; the message names the extra that brings it."""


def require(module: str, feature: str, package: str, wanted: str) -> None:
    """Raise `MissingExtraError` unless *module* is there, for *feature*, of *package*: ``pip install`` *wanted*."""
    try:
        is_there = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        is_there = False
    if not is_there:
        msg = f"{feature} needs {package}, which is not installed: pip install {wanted}"
        raise MissingExtraError(msg)


class MetricsError(LeaklabError):
    """Figures of a loop cannot be served or pushed; the message says what to do."""


class QueryError(LeaklabError, ValueError):
    """A condition on objects cannot be understood; the message says where, and what is known instead."""

    _render_traceback_ = _in_one_line


class ChangeError(LeaklabError, ValueError):
    """What somebody wrote to be tried is no change of the program that was checked; the message says why not."""

    _render_traceback_ = _in_one_line


class SnapshotError(LeaklabError):
    """A memory snapshot cannot be read, written or taken; the message says what to do."""
