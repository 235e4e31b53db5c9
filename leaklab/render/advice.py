"""Say what to change about a leak: the line, the change that was tried, its proof; else the advice for its cause.

Many leaks are put into groups, one for each line of code that does it, and some are chosen to be told in full.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from textwrap import dedent
from typing import NamedTuple

from leaklab.model import Check, Leak
from leaklab.model.cure import Change, Cure, CureOutcome
from leaklab.model.sentences import (
    SITE_MARK,
    MergedPaths,
    TreeLine,
    growth_sentence,
    growth_words,
    place_words,
    places_tree,
    site_words,
)
from leaklab.render.words import CAUSES, is_leak, tree_lines
from leaklab.text import format_bytes, unit_words

_TRIED_WORDS = {
    CureOutcome.LESSENED: "makes the leak smaller but does not end it",
    CureOutcome.NO_EFFECT: "no cure",
    CureOutcome.HARMFUL: "does harm",
}
_BUT = ", but "
_PLACE = re.compile(r"(, line |:)\d+\Z")
_FIGURES = re.compile(
    r"(?P<runs>[\d,]+ runs?) with this change: (?P<now>.+?) per run \(was (?P<was>.+?)\)(?P<more>.*)", re.DOTALL
)
_NAMES_THE_LINE = re.compile(r" The line that [a-z ]+: [^\n]*?\.(?=\s|$)")
"""A sentence of the advice of a cause that says nothing beside the line itself."""


class DiffLine(NamedTuple):
    """One line of a change.

    Attributes:
        sign: ``-`` for a line that goes, ``+`` for one that comes, a blank for one that stays, ``@`` for the
            place of those that follow.
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
        proof: What came of trying it: ``5.23 KiB -> 0 B every run; same gradients; 8 runs``.
        text: Where there is no such change: sentences, and code that is indented.
        tried: The changes that were tried and are no cure, a sentence each: they belong to the evidence.
    """

    line: str
    words: str
    diff: tuple[DiffLine, ...]
    proof: str
    text: str
    tried: tuple[str, ...] = ()


def advice_of(leak: Leak) -> ShownAdvice:
    """Return what to change. Only a change that was tried and cured the leak is shown as code with its proof.

    Where there is none, the advice for the cause stands, and behind it the best that trying has brought.
    """
    cured = cure_of(leak)
    line = _line(leak, () if cured is None else cured.changes)
    if cured is not None:
        diff = tuple(_diff(cured.changes, line))
        return ShownAdvice(line, cured.words, diff, proof_words(cured.evidence), "")
    advice = _NAMES_THE_LINE.sub("", leak.advice) if line else leak.advice
    if not leak.cures:
        return ShownAdvice(line, "", (), "", advice)
    advised = (words for words in advice.splitlines() if not words.startswith(" "))
    tried = tuple(
        f"{cure.words.rstrip('.')}: {'has a cost' if _cost(cure) else _TRIED_WORDS[cure.outcome]} ({cure.evidence})"
        for cure in leak.cures
        if cure.outcome in _TRIED_WORDS
    )
    return ShownAdvice(line, "", (), "", "\n".join((*advised, *_best_trial(leak.cures))), tried)


def proof_words(evidence: str) -> str:
    """Return the figures of a trial that cured, before and after first."""
    found = _FIGURES.fullmatch(evidence.rstrip("."))
    if found is None:
        return evidence.rstrip(".")
    return f"{found['was']} -> {found['now']} every run{found['more']}; {found['runs']}"


def _best_trial(cures: Sequence[Cure]) -> Iterator[str]:
    """Yield the change that helps most, else why none was tried."""
    outcomes = [cure.outcome for cure in cures]
    if CureOutcome.LESSENED in outcomes:
        best = cures[outcomes.index(CureOutcome.LESSENED)]
        yield f"Tried: {best.words.rstrip('.')}. {_cost(best) or f'That {_TRIED_WORDS[best.outcome]}'}."
    elif set(outcomes) == {CureOutcome.NOT_TRIED}:
        known = "A change is known" if len(cures) == 1 else f"{len(cures)} changes are known"
        yield f"{known}, not tried: {cures[0].evidence.rstrip('.')}."


def _cost(cure: Cure) -> str:
    """Return what a change brings, and what it costs; empty where it costs nothing."""
    found = _FIGURES.fullmatch(cure.evidence.rstrip("."))
    if found is None or not found["more"].startswith(_BUT) or cure.outcome is not CureOutcome.LESSENED:
        return ""
    return f"With that, a run leaves {found['now']} (was {found['was']}){found['more']}"


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
    return place if source and source.partition(SITE_MARK)[0].strip() in shown else site_words(leak.sites[0])


def _diff(changes: Sequence[Change], line: str) -> Iterator[DiffLine]:
    for change in changes:
        if len(changes) > 1 or not (line == change.where or line.startswith((f"{change.where} ", f"{change.where}:"))):
            yield DiffLine("@", change.where)
        n_before = len(change.before.splitlines())
        lines = dedent("\n".join((*change.before.splitlines(), *change.after.splitlines()))).splitlines()
        before, after = lines[:n_before], lines[n_before:]
        marks = _marks(before[0], after[0]) if len(before) == len(after) == 1 else ((0, 0), (0, 0))
        for tag, first, end, new_first, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            if tag == "equal":
                yield from (DiffLine(" ", text) for text in before[first:end])
            else:
                yield from (DiffLine("-", text, marks[0]) for text in before[first:end])
                yield from (DiffLine("+", text, marks[1]) for text in after[new_first:new_end])


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


N_ROWS, _N_BELOW_A_TREE = 8, 3
"""Leaks of one line that are shown at once; of more with the same story only a few."""


@dataclass(frozen=True, slots=True)
class LeakRow:
    """One leak as a row of a table.

    Attributes:
        number: Of the leak, from 1.
        place: What keeps it, as an expression or in words.
        rate: What each run adds.
        change: What to do, one sentence, where a change was tried that cures it; else what the cause is.
        is_tried: Whether *change* is such a change.
    """

    number: int
    place: str
    rate: str
    change: str
    is_tried: bool


@dataclass(frozen=True, slots=True)
class LineGroup:
    """The leaks of one line.

    Attributes:
        line: The line with its place; empty where it is not known.
        rows: Its leaks, largest first.
        total: What they come to, in words; empty for a single one.
        tree: The paths to their places, merged; the counts are of places.
        causes: Slugs of their causes, each once.
    """

    line: str
    rows: tuple[LeakRow, ...]
    total: str
    tree: MergedPaths
    causes: tuple[str, ...]

    @property
    def place_lines(self) -> list[TreeLine]:
        """The merged paths in words, where they say in a few lines what the table of the leaks says in many."""
        is_one_story = bool(self.line) and len(self.causes) == 1
        lines = tree_lines(self.tree, "places") if is_one_story else []
        return lines if len(lines) <= len(self.rows) / 2 else []

    @property
    def n_shown(self) -> int:
        """How many of the rows are shown at once: few of many where their merged paths stand above them."""
        return _N_BELOW_A_TREE if self.place_lines and len(self.rows) > N_ROWS else N_ROWS


def headline(check: Check) -> str:
    """Return the sentence that tells what a check found; expressions stand between backticks."""
    leaks = check.leaks
    if not is_leak(check) or not leaks:
        return check.verdict.reason
    if len(leaks) == 1:
        return growth_sentence(leaks[0])
    n_bytes = check.verdict.bytes_per_run
    left = f" leave {format_bytes(n_bytes)} every run" if n_bytes else ""
    return f"{len(leaks):,} leaks{left}, the largest in {place_words(leaks[0])}"


def line_groups(leaks: Sequence[Leak]) -> list[LineGroup]:
    """Return *leaks* by the line that keeps or makes them, the line that leaks most first."""
    by_line: dict[str, list[tuple[int, Leak]]] = {}
    for number, leak in enumerate(leaks, 1):
        by_line.setdefault(_line_of_group(leak), []).append((number, leak))
    largest = sorted(by_line.items(), key=lambda item: -sum(leak.bytes_per_run for _, leak in item[1]))
    return [
        LineGroup(
            line,
            tuple(_row(number, leak) for number, leak in found),
            _total(found),
            places_tree([leak for _, leak in found]),
            tuple(dict.fromkeys(leak.cause for _, leak in found)),
        )
        for line, found in largest
    ]


def _line_of_group(leak: Leak) -> str:
    """Return the line without what it does: the same line may keep one leak and make another."""
    return leak.sites[0].partition(SITE_MARK)[0] if leak.sites else ""


def _row(number: int, leak: Leak) -> LeakRow:
    cure = cure_of(leak)
    place = place_words(leak)
    if leak.n_places > 1:
        place = f"{leak.n_places:,} places like {place}"
    change = CAUSES.get(leak.cause, leak.cause) if cure is None else cure.words
    return LeakRow(number, place, growth_words(leak), change, cure is not None)


def _total(found: Sequence[tuple[int, Leak]]) -> str:
    if len(found) == 1:
        return ""
    n_bytes = sum(leak.bytes_per_run for _, leak in found)
    return f"{unit_words(len(found), 'places')}, {format_bytes(n_bytes)} every run"


def shown_in_full(leaks: Sequence[Leak], n_most: int) -> list[int]:
    """Return the positions of at most *n_most* leaks that are worth telling in full.

    Of those that one line leaves for one cause only the first is: the others' evidence is the same.
    """
    seen: set[tuple[str, ...]] = set()
    chosen = []
    for position, leak in enumerate(leaks):
        key = (_line_of_group(leak), leak.cause) if leak.sites else (leak.fingerprint, leak.holder)
        if key not in seen:
            seen.add(key)
            chosen.append(position)
    return chosen[:n_most]
