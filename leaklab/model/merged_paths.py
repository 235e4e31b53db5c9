"""Many paths told as one tree: what they share once, and on each edge how many go through it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from leaklab.model.check import Leak, Way
from leaklab.model.paths import Status

_MANY_NUMBERED = 3
"""More references than this in one place that differ in a number only are positions."""
_MANY_NAMES = 8
"""More keys or attributes than this in one place are told as one: what is in them is the same to a reader."""
_MOST_REFERENCES = 24
"""Of a longer path the middle is left out: it goes along a chain."""
_NUMBER = re.compile(r"\d+")
_ANY_KEY, _ANY_ATTRIBUTE = "[i]", ".*"


@dataclass(frozen=True, slots=True)
class MergedPaths:
    """Paths from one object on, merged.

    Attributes:
        reference: How the object above refers to this one; several references in a row where nothing branches.
        count: So many of what is counted are reached through here.
        kind: Type of what ends here; empty where all go on.
        children: Where they go on, most first.
    """

    reference: str
    count: int
    kind: str = ""
    children: tuple[MergedPaths, ...] = ()


class TreeLine(NamedTuple):
    """One edge of a `MergedPaths` in words.

    Attributes:
        depth: How many edges are above it.
        words: How many go through it, and where it leads; the reference stands between backticks.
    """

    depth: int
    words: str

    @property
    def indented(self) -> str:
        """The words, as far to the right as they are deep."""
        return "  " * self.depth + self.words


def merge_ways(ways: Sequence[Way], reference: str = "") -> MergedPaths:
    """Return *ways* as a tree below what *reference* names, its branches sorted by how many go through them."""
    ends = [way for way in ways if not way.references]
    kind = " or ".join(dict.fromkeys(way.kind for way in ends if way.kind))
    count = sum(way.count for way in ways)
    below: dict[str, list[Way]] = {}
    for way in ways:
        if way.references:
            first, *others = way.references
            below.setdefault(first, []).append(Way(tuple(others), way.kind, way.count))
    children = sorted((merge_ways(few, first) for first, few in below.items()), key=lambda child: -child.count)
    if reference and len(children) == 1 and not ends:
        (only,) = children
        return MergedPaths(joined(reference, only.reference), count, only.kind, only.children)
    return MergedPaths(reference, count, kind, tuple(children))


def joined(*references: str) -> str:
    """Return *references* in a row, as Python writes them where it can."""
    text = ""
    for reference in references:
        is_python = reference.startswith((".", "["))
        text += reference if is_python or not text else f" -> {reference}"
    return text


def places_tree(leaks: Sequence[Leak]) -> MergedPaths:
    """Return the paths to the holders of *leaks* as one tree; counted are the places that grow."""
    paths = without_positions([_to_holder(leak) for leak in leaks])
    counts = Counter[tuple[str, ...]]()
    for leak, path in zip(leaks, paths, strict=True):
        counts[path] += leak.n_places
    return merge_ways([Way(path, "", count) for path, count in counts.most_common()])


def _to_holder(leak: Leak) -> tuple[str, ...]:
    """Return the references to the holder of *leak*; of many places alike without what tells them apart."""
    steps = leak.path.steps
    n_held = next((place for place, step in enumerate(steps) if step.status is Status.LEAKED), len(steps))
    references = tuple(step.reference for step in steps[: max(n_held, 1)]) or (leak.holder or leak.what,)
    if len(references) > _MOST_REFERENCES:
        references = (*references[: _MOST_REFERENCES - 2], "...", references[-1])
    if leak.n_places == 1:
        return references
    return (references[0], *(_numbered(text) if text.startswith("[") else text for text in references[1:]))


def objects_tree(leak: Leak) -> MergedPaths:
    """Return the references by which the holder of *leak* keeps its objects as one tree; counted are the objects."""
    return merge_ways(leak.ways)


def without_positions(paths: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return *paths*, many positions, keys or attributes below the same references told as one."""
    told: list[tuple[str, ...]] = [()] * len(paths)
    pending = [(list(range(len(paths))), 0)]
    while pending:
        alike, depth = pending.pop()
        going_on = [place for place in alike if len(paths[place]) > depth]
        merged = _merged(dict.fromkeys(paths[place][depth] for place in going_on))
        below: dict[str, list[int]] = {}
        for place in going_on:
            text = merged[paths[place][depth]]
            told[place] = (*told[place], text)
            below.setdefault(text, []).append(place)
        pending += [(places, depth + 1) for places in below.values()]
    return told


def _merged(texts: dict[str, None]) -> dict[str, str]:
    """Return what each of *texts*, references of one place, is told as."""
    n_numbered = Counter(map(_numbered, texts))
    told = {text: number if n_numbered[number := _numbered(text)] > _MANY_NUMBERED else text for text in texts}
    for first, any_of_them in (("[", _ANY_KEY), (".", _ANY_ATTRIBUTE)):
        if len({words for words in told.values() if words.startswith(first)}) > _MANY_NAMES:
            told = {text: any_of_them if words.startswith(first) else words for text, words in told.items()}
    return told


def _numbered(text: str) -> str:
    """Return *text* with its numbers as ``#``; a position is ``[i]``."""
    return _NUMBER.sub("#", text).replace("[#]", _ANY_KEY)
