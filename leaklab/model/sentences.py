"""Say in one sentence what a leak is: the place, how much of what it gets, how often.

Many paths are told as one tree: what they share once, and on each edge how many go through it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from leaklab.model.check import CHILDREN, DESCRIPTORS, GRAPH_UNIT, Check, Leak, Way
from leaklab.model.paths import Status
from leaklab.text import format_bytes, unit_words, visible

_NOUNS = {
    "torch.Tensor": "tensors", "torch.nn.parameter.Parameter": "parameters", "numpy.ndarray": "arrays",
    "function": "functions", "method": "methods", "builtin_function_or_method": "functions", "cell": "cells",
    "dict": "dicts", "list": "lists", "tuple": "tuples", "set": "sets", "frozenset": "sets", "str": "strings",
    "int": "numbers", "float": "numbers", "complex": "numbers", "traceback": "tracebacks", "frame": "frames",
    "generator": "generators", "coroutine": "coroutines", "module": "modules", "type": "classes",
    "weakref": "weak references", "collections.OrderedDict": "dicts", "collections.defaultdict": "dicts",
    "collections.deque": "deques", "pandas.core.internals.blocks.NumpyBlock": "column blocks",
}  # fmt: skip
"""How people call many of a kind; of other kinds they say ``Batch objects``."""
_MIXED = " other kind"
_OBJECTS, _BYTES, _CHARACTERS = "objects", "bytes", "characters"
_LONGEST_EXPRESSION = 1_000  # characters: longer ones are not parsed
_NAME_LIMIT = 40
_OFTEN, _MANY_STEPS = 0.5, 1_000
_THREAD = "thread "
"""A path that begins at what the functions of a running thread have begins at this, and its name."""
_FEW_THREADS = 2
"""Of a single one it is not known whether the runs have started it."""


def growth_sentence(leak: Leak, turn: str = "run") -> str:
    """Return ``"`trainer.losses` grows by 24 tensors (2.03 MiB) every run"``; expressions stand between backticks.

    Args:
        leak: What grows.
        turn: What the rates of *leak* are given for; ``step`` in a loop.
    """
    period = _period(leak.count_per_run)
    when = f"every {turn}" if period == 1 else f"every {_ordinal(period)} {turn}"
    if turn == "step" and leak.count_per_run < _OFTEN:  # a run of so many steps is rarely one of its periods
        period, when = _MANY_STEPS, f"every {_MANY_STEPS:,} steps"
    amount = growth_words(leak, period)
    if n_threads := _threads_per_turn(leak):
        threads = growth_words(replace(leak, unit="threads", count_per_run=n_threads), period)
        return f"{when} leaves {threads} running, such as {leak.path.root.removeprefix(_THREAD)}"
    if leak.n_places > 1:
        return f"{leak.n_places:,} places like {quoted(leak.holder)} grow by {amount} {when}"
    if is_expression(leak.holder):
        place = f"the autograd graph of {quoted(leak.holder)}" if leak.unit == GRAPH_UNIT else quoted(leak.holder)
        return f"{place} grows by {amount} {when}"
    if leak.unit in (DESCRIPTORS, CHILDREN):
        return f"{when} leaves {amount} {'open' if leak.unit == DESCRIPTORS else 'behind'}"
    held = f", held by {leak.holder}" if leak.holder else ""
    if leak.unit == _OBJECTS and leak.count_per_run > 0:
        return f"{when} leaves {amount} behind{held}"
    return f"{leak.what} grows by {amount} {when}{held}"


def _threads_per_turn(leak: Leak) -> float:
    """Return how many threads that do not end each run starts; 0 where a few that serve all runs keep more and more."""
    if leak.unit != _OBJECTS or not leak.path.root.startswith(_THREAD):
        return 0.0
    if leak.what == "threading.Thread":
        return leak.count_per_run
    if not leak.kept or leak.n_places < max(sum(map(bool, leak.kept)), _FEW_THREADS):
        return 0.0
    # What a thread makes counts for a run too early or too late, as the thread comes to it: threads are counted.
    rate = leak.n_places / len(leak.kept)
    return round(rate) if rate > _OFTEN else 1 / round(1 / rate)


def log_sentence(log: Leak) -> str:
    """Return ``"`losses` is a log: 3 numbers (96 B) every run"``."""
    entries = {"tuple": "records", "str": "messages"}.get(log.what.rpartition(": ")[2], "numbers")
    noun = log.unit if log.unit in (_BYTES, _CHARACTERS) else entries
    period = _period(log.count_per_run)
    amount = growth_words(replace(log, unit=noun), period)
    when = "every run" if period == 1 else f"every {_ordinal(period)} run"
    if log.n_places > 1:
        return f"{log.n_places:,} places like {quoted(log.holder)} are logs: {amount} {when}"
    return f"{place_words(log)} is a log: {amount} {when}"


def place_words(leak: Leak) -> str:
    """Return the place that grows: an expression between backticks, else what grows and what holds it, in words."""
    if is_expression(leak.holder):
        return quoted(leak.holder)
    return f"{leak.what} (held by {leak.holder})" if leak.holder else leak.what


def growth_words(leak: Leak, n_runs: int = 1) -> str:
    """Return what *n_runs* runs add, counted as people count it: ``24 tensors (2.03 MiB)``."""
    n_bytes = leak.bytes_per_run * n_runs
    count = round(leak.count_per_run * n_runs) if n_runs > 1 else leak.count_per_run  # 0.33 is one every third run
    if leak.unit == _BYTES or count <= 0:
        return format_bytes(n_bytes or count)
    words = unit_words(count, _noun(leak))
    return f"{words} ({format_bytes(n_bytes)})" if n_bytes > 0 else words


def pile_words(piles: Sequence[tuple[str, float]]) -> str:
    """Return ``1 tensor more (and 2 more types) every run`` for types with what each run leaves of them."""
    name, count = piles[0]
    return f"{unit_words(count, _noun_of(name))} more{more_words(piles, 'type')} every run"


def more_words(found: Sequence[object], noun: str) -> str:
    """Return `` (and 2 more leaks)`` for all of *found* but the first; empty where there is no other."""
    n_more = len(found) - 1
    return f" (and {n_more:,} more {noun}{'' if n_more == 1 else 's'})" if n_more > 0 else ""


SITE_MARK = "  # "
"""Between a line of code and what it does to a leak, in a record."""
_DOES = ("keeps it", "makes it", "opens it", "starts it", "copies it", "closes the cycle")


def site_words(site: str) -> str:
    """Return a line of code with what it does to a leak, by no mark of Python: ``losses.append(loss)  <- keeps it``."""
    line, mark, does = site.rpartition(SITE_MARK)
    return f"{line}  <- {does}" if does.startswith(_DOES) and mark else site


def quoted(place: str) -> str:
    """Return *place*, shortened, between backticks where it is an expression, else as it is."""
    return f"`{shortened(place)}`" if is_expression(place) else place


def shortened(place: str) -> str:
    """Return *place* with what comes again and again, along a chain, written twice: ``span.parent ... .parent``."""
    return _AGAIN.sub(r"\1 ... \1", place)


_AGAIN = re.compile(r"(\.\w+|\[[^][]*\])\1{3,}")
"""From the fourth time on."""


def is_expression(place: str) -> bool:
    """Return whether *place* is a Python expression; some holders have only words."""
    if not place or len(place) > _LONGEST_EXPRESSION or "`" in place:
        return False
    try:
        ast.parse(place, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


def _noun(leak: Leak) -> str:
    if leak.unit != _OBJECTS:
        return leak.unit
    kind = leak.what.partition(" ")[0]
    if _MIXED in leak.what:  # the count is of all of them: where one is a tensor, all are
        return "tensors" if _NOUNS.get(kind) in ("tensors", "parameters") else _OBJECTS
    return _noun_of(kind)


def _noun_of(kind: str) -> str:
    name = kind.rpartition(".")[2]
    return _NOUNS.get(kind) or (f"{name} objects" if name.isidentifier() and len(name) <= _NAME_LIMIT else _OBJECTS)


def _period(count_per_run: float) -> int:
    """Return after how many runs one is added where a rate below one is close to that; else 1."""
    if 0 < count_per_run < 1 and abs(1 / count_per_run - round(1 / count_per_run)) < 0.05:  # noqa: PLR2004
        return round(1 / count_per_run)
    return 1


def _ordinal(number: int) -> str:
    tens = number % 100 // 10 == 1
    suffix = "th" if tens else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


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
    shown: list[tuple[str, ...]] = [()] * len(paths)
    pending = [(list(range(len(paths))), 0)]
    while pending:
        alike, depth = pending.pop()
        going_on = [place for place in alike if len(paths[place]) > depth]
        merged = _merged(dict.fromkeys(paths[place][depth] for place in going_on))
        below: dict[str, list[int]] = {}
        for place in going_on:
            text = merged[paths[place][depth]]
            shown[place] = (*shown[place], text)
            below.setdefault(text, []).append(place)
        pending += [(places, depth + 1) for places in below.values()]
    return shown


def _merged(texts: dict[str, None]) -> dict[str, str]:
    """Return what each of *texts*, references of one place, is told as."""
    n_numbered = Counter(map(_numbered, texts))
    merged = {text: number if n_numbered[number := _numbered(text)] > _MANY_NUMBERED else text for text in texts}
    for first, any_of_them in (("[", _ANY_KEY), (".", _ANY_ATTRIBUTE)):
        if len({words for words in merged.values() if words.startswith(first)}) > _MANY_NAMES:
            merged = {text: any_of_them if words.startswith(first) else words for text, words in merged.items()}
    return merged


def _numbered(text: str) -> str:
    """Return *text* with its numbers as ``#``; a position is ``[i]``."""
    return _NUMBER.sub("#", text).replace("[#]", _ANY_KEY)


