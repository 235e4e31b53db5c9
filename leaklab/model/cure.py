"""The records of a cure: what would be changed where, and what came of trying that."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class CureOutcome(str, enum.Enum):
    """What a trial can say of a change."""

    CURED = "cured"
    LESSENED = "lessened"
    NO_EFFECT = "no effect"
    HARMFUL = "harmful"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Change:
    """One place of the code that would be changed.

    Attributes:
        where: The place as a reader knows it: ``this cell, line 3``, ``In [2], line 7``, ``trainer.py:81``.
        before: The source line or lines exactly as they stand, indentation included.
        after: What stands there instead, with the same indentation; several lines allowed; empty if the line goes.
        filename: The file name of the code object, by which the place is found again; empty in exported records.
        line: The first line of *before* in that file, counted from 1.
    """

    where: str
    before: str
    after: str
    filename: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Cure:
    """A change that would end a leak, and what came of trying it.

    Attributes:
        words: What to do, one sentence in the user's own names.
        changes: What was changed for the trial; empty where the cure is said in words only.
        outcome: What the trial said.
        evidence: The figures of the trial, or the reason why there was none; one clause.
        changed_cell: The whole cell as it would be; empty unless the change cured and lies in one cell of a notebook.
    """

    words: str
    changes: tuple[Change, ...]
    outcome: CureOutcome
    evidence: str
    changed_cell: str = ""

    def __str__(self) -> str:
        """Return outcome and evidence in one line."""
        return f"{self.outcome.value}: {self.evidence}"
