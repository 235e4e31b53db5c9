"""Answer questions about a saved heap: what fills it, why an object is alive, what differs from another one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from leaklab.errors import QueryError
from leaklab.heap.index import FIRST_POSITION, OWN_DICT
from leaklab.model import RootPath, Status, Step
from leaklab.model.alive import AlivePath, Counts, DirectReference, Hold, Retained, WhyAliveRecord
from leaklab.model.heap import HeapChange, HeapHolder, HeapShape, KindSize, SizeChange
from leaklab.text import format_bytes, shorten, unit_words

if TYPE_CHECKING:
    from leaklab.heap.saved.arrays import NamedStep, SavedNodes
    from leaklab.runtime.addresses import Ints

MOST_HOLDERS = 200
_LOOKED_AT = 2_000
"""So many of the largest are described to find those worth showing."""
_MOST_REFERENCES = 30
_N_NAMES, _MOST_NAMES = 8, 200
_NAME_LIMIT = 80
_FIXTURES = ("module", "frame", "type", "abc.ABCMeta")
_SEGMENT = re.compile(r"\.([^\W\d]\w*)|\[((?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\[\]'\"])*)\]")
_VARIABLE = re.compile(r"[^\W\d]\w*")
_TABLES = ("_parameters", "_buffers", "_modules")


def shape_of(heap: SavedNodes) -> HeapShape:
    """Return what fills *heap*."""
    seen = ~heap.is_foreign
    return HeapShape(
        name=heap.arrays.name,
        taken_at=heap.arrays.taken_at,
        n_objects=heap.n_objects,
        n_references=heap.index.n_edges,
        n_bytes=heap.bytes_together(seen),
        storage_bytes=heap.storages.bytes_together(seen),
        holders=tuple(_holders(heap)),
        kinds=tuple(_kinds(heap)),
        notes=heap.arrays.notes,
        environment=heap.arrays.environment,
    )


def _holders(heap: SavedNodes) -> Iterator[HeapHolder]:
    """Yield the user's variables but the notebook's own, and other objects that keep much, the largest first."""
    wanted = {
        vertex
        for start, vertex in zip(heap.starts, heap.start_vertices.tolist(), strict=True)
        if vertex >= 0 and start.is_variable and not start.is_history and not start.is_shells
    }
    sizes = heap.exclusive_bytes
    largest = np.argsort(-sizes, kind="stable")[:_LOOKED_AT].tolist()
    ranked = sorted({*largest, *wanted}, key=lambda vertex: (-int(sizes[vertex]), vertex))
    n_shown = 0
    for vertex in ranked:
        kind = heap.kinds[int(heap.kind_of[vertex])]
        is_fixture = kind.name in _FIXTURES or kind.is_meta or heap.is_foreign[vertex]
        if n_shown == MOST_HOLDERS or is_fixture or vertex == heap.arrays.namespace:
            continue
        holder, place = heap.name_of(vertex)
        if holder.endswith(OWN_DICT):  # it is told by its owner
            continue
        n_shown += 1
        yield HeapHolder(holder, kind.name, place, int(sizes[vertex]), vertex)


def _kinds(heap: SavedNodes) -> Iterator[KindSize]:
    """Yield the types, the most bytes first; a storage counts for the first of its users."""
    n_kinds = len(heap.kinds)
    seen = ~heap.is_foreign
    sizes = np.where(seen, heap.own_bytes, 0)
    use = heap.storages
    if len(use.sizes):
        np.add.at(sizes, use.users[use.offsets[:-1]], use.sizes)
    n_bytes = np.zeros(n_kinds, np.int64)
    np.add.at(n_bytes, heap.kind_of, sizes)
    counts = np.bincount(heap.kind_of[seen], minlength=n_kinds)
    for row in np.argsort(-n_bytes, kind="stable").tolist():
        if counts[row]:
            yield KindSize(heap.kinds[row].name, int(counts[row]), int(n_bytes[row]))


def compare_heaps(before: SavedNodes, after: SavedNodes, shapes: tuple[HeapShape, HeapShape]) -> HeapChange:
    """Return what differs between two heaps, the earlier first, of which these are the shapes.

    What is large in one of them is looked for by its expression in the other.
    """
    earlier, later = shapes
    names = {each.holder for shape in shapes for each in shape.holders if each.holder}
    old, new = (
        [(name, 1, size) for name in names if (size := _size_of(heap, name)) is not None] for heap in (before, after)
    )
    old_kinds, new_kinds = ([(each.kind, each.count, each.n_bytes) for each in shape.kinds] for shape in shapes)
    return HeapChange(
        before=earlier.name,
        after=later.name,
        seconds=later.taken_at - earlier.taken_at,
        n_objects=(earlier.n_objects, later.n_objects),
        n_bytes=(earlier.n_bytes, later.n_bytes),
        holders=_changes(old, new),
        kinds=_changes(old_kinds, new_kinds),
    )


def _size_of(heap: SavedNodes, name: str) -> int | None:
    """Return what comes back if the object of that name goes, None where there is none."""
    try:
        return int(heap.exclusive_bytes[vertex_called(heap, name)])
    except QueryError:
        return None


def _changes(before: Iterable[tuple[str, int, int]], after: Iterable[tuple[str, int, int]]) -> tuple[SizeChange, ...]:
    """Return what changed of counts and bytes by name, the largest change first."""
    old, new = ({name: (count, n_bytes) for name, count, n_bytes in rows} for rows in (before, after))
    rows = []
    for name in {**old, **new}:
        (count_before, bytes_before), (count_after, bytes_after) = old.get(name, (0, 0)), new.get(name, (0, 0))
        if (count_before, bytes_before) != (count_after, bytes_after):
            rows.append(SizeChange(name, bytes_before, bytes_after, count_before, count_after))
    return tuple(sorted(rows, key=lambda row: (-abs(row.step), row.name)))


def why_saved(heap: SavedNodes, vertex: int, asked: str) -> WhyAliveRecord:
    """Return the best path to an object, its size, and who refers to it directly."""
    kind, n_bytes = heap.kinds[int(heap.kind_of[vertex])].name, int(heap.exclusive_bytes[vertex])
    content = int(heap.contents.number_of[vertex])
    words = heap.contents.table[content].words if content >= 0 else ""
    references, n_references = _references(heap, vertex)
    is_reached = heap.is_reached(vertex) and vertex != heap.arrays.namespace
    steps = heap.steps_to(vertex) if is_reached else []
    back = f"{format_bytes(n_bytes)} come back if it goes"
    held = f"{unit_words(n_references, 'objects')} refer{'s' if n_references == 1 else ''} to it"
    return WhyAliveRecord(
        asked=asked,
        what=" ".join(filter(None, (kind, words))),
        hold=Hold.HELD if heap.is_reached(vertex) else Hold.UNSEEN,
        reason=f"{'the best path to it' if steps else 'no variable reaches it'}, in a saved heap; {held}; {back}",
        paths=(_path(heap, steps),) if steps else (),
        has_more_paths=False,
        references=references,
        n_references=n_references,
        autograd=(),
        retained=Retained(n_bytes, 0, 0, is_lower_bound=False),
        cut=None,
        counts=Counts(0, ()),
        notes=heap.arrays.notes,
        only_path=True,
        environment=heap.arrays.environment,
    )


def _path(heap: SavedNodes, steps: list[NamedStep]) -> AlivePath:
    start = heap.starts[int(heap.paths.root_of[steps[-1].vertex])]
    described = tuple(
        Step(step.reference, heap.kinds[int(heap.kind_of[step.vertex])].name, "", Status.UNKNOWN) for step in steps
    )
    holder = steps[-2].expression if len(steps) > 1 else ("globals()" if start.is_variable else "")
    places = tuple(len(steps) - 1 - number for number in range(len(steps)))
    return AlivePath(RootPath(start.words, described), holder, steps[-1].expression, places)


def _references(heap: SavedNodes, vertex: int) -> tuple[tuple[DirectReference, ...], int]:
    holders = np.unique(heap.index.referrers(vertex))
    holders = holders[~heap.is_foreign[holders]]
    nearest = holders[np.argsort(heap.paths.cost[holders] % (1 << 62), kind="stable")]
    rows = []
    for holder in nearest[:_MOST_REFERENCES].tolist():
        name, place = heap.name_of(holder)
        kind = heap.kinds[int(heap.kind_of[holder])].name
        count = int((heap.index.referents(holder) == vertex).sum())
        reference = heap.reference_name(holder, vertex) or f"reference inside {kind}"
        rows.append(
            DirectReference(name or place, reference, kind, count, from_cpp=False, is_reached=heap.is_reached(holder))
        )
    return tuple(rows), len(holders)


def vertex_called(heap: SavedNodes, asked: str | int) -> int:
    """Return the object that an expression names, or that has a number.

    Args:
        heap: Where to look.
        asked: An expression as reports have it, ``trainer.history[0]['loss']``: it is read, never run. Or a number, as
            the rows of `leaklab.explain.heaps.found` have it.

    Raises:
        QueryError: if there is none.
    """
    if isinstance(asked, int):
        if not 0 <= asked < heap.index.n_vertices:
            msg = f"there is no object {asked}: this heap has numbers up to {heap.index.n_vertices - 1:,}"
            raise QueryError(msg)
        return asked
    vertex, at = _first(heap, asked)
    while at < len(asked):
        match = _SEGMENT.match(asked, at)
        found = -1 if match is None else _below(heap, vertex, match)
        if found < 0:
            msg = (
                f"{shorten(asked[:at], _NAME_LIMIT)} has no {shorten(asked[at:], _NAME_LIMIT)}; {_known(heap, vertex)}"
            )
            raise QueryError(msg)
        vertex, at = found, match.end()  # type: ignore[union-attr]  # found by it
    return vertex


def _first(heap: SavedNodes, asked: str) -> tuple[int, int]:
    """Return the object that an expression begins with, and where the rest begins."""
    match = _VARIABLE.match(asked)
    name = match[0] if match is not None else ""
    if heap.variables.get(name, -1) >= 0:
        return heap.variables[name], len(name)
    modules = {
        start.expression: vertex
        for start, vertex in zip(heap.starts, heap.start_vertices.tolist(), strict=True)
        if start.is_place and vertex >= 0 and heap.kinds[int(heap.kind_of[vertex])].name == "dict"
    }
    parts = asked.split(".")
    for n_parts in range(len(parts), 0, -1):
        module = ".".join(parts[:n_parts])
        if module in modules:
            return modules[module], len(module)
    names = ", ".join(sorted(name for name, vertex in heap.variables.items() if vertex >= 0)[:_N_NAMES])
    msg = (
        f"no variable and no module is called {shorten(name or asked, _NAME_LIMIT)!r}; variables are: {names or 'none'}"
    )
    raise QueryError(msg)


def _below(heap: SavedNodes, vertex: int, segment: re.Match[str]) -> int:
    """Return what the object at *vertex* has by that attribute or key, -1 for nothing."""
    own = int(heap.own_dicts[vertex])
    is_module_dict = own < 0 and heap.kinds[int(heap.kind_of[vertex])].name == "dict"
    if (name := segment[1]) is not None:
        key = f"[{name!r}]"
        found = _attribute(heap, vertex, name)
        if found < 0 and is_module_dict:
            found = _named(heap, vertex, key)
        return found if found >= 0 else _in_tables(heap, vertex, key)
    try:
        value = ast.literal_eval(segment[2])
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return -1
    found = _named(heap, vertex, f"[{value!r}]", value if type(value) is int else None)
    return found if found >= 0 else _in_tables(heap, vertex, f"['{value!r}']")


def _attribute(heap: SavedNodes, vertex: int, name: str) -> int:
    """Return what the object at *vertex* has in its attribute *name*, itself or in its ``__dict__``, -1 for nothing."""
    found, own = _named(heap, vertex, f".{name}"), int(heap.own_dicts[vertex])
    return found if found >= 0 or own < 0 else _named(heap, own, f"[{name!r}]")


def _in_tables(heap: SavedNodes, vertex: int, key: str) -> int:
    """Return the parameter, buffer or module of the ``torch.nn.Module`` at *vertex*, -1 for none."""
    for table in _TABLES:
        inner = _attribute(heap, vertex, table)
        if inner >= 0 and (found := _named(heap, inner, key)) >= 0:
            return found
    return -1


def _named(heap: SavedNodes, vertex: int, text: str, position: int | None = None) -> int:
    """Return what a reference of that name leads to, -1 for nothing."""
    index = heap.index
    if index.names is None:
        return -1
    number = heap.number_of_text(text) if position is None or position < 0 else FIRST_POSITION - position
    start, stop = int(index.forward_offsets[vertex]), int(index.forward_offsets[vertex + 1])
    found: Ints = np.flatnonzero(index.names[start:stop] == number) if number is not None else np.zeros(0, np.int64)
    return int(index.forward_targets[start + int(found[0])]) if len(found) else -1


def _known(heap: SavedNodes, vertex: int) -> str:
    """Return some of the names by which an object leads on."""
    own = int(heap.own_dicts[vertex])
    names = [
        heap.reference_name(holder, held)
        for holder in (vertex, own)
        if holder >= 0
        for held in heap.index.referents(holder)[-_MOST_NAMES:].tolist()
    ]
    known = {name for name in names if name.startswith((".", "[")) and name != OWN_DICT}
    shown = ", ".join(sorted(known, key=lambda name: (len(name), name))[:_N_NAMES])
    return f"it has {shown}" if shown else "it has no named parts"
