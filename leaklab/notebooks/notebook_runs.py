"""Execute a notebook headless and collect the checks that it makes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import nbformat

from leaklab.errors import LeaklabError, ReportError
from leaklab.model.collection import Collection
from leaklab.notebooks.headless import execute
from leaklab.notebooks.journal import NotebookReport, load_report, redacted_collection
from leaklab.render.wording import shorten

_FAILURE_LIMIT = 300
# Run last, also after a cell that failed. It needs neither a variable nor a magic of the notebook's.
_HAND_OVER = "__import__('leaklab.magics.leakreport', fromlist=['hand_over']).hand_over({path!r})"


@dataclass(frozen=True, slots=True)
class NotebookRun:
    """What became of a notebook.

    Attributes:
        report: Its checks; those made until then if it failed.
        failure: Why it ended early; empty if it did not.
    """

    report: NotebookReport
    failure: str


def run_notebook(file: Path, *, max_seconds: float | None = None, redact: bool = False) -> NotebookRun:
    """Execute the notebook in *file*, which stays as it is, and return the checks that it made.

    The cells run in the notebook's own folder, with the interpreter that runs this function.

    Args:
        file: The notebook.
        max_seconds: Limit for the whole notebook; None for none.
        redact: Whether to blank what the checks tell of the notebook's data.

    Raises:
        LeaklabError: if there is no such notebook, it cannot be read, or its kernel could not be asked for its checks.
    """
    notebook = _read(file)
    with tempfile.TemporaryDirectory(prefix="leaklab-run-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        record, failure = folder / "checks.json", ""
        try:
            execute(
                notebook,
                folder,
                max_seconds=max_seconds,
                working_folder=file.resolve().parent,
                last=_HAND_OVER.format(path=str(record)),
            )
        except LeaklabError as error:
            failure = shorten(str(error), _FAILURE_LIMIT)
        collection = _collected(record, failure)
    collection = replace(collection, title=file.name, failure=failure)
    return NotebookRun(NotebookReport(redacted_collection(collection) if redact else collection), failure)


def _read(file: Path) -> nbformat.NotebookNode:
    read: Callable[..., nbformat.NotebookNode] = nbformat.read
    try:
        return read(file, as_version=4)
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror}; give the path of a notebook"
        raise LeaklabError(msg) from error
    except Exception as error:  # nbformat raises whatever its JSON reader and its validator raise
        msg = f"{file} is no notebook that can be read: {shorten(str(error), _FAILURE_LIMIT)}"
        raise LeaklabError(msg) from error


def _collected(record: Path, failure: str) -> Collection:
    try:
        report = load_report(record)
    except ReportError as error:
        # The kernel is gone, or stuck in code that no interrupt ends: nothing was handed over.
        msg = failure or f"the notebook's kernel did not hand over its checks: {error}"
        raise LeaklabError(msg) from error
    if not isinstance(report, NotebookReport):
        msg = f"{record} holds one check instead of the notebook's"
        raise LeaklabError(msg)
    return report.collection
