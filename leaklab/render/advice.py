"""What to change about a leak: the line, the change that was tried, its proof; else the advice for its cause."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import dedent
from typing import NamedTuple

from leaklab.model import Leak
from leaklab.model.cure import Change, Cure, CureOutcome

_TRIED_WORDS = {
    CureOutcome.LESSENED: "Tried, it only lessens the leak",
    CureOutcome.NO_EFFECT: "Tried, no cure",
    CureOutcome.HARMFUL: "Tried, does harm",
    CureOutcome.NOT_TRIED: "Not tried",
}
_PLACE = re.compile(r"(, line |:)\d+\Z")
MARK = "  # "
"""Behind the source of a line stands what the line does."""


class DiffLine(NamedTuple):
    """One line of a change.

    Attributes:
        sign: ``-`` for a line that goes, ``+`` for one that comes, ``@`` for the place of those that follow.
        text: The line, or the place.
        marked: Where the text differs from its counterpart: the first character and the one behind the last; the two
            are equal where there is nothing to mark.
    """

    sign: str
    text: str
    marked: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class ShownAdvice:
    """What to change about one leak.

    Attributes:
        line: The line that does it, with its place; the place alone where the change shows the line. May be empty.
        words: What to do, in one sentence; empty where no change was tried that cures the leak.
        diff: That change, line by line.
        proof: What came of trying it.
        text: Where there is no such change: sentences, and code that is indented.
    """

    line: str
    words: str
    diff: tuple[DiffLine, ...]
    proof: str
    text: str


def advice_of(leak: Leak) -> ShownAdvice:
    """Return what to change. Only a change that was tried and cured the leak is shown as code with its proof.

    Where there is none, the advice for the cause stands, and behind it in words what came of those that were tried.
    """
    cured = cure_of(leak)
    line = _line(leak, () if cured is None else cured.changes)
    if cured is not None:
        diff = tuple(_diff(cured.changes, line))
        return ShownAdvice(line, cured.words, diff, cured.evidence.rstrip("."), "")
    if not leak.cures:
        return ShownAdvice(line, "", (), "", leak.advice)
    told = [f"{_TRIED_WORDS[cure.outcome]}: {cure.words.rstrip('.')} ({cure.evidence})." for cure in leak.cures]
    advised = (words for words in leak.advice.splitlines() if not words.startswith(" "))
    return ShownAdvice(line, "", (), "", "\n".join((*advised, *told)))


def cure_of(leak: Leak) -> Cure | None:
    """Return the best change that was tried and cured *leak*, if there is one."""
    return next((cure for cure in leak.cures if cure.outcome is CureOutcome.CURED), None)


def cell_to_copy(leak: Leak) -> str:
    """Return the whole cell with the change that cured *leak*, exactly; empty where there is none, or it could not be.

    A character that neither prints nor is a tab would have to be shown as something else.
    """
    cure = cure_of(leak)
    text = "" if cure is None else cure.changed_cell
    return text if text.replace("\n", "").replace("\t", "").isprintable() else ""


def _line(leak: Leak, changes: Sequence[Change]) -> str:
    if not leak.sites:
        return ""
    place, _, source = leak.sites[0].partition(": ")
    shown = [change.before.strip() for change in changes]
    return place if source and source.partition(MARK)[0].strip() in shown else leak.sites[0]


def _diff(changes: Sequence[Change], line: str) -> Iterator[DiffLine]:
    for change in changes:
        if len(changes) > 1 or not (line == change.where or line.startswith((f"{change.where} ", f"{change.where}:"))):
            yield DiffLine("@", change.where)
        n_before = len(change.before.splitlines())
        lines = dedent("\n".join((*change.before.splitlines(), *change.after.splitlines()))).splitlines()
        before, after = lines[:n_before], lines[n_before:]
        marks = _marks(before[0], after[0]) if len(before) == len(after) == 1 else ((0, 0), (0, 0))
        yield from (DiffLine("-", text, marks[0]) for text in before)
        yield from (DiffLine("+", text, marks[1]) for text in after)


def _marks(before: str, after: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return where two versions of a line differ: all but what they have in common at both ends."""
    shorter = min(len(before), len(after))
    first = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    n_tail = next((i for i in range(shorter - first) if before[-1 - i] != after[-1 - i]), shorter - first)
    return (first, len(before) - n_tail), (first, len(after) - n_tail)


def patch_text(leak: Leak) -> str:
    """Return the change that cured *leak* as a unified diff without context; empty where no change did."""
    cured = cure_of(leak)
    by_file: dict[str, list[Change]] = {}
    for change in () if cured is None else cured.changes:
        by_file.setdefault(_PLACE.sub("", change.where), []).append(change)
    return "".join(f"{line}\n" for name, changes in by_file.items() for line in _hunks(name, changes))


def _hunks(name: str, changes: list[Change]) -> Iterator[str]:
    yield f"--- {name}"
    yield f"+++ {name}"
    shift = 0
    for change in sorted(changes, key=lambda change: change.line):
        before, after = change.before.splitlines(), change.after.splitlines()
        new = change.line + shift - (not after)
        yield f"@@ -{change.line},{len(before)} +{new},{len(after)} @@"
        yield from (f"-{line}" for line in before)
        yield from (f"+{line}" for line in after)
        shift += len(after) - len(before)
