"""Put the leaks of a check into groups, one for each line of code that does it, and choose which are told in full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leaklab.model import Check, Leak
from leaklab.model.sentences import growth_sentence, growth_words, more_words, place_words
from leaklab.render.advice import MARK, cure_of
from leaklab.render.words import CAUSES, is_leak
from leaklab.text import format_bytes, unit_words


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
    """

    line: str
    rows: tuple[LeakRow, ...]
    total: str


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
    return [LineGroup(line, tuple(map(_row, *zip(*found, strict=True))), _total(found)) for line, found in largest]


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
