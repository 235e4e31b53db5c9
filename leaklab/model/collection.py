"""The record of a notebook's checks: what an exported report is made from, and what is read back from it."""

from __future__ import annotations

from dataclasses import dataclass

from leaklab.model.check import Check

COLLECTION_SCHEMA = 1
"""Raised whenever the record of a collection changes so that older files cannot be read any more."""


@dataclass(frozen=True, slots=True)
class NotedCheck:
    """One check of a notebook.

    Attributes:
        check: Its record.
        place: Where it was made or where it is kept, in words (``In [4]``, ``variable report``); may be empty.
    """

    check: Check
    place: str = ""


@dataclass(frozen=True, slots=True)
class NotedView:
    """Another report that a magic has shown, as it was shown.

    Attributes:
        title: One line that names it.
        place: As in `NotedCheck`.
        text: The report as text.
        markup: The report as HTML that leaklab made and escaped; empty where there is none.
    """

    title: str
    place: str
    text: str
    markup: str = ""


@dataclass(frozen=True, slots=True)
class Collection:
    """All checks of one notebook, in the order in which they were made.

    Attributes:
        title: What the report is called, usually the name of the notebook; may be empty.
        checks: The checks.
        views: The other reports; they are shown, and not read back.
        notes: What the reader should know about the collection, one sentence each.
        failure: Empty, or why the notebook ended early.
        redacted: Whether summaries, keys and strings of the user's data were blanked.
    """

    title: str
    checks: tuple[NotedCheck, ...]
    views: tuple[NotedView, ...] = ()
    notes: tuple[str, ...] = ()
    failure: str = ""
    redacted: bool = False
    schema: int = COLLECTION_SCHEMA
