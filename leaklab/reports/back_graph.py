"""Merge the paths to one object into a graph of at most 60 boxes; what is left out is summed up in boxes of its own."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from leaklab.model import Leak, RootPath, Status, Step
from leaklab.model.alive import FanIn, WhyAliveRecord
from leaklab.render.words import suspect_references
from leaklab.text import SHOWN_LIMIT, clipped, shorten

MAX_BOXES = 60
"""More than this is not read as a picture."""
_FEWEST_STEPS = 4  # of a path whose middle is left out
_NAME_LIMIT = 60
_MAX_NEIGHBOURS = 60  # as many as there are boxes: what is too many was left out before
_TYPE_LIMIT = 40  # characters of a type name; objgraph itself cuts what an object says of itself after 40
_LENGTH = re.compile(r"([\d,]+) (?:entry|entries)")
_KEY = re.compile(r"\[(.+)\]", re.DOTALL)
_MAPPINGS: Final = ("dict", "OrderedDict", "defaultdict", "Counter")
_SEQUENCES: Final = ("list", "tuple", "set", "frozenset", "deque")


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
class _DrawnWay:
    """A path to be merged: its steps, a key for the object of each, and the steps whose reference is to be cut."""

    path: RootPath
    keys: tuple[Hashable, ...]
    cut_at: tuple[int, ...]


def graph_of_alive(alive: WhyAliveRecord) -> BackGraph:
    """Return the graph of all paths to the object asked about, or of the cycle that keeps it."""
    alive = clipped(alive, SHOWN_LIMIT)
    if alive.paths:
        ways = [_DrawnWay(one.path, one.places, one.cut_at) for one in alive.paths]
    elif alive.cycle is not None:
        n_steps = len(alive.cycle.steps)
        ways = [_DrawnWay(alive.cycle, (*range(1, n_steps), 1), ())]
    else:
        unseen = RootPath(alive.hold.value, (Step("", alive.what, "", Status.UNKNOWN),))
        ways = [_DrawnWay(unseen, (0,), ())]
    graph = _merged(ways, asked=0)
    for more in alive.fan_in:
        _add_more(graph, more)
    return graph


def graph_of_leak(leak: Leak) -> BackGraph:
    """Return the graph of the one path to a leak."""
    leak = clipped(leak, SHOWN_LIMIT)
    if not leak.path.steps:
        steps = (Step("", leak.what, "", Status.LEAKED),)
        return _merged([_DrawnWay(RootPath(leak.path.root, steps), (0,), ())], asked=0)
    last = len(leak.path.steps) - 1
    return _merged([_DrawnWay(leak.path, tuple(range(last + 1)), ())], asked=last)


def _merged(ways: Sequence[_DrawnWay], asked: Hashable) -> BackGraph:
    """Merge the ways; the more boxes that makes, the more of the middle of the long ones is left out."""
    longest = max(len(way.path.steps) for way in ways)
    for n_steps in range(max(min(longest, MAX_BOXES), _FEWEST_STEPS), _FEWEST_STEPS - 1, -1):
        graph = BackGraph()
        for number, way in enumerate(ways):
            _add_way(graph, way, number, asked, n_steps)
        if len(graph.boxes) <= MAX_BOXES:
            break
    return graph


def _add_way(graph: BackGraph, way: _DrawnWay, number: int, asked: Hashable, n_steps: int) -> None:
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


class _DrawnReference(NamedTuple):
    """An arrow seen from the box that it leaves."""

    text: str
    target: int


def objgraph_dot(graph: BackGraph) -> str:
    """Return DOT text as objgraph writes it: the object asked about with a red border, the suspects on blue.

    objgraph walks live objects: it asks ``gc.get_referrers`` about each, which looks through the whole heap every time,
    and prints what the objects' own ``repr`` says. A record has no live objects, and the user's ``repr`` must not run.
    So objgraph is given a small heap: for every box of the graph a stand-in, with the box's type name and summary,
    which really refers to the next. `objgraph.show_chain` walks them from the roots down, so that it asks each stand-in
    for its few references, and never the heap for its referrers.

    What objgraph has no room for, the reference from anything but a dict, stands in the box it leads to. objgraph runs
    the collector once for each picture.
    """
    import objgraph  # noqa: PLC0415 - it looks for a notebook when it is imported

    stand_ins = _stand_ins(graph)
    numbers = {id(stand_in): number for number, stand_in in enumerate(stand_ins)}
    suspects = {arrow.target for arrow in graph.arrows if arrow.is_suspect}

    def box_of(stand_in: object) -> Box:
        return graph.boxes[numbers[id(stand_in)]]

    def is_highlighted(stand_in: object) -> bool:
        return numbers[id(stand_in)] in suspects or box_of(stand_in).role == "asked"

    def extra_info(stand_in: object) -> str:
        return _words_below(graph, numbers[id(stand_in)])

    def colours(stand_in: object) -> dict[str, str]:
        if box_of(stand_in).role == "asked":
            return {"fontcolor": "white", "color": "red", "penwidth": "3"}
        return {"fontcolor": "white" if is_highlighted(stand_in) else "black"}

    output = io.StringIO()
    objgraph.show_chain(
        *_chains(graph, stand_ins),
        backrefs=False,
        too_many=_MAX_NEIGHBOURS,
        highlight=is_highlighted,
        extra_info=extra_info,
        extra_node_attrs=colours,
        output=output,
    )
    return output.getvalue()


def _chains(graph: BackGraph, stand_ins: Sequence[object]) -> list[list[object]]:
    """Return for each box at which paths begin a chain that starts there and names all others.

    objgraph takes from a chain its first object, its objects as those that may be shown, and its length as the depth to
    go to: the start stands at its end again, so that the arrows of the last object, back into a cycle, are drawn too.
    """
    inner = {arrow.target for arrow in graph.arrows}
    starts = [number for number in range(len(graph.boxes)) if number not in inner] or [0]
    return [[stand_ins[start], *stand_ins, stand_ins[start]] for start in starts]


def _stand_ins(graph: BackGraph) -> list[object]:
    """Return an object for each box; each refers to those that its box has arrows to."""
    references: list[list[_DrawnReference]] = [[] for _ in graph.boxes]
    for arrow in graph.arrows:
        references[arrow.source].append(_DrawnReference(arrow.reference, arrow.target))
    stand_ins = [_stand_in(box, len(held)) for box, held in zip(graph.boxes, references, strict=True)]
    for stand_in, held in zip(stand_ins, references, strict=True):
        for number, reference in enumerate(held):
            _refer(stand_in, number, reference.text, stand_ins[reference.target])
    return stand_ins


def _stand_in(box: Box, n_references: int) -> object:
    """Return an object of a class called like the type of *box*, which tells the summary as its own words."""
    words, name = shorten(box.summary or box.note, _TYPE_LIMIT), shorten(box.kind, 10 * _TYPE_LIMIT)
    if box.role == "root":
        name, _, words = name.partition(" ")
    elif box.role in {"object", "asked"}:
        name = name.rpartition(".")[2] or name
    name = shorten(name, _TYPE_LIMIT) or "object"
    length = _LENGTH.fullmatch(box.summary)
    if length and name in _MAPPINGS:
        return _container(dict, name, int(length[1].replace(",", "")))
    if length and name in _SEQUENCES:
        return _container(list, name, int(length[1].replace(",", "")))
    slots = tuple(f"reference_{number}" for number in range(n_references))
    return type(name, (), {"__slots__": slots, "__repr__": lambda _self: words})()


def _container(base: type, name: str, length: int) -> object:
    members: Mapping[str, Any] = {
        "__len__": lambda _self: length,
        "__hash__": object.__hash__,
        "__eq__": object.__eq__,
    }
    return type(name, (base,), dict(members))()


def _refer(holder: Any, number: int, text: str, child: object) -> None:
    """Let *holder* refer to *child*, a dict by the key that *text* names."""
    if isinstance(holder, dict):
        key = _key_of(text)
        holder[_named(text) if key is None or key in holder else key] = child
    elif isinstance(holder, list):
        holder.append(child)
    else:
        setattr(holder, f"reference_{number}", child)


def _key_of(text: str) -> object:
    """Return the key that a reference such as ``['loss']`` names, None if it names none."""
    match = _KEY.fullmatch(text)
    try:
        key: object = ast.literal_eval(match[1]) if match else None
        hash(key)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return key


def _named(text: str) -> object:
    """Return a key that objgraph shows as *text*."""
    return type(shorten(text, _TYPE_LIMIT) or "?", (), {"__repr__": lambda _self: ""})()


def _words_below(graph: BackGraph, number: int) -> str:
    """Return the references by which a box is held, those excepted that stand at an arrow already."""
    lines = []
    for arrow in graph.arrows:
        source = graph.boxes[arrow.source]
        is_labelled = source.kind.rpartition(".")[2] in _MAPPINGS and _LENGTH.fullmatch(source.summary)
        if arrow.target == number and arrow.reference and not is_labelled:
            owner = source.kind.rpartition(".")[2] if arrow.reference[0] in ".[" and source.role != "root" else ""
            lines.append(f"via {shorten(owner + arrow.reference, _TYPE_LIMIT)}")
    return "\n".join(lines)
