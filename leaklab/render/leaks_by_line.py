"""Put the leaks of a check into groups, one for each line of code that does it, and choose which are told in full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leaklab.model import Check, Leak
from leaklab.model.merged_paths import MergedPaths, TreeLine, places_tree
from leaklab.model.sentences import growth_sentence, growth_words, more_words, place_words
from leaklab.render.advice import MARK, cure_of
from leaklab.render.path_tree import tree_lines
from leaklab.render.words import CAUSES, is_leak
from leaklab.text import format_bytes, unit_words

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
    if is_leak(check) and check.leaks:
        return f"{growth_sentence(check.leaks[0])}{more_words(check.leaks, 'leak')}"
    return check.verdict.reason


def line_groups(leaks: Sequence[Leak]) -> list[LineGroup]:
    """Return *leaks* by the line that keeps or makes them, the line that leaks most first."""
    by_line: dict[str, list[tuple[int, Leak]]] = {}
    for number, leak in enumerate(leaks, 1):
        by_line.setdefault(_line(leak), []).append((number, leak))
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


def _line(leak: Leak) -> str:
    """Return the line without what it does: the same line may keep one leak and make another."""
    return leak.sites[0].partition(MARK)[0] if leak.sites else ""


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


def told_in_full(leaks: Sequence[Leak], n_most: int) -> list[int]:
    """Return the positions of at most *n_most* leaks that are worth telling in full.

    Of those that one line leaves for one cause only the first is: the others' evidence is the same.
    """
    seen: set[tuple[str, ...]] = set()
    chosen = []
    for position, leak in enumerate(leaks):
        key = (_line(leak), leak.cause) if leak.sites else (leak.fingerprint, leak.holder)
        if key not in seen:
            seen.add(key)
            chosen.append(position)
    return chosen[:n_most]