RUNS, LINES, CHANGES = "runs", "lines", "changes"


@dataclass(frozen=True, slots=True)
class Progress:
    """What a check knows while it is under way; its text says that in a line or two.

    Attributes:
        stage: What is done next: ``runs``, ``lines`` (of the leaks), ``changes`` (that would end these are tried).
        n_runs: Measured runs so far.
        growing: What grows so far, the largest first; whether these are leaks may still be open.
        check: What has been found, once the verdict stands; until then None.
        seconds: No trial of a change begins after so many; 0.0 before another stage.
        piles: What piles up by its type, as ``(name of the type, count_per_run)``, before it is known what holds it.
    """

    stage: str
    n_runs: int
    growing: tuple[Leak, ...] = ()
    check: Check | None = None
    seconds: float = 0.0
    piles: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        if self.check is None:
            return visible(self._growing_words())
        sites = [site_words(leak.sites[0]) for leak in self.check.leaks[:1] if leak.sites]
        return "\n".join([str(self.check.verdict), *map(visible, sites)])

    def _growing_words(self) -> str:
        runs = unit_words(self.n_runs, "runs")
        if self.piles and not self.growing:
            return f"growing so far, after {runs}: {pile_words(self.piles)}; what keeps that is not known yet"
        if not self.growing:
            return f"nothing grows so far, after {runs}"
        return f"growing so far, after {runs}: {growth_sentence(self.growing[0])}{more_words(self.growing, 'place')}"


_OF_RUNS = re.compile(
    r"\b((?:every|each|a|one|the|that|their|its|whole|all|two|between|earlier|previous|next|last|first|these|those|from"
    r"|to) )run(s?)\b",
    re.IGNORECASE,
)
"""Not the verb: ``has run``, ``runs through``."""


def told_of_steps(advice: str) -> str:
    """Return *advice* for a loop, where a step does what a check calls a run; the program itself is run once."""
    return _OF_RUNS.sub(r"\1step\2", advice)
