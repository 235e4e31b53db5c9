"""Draw a back-reference graph in the classic style, by objgraph itself.

objgraph walks live objects: it asks ``gc.get_referrers`` about each, which looks through the whole heap every time, and
prints what the objects' own ``repr`` says. A record has no live objects, and running the user's ``repr`` is out of the
question. So objgraph is given a small heap to walk: for every box of the graph a stand-in, with the box's type name and
summary, which really refers to the next. `objgraph.show_chain` walks them from the roots down, so that it asks each
stand-in for its few references, and never the heap for its referrers.
"""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from leaklab.render.back_graph import BackGraph, Box
from leaklab.render.wording import shorten

_MAX_NEIGHBOURS = 60  # as many as there are boxes: what is too many was left out before
_NAME_LIMIT = 40  # characters of a type name; objgraph itself cuts what an object says of itself after 40
_LENGTH = re.compile(r"([\d,]+) (?:entry|entries)")
_KEY = re.compile(r"\[(.+)\]", re.DOTALL)
_MAPPINGS: Final = ("dict", "OrderedDict", "defaultdict", "Counter")
_SEQUENCES: Final = ("list", "tuple", "set", "frozenset", "deque")


class _Reference(NamedTuple):
    """An arrow seen from the box that it leaves."""

    text: str
    target: int


def objgraph_dot(graph: BackGraph) -> str:
    """Return DOT text as objgraph writes it: the object asked about with a red border, the suspects on blue.

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
    references: list[list[_Reference]] = [[] for _ in graph.boxes]
    for arrow in graph.arrows:
        references[arrow.source].append(_Reference(arrow.reference, arrow.target))
    stand_ins = [_stand_in(box, len(held)) for box, held in zip(graph.boxes, references, strict=True)]
    for stand_in, held in zip(stand_ins, references, strict=True):
        for number, reference in enumerate(held):
            _refer(stand_in, number, reference.text, stand_ins[reference.target])
    return stand_ins


def _stand_in(box: Box, n_references: int) -> object:
    """Return an object of a class called like the type of *box*, which tells the summary as its own words."""
    words, name = shorten(box.summary or box.note, _NAME_LIMIT), shorten(box.kind, 10 * _NAME_LIMIT)
    if box.role == "root":
        name, _, words = name.partition(" ")
    elif box.role in {"object", "asked"}:
        name = name.rpartition(".")[2] or name
    name = shorten(name, _NAME_LIMIT) or "object"
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
    return type(shorten(text, _NAME_LIMIT) or "?", (), {"__repr__": lambda _self: ""})()


def _words_below(graph: BackGraph, number: int) -> str:
    """Return the references by which a box is held, those excepted that stand at an arrow already."""
    lines = []
    for arrow in graph.arrows:
        source = graph.boxes[arrow.source]
        is_labelled = source.kind.rpartition(".")[2] in _MAPPINGS and _LENGTH.fullmatch(source.summary)
        if arrow.target == number and arrow.reference and not is_labelled:
            owner = source.kind.rpartition(".")[2] if arrow.reference[0] in ".[" and source.role != "root" else ""
            lines.append(f"via {shorten(owner + arrow.reference, _NAME_LIMIT)}")
    return "\n".join(lines)
