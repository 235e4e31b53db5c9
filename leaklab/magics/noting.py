"""Keep what the magics report for ``%leakreport``."""

from __future__ import annotations

from typing import Any

from leaklab.notebooks.journal import Journal

HOLDER = "LeakReportMagics"
"""Name of the registered magics that hold the journal: it lives and dies with the loaded extension."""


def journal_of(shell: Any) -> Journal | None:
    """Return the journal of the notebook; None if leaklab's magics are not loaded there."""
    journal = getattr(shell.magics_manager.registry.get(HOLDER), "journal", None)
    return journal if isinstance(journal, Journal) else None


def note(shell: Any, report: object) -> None:
    """Keep *report*, which the cell that is running has made."""
    journal = None if shell is None else journal_of(shell)
    if journal is not None:
        # Not `execution_count`: IPython 9 has it raised already while the cell runs, older ones raise it afterwards.
        journal.note(report, f"In [{len(shell.history_manager.input_hist_parsed) - 1}]")
