"""Merge the paths to one object into a graph of at most 60 boxes; what is left out is summed up in boxes of its own."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from leaklab.model import Leak, RootPath, Status, Step
from leaklab.model.alive import Alive, FanIn
from leaklab.render.texts import SHOWN_LIMIT, clipped
from leaklab.render.wording import shorten, suspect_references

MAX_BOXES = 60
"""More than this is not read as a picture."""
_FEWEST_STEPS = 4  # of a path whose middle is left out
_NAME_LIMIT = 60


@dataclass(frozen=True, slots=True)
class Box:
    """One object, or what stands for several.

    Attributes:
        kind: Type of the object; words for a root, and for what was left out.
        summary: Shape, length; may be empty.
        status: Whether it has a reason to be alive.
        note: The reason; may be empty.
        role: ``root``, ``object``, ``asked`` for the end of all paths, ``more`` for several objects in one box.
    """

    kind: str
    summary: str
    status: Status
    note: str
    role: str


@dataclass(slots=True)
class Arrow:
    """A reference from box to box, by position; whether it is suspected, and whether it is one of the smallest cut."""

    source: int
    target: int
    reference: str
    is_suspect: bool = False
    is_cut: bool = False


@dataclass(slots=True)
class BackGraph:
    """Boxes and the arrows between them."""

    boxes: list[Box] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    _numbers: dict[Hashable, int] = field(default_factory=dict)

    def box(self, key: Hashable, box: Box) -> int:
        """Return the number of the box of *key*, which is added if there is none yet."""
        if key not in self._numbers:
            self._numbers[key] = len(self.boxes)
            self.boxes.append(box)
        return self._numbers[key]

    def has(self, key: Hashable) -> bool:
        """Return whether there is a box of *key*."""
        return key in self._numbers

    def arrow(
        self, source: int, target: int, reference: str, *, is_suspect: bool = False, is_cut: bool = False
    ) -> None:
        """Add an arrow, or what is new of one that is there already."""
        for arrow in self.arrows:
            if (arrow.source, arrow.target, arrow.reference) == (source, target, reference):
                arrow.is_suspect |= is_suspect
                arrow.is_cut |= is_cut
                return
        self.arrows.append(Arrow(source, target, reference, is_suspect, is_cut))


@dataclass(frozen=True, slots=True)
class _Way:
    """A path to be merged: its steps, a key for the object of each, and the steps whose reference is to be cut."""

    path: RootPath
    keys: tuple[Hashable, ...]
    cut_at: tuple[int, ...]


def graph_of_alive(alive: Alive) -> BackGraph:
    """Return the graph of all paths to the object asked about, or of the cycle that keeps it."""
    alive = clipped(alive, SHOWN_LIMIT)
    if alive.paths:
        ways = [_Way(one.path, one.places, one.cut_at) for one in alive.paths]
    elif alive.cycle is not None:
        n_steps = len(alive.cycle.steps)
        ways = [_Way(alive.cycle, (*range(1, n_steps), 1), ())]
    else:
        unseen = RootPath(alive.hold.value, (Step("", alive.what, "", Status.UNKNOWN),))
        ways = [_Way(unseen, (0,), ())]
    graph = _merged(ways, asked=0)
    for more in alive.fan_in:
        _add_more(graph, more)
    return graph


def graph_of_leak(leak: Leak) -> BackGraph:
    """Return the graph of the one path to a leak."""
    leak = clipped(leak, SHOWN_LIMIT)
    if not leak.path.steps:
        steps = (Step("", leak.what, "", Status.LEAKED),)
        return _merged([_Way(RootPath(leak.path.root, steps), (0,), ())], asked=0)
    last = len(leak.path.steps) - 1
    return _merged([_Way(leak.path, tuple(range(last + 1)), ())], asked=last)


def _merged(ways: Sequence[_Way], asked: Hashable) -> BackGraph:
    """Merge the ways; the more boxes that makes, the more of the middle of the long ones is left out."""
    longest = max(len(way.path.steps) for way in ways)
    for n_steps in range(max(min(longest, MAX_BOXES), _FEWEST_STEPS), _FEWEST_STEPS - 1, -1):
        graph = BackGraph()
        for number, way in enumerate(ways):
            _add_way(graph, way, number, asked, n_steps)
        if len(graph.boxes) <= MAX_BOXES:
            break
    return graph


def _add_way(graph: BackGraph, way: _Way, number: int, asked: Hashable, n_steps: int) -> None:
    steps, suspects = way.path.steps, suspect_references(way.path)
    root = Box(way.path.root, "", Status.EXPECTED, "", "root")
    before = graph.box(("root", way.path.root), root)
    skipped = range(0)
    if len(steps) > n_steps:
        skipped = range(n_steps // 2, len(steps) - (n_steps - n_steps // 2) + 1)
    for position, (step, key) in enumerate(zip(steps, way.keys, strict=True)):
        if position in skipped:
            if position == skipped[0]:
                words = f"... {len(skipped):,} more objects ..."
                more = graph.box(("skipped", number), Box(words, "", Status.UNKNOWN, "", "more"))
                graph.arrow(before, more, "", is_suspect=position in suspects)
                before = more
            continue
        role = "asked" if key == asked else "object"
        box = graph.box(key, Box(step.kind or "object", step.summary, step.status, step.note, role))
        graph.arrow(before, box, step.reference, is_suspect=position in suspects, is_cut=position in way.cut_at)
        before = box


def _add_more(graph: BackGraph, more: FanIn) -> None:
    """Add a box for what else refers to an object, as long as there is room."""
    if not graph.has(more.place) or len(graph.boxes) >= MAX_BOXES:
        return
    kind = shorten(more.kind, _NAME_LIMIT)
    words, summary = f"and {more.count:,} more {kind}{'' if kind.endswith('s') else 's'}", ""
    if more.count == 1:
        words, summary = f"and one more {kind}", shorten(more.holder, _NAME_LIMIT)
    box = graph.box(("more", more.place, more.kind), Box(words, summary, Status.UNKNOWN, "", "more"))
    graph.arrow(box, graph.box(more.place, Box("", "", Status.UNKNOWN, "", "object")), "")
