"""Find the objects of a heap that fit a condition, and describe the largest in records: sizes and holders.

Whole columns are computed at once, each only where the condition asks for it.
"""

from __future__ import annotations

import difflib
import fnmatch
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from leaklab.explain.heaps.query import (
    AllOf,
    Condition,
    HeldBy,
    Literal,
    Not,
    Property,
    PropertyTest,
    Value,
    parse,
    refuse,
)
from leaklab.model.heap import FoundObject, FoundRecord
from leaklab.runtime.objects import is_kind_of, type_name

if TYPE_CHECKING:
    from leaklab.heap.nodes import ArrayTraits, HeapNodes
    from leaklab.runtime.addresses import Ints


_NO_CONTENT = (None, None, None, None)


def found_record(
    heap: HeapNodes,
    found: Ints,
    *,
    kind: str,
    where: str,
    limit: int,
    numbers: Ints | None = None,
    notes: tuple[str, ...] = (),
    environment: tuple[tuple[str, str], ...] = (),
) -> FoundRecord:
    """Return the record of what fits.

    *found* says for each object whether it fits; so many as *limit* get a row. *numbers* is what each object is
    called by: its address; None where that is its number in a file.
    """
    vertices = np.flatnonzero(found)
    used = heap.used_bytes
    shown = vertices[np.lexsort((heap.paths.cost[vertices], -used[vertices]))][:limit]
    rows = tuple(_row(heap, vertex, vertex if numbers is None else int(numbers[vertex])) for vertex in shown.tolist())
    return FoundRecord(
        kind=kind,
        where=where,
        n_found=len(vertices),
        n_bytes=heap.bytes_together(found),
        n_objects=heap.n_objects,
        rows=rows,
        is_live=numbers is not None,
        notes=notes,
        environment=environment,
    )


def _row(heap: HeapNodes, vertex: int, number: int) -> FoundObject:
    content = int(heap.contents.number_of[vertex])
    shape, dtype, device, requires_grad = heap.contents.table[content] if content >= 0 else _NO_CONTENT
    holder, place = heap.name_of(vertex)
    return FoundObject(
        kind=heap.kinds[int(heap.kind_of[vertex])].name,
        holder=holder,
        place=place,
        n_bytes=int(heap.used_bytes[vertex]),
        exclusive_bytes=int(heap.exclusive_bytes[vertex]),
        shape="" if shape is None else str(shape),
        dtype=dtype or "",
        device=device or "",
        requires_grad=requires_grad,
        number=number,
    )


def row_limit(limit: object) -> int:
    """Return *limit*, how many rows were asked for.

    Raises:
        TypeError: if it is no whole number.
        ValueError: if it is negative.
    """
    if not isinstance(limit, int) or isinstance(limit, bool):
        msg = f"limit must be a whole number of rows, not {type(limit).__name__}"
        raise TypeError(msg)
    if limit < 0:
        msg = f"limit must be 0 or more, not {limit}"
        raise ValueError(msg)
    return limit


def wanted_type(asked: object) -> str:
    """Return the name of the type that was asked for, empty for any.

    Raises:
        TypeError: if it is neither a class nor a text.
    """
    if asked is None:
        return ""
    if is_kind_of(asked, type):
        return type_name(asked)  # type: ignore[arg-type]  # the real type was asked
    if type(asked) is str:
        return asked
    msg = f"type must be a class or the name of one, not {type_name(type(asked))}"
    raise TypeError(msg)


_Test: TypeAlias = Callable[[Any, Any], bool]
OLD, YOUNG = "old", "young"
_MOST = 1 << 62  # of a tensor without memory the product may be anything
_SIGNS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def find_in(heap: HeapNodes, kind: str = "", where: str = "", *, is_young: Ints | None = None) -> Ints:
    """Return for each object of *heap* whether it fits.

    Args:
        heap: Where to look; leaklab's own objects never fit.
        kind: Name of the type, with or without its module, or a pattern with ``*``; empty for any type.
        where: The condition, as `leaklab.explain.heaps.query` reads it; empty for none.
        is_young: For each object whether it was made since the last full collection; None where that is not known.

    Raises:
        QueryError: if *where* cannot be understood, or names what this heap does not know.
    """
    condition = parse(where)
    found: Ints = ~heap.is_foreign
    if kind:
        found &= _of_kinds(heap, [is_named(each.name, kind) for each in heap.kinds])
    if condition is not None:
        found &= _Columns(heap, is_young).mask(condition)
    return found


def is_named(name: str, wanted: str) -> bool:
    """Return whether the type called *name*, with its module, is meant by *wanted*: whole, its last part, a pattern."""
    short = name.rpartition(".")[2]
    if any(sign in wanted for sign in "*?["):
        return _fits(name, wanted) or _fits(short, wanted)
    return wanted in (name, short)


def _fits(text: str, pattern: str) -> bool:
    return re.match(fnmatch.translate(pattern), text) is not None


def _of_kinds(heap: HeapNodes, is_wanted: list[bool]) -> Ints:
    mask: Ints = np.array(is_wanted, bool).take(heap.kind_of)
    return mask


@dataclass(frozen=True, slots=True)
class _Coded:
    """A column of few distinct values: the number of each object's value, -1 for none, and the values."""

    numbers: Ints
    table: list[Any]

    def where(self, holds: Callable[[Any], bool]) -> Ints:
        """Return where the value is known and *holds*."""
        answers = np.array([*(value is not None and holds(value) for value in self.table), False], bool)
        mask: Ints = answers.take(self.numbers)  # of -1 the last, which says no
        return mask

    def figures(self) -> tuple[Ints, Ints]:
        """Return the values as numbers, and where they are known."""
        values = np.array([*(0 if value is None else value for value in self.table), 0])
        return values.take(self.numbers), self.where(lambda _value: True)


class _Columns:
    def __init__(self, heap: HeapNodes, is_young: Ints | None) -> None:
        self._heap = heap
        self._is_young = is_young

    def mask(self, condition: Condition) -> Ints:
        """Return where *condition* holds."""
        if isinstance(condition, PropertyTest):
            return self._compared(condition)
        if isinstance(condition, HeldBy):
            return self._held_by(condition)
        if isinstance(condition, Not):
            return ~self.mask(condition.part)
        join = np.logical_and if isinstance(condition, AllOf) else np.logical_or
        masks = [self.mask(part) for part in condition.parts]
        for mask in masks[1:]:
            join(masks[0], mask, out=masks[0])
        return masks[0]

    def _compared(self, comparison: PropertyTest) -> Ints:
        left, sign, right = comparison.left, comparison.sign, comparison.right
        column = self._column(left)
        if isinstance(right, Property):
            values, is_known = _figures(column)
            others, are_known = _figures(self._column(right))
            mask: Ints = is_known & are_known & _SIGNS[sign](values, others)
            return mask
        if isinstance(column, _Coded):
            return column.where(_test(left, sign, right))
        value: Any = right.value
        if sign in ("in", "not in"):
            mask = np.isin(column, list(value))
            return ~mask if sign == "not in" else mask
        compared: Ints = _SIGNS[sign](column, value)
        return compared

    def _column(self, asked: Property) -> _Coded | Ints:
        heap, name = self._heap, asked.name
        if name == "type":
            return _Coded(heap.kind_of, [kind.name for kind in heap.kinds])
        if name == "module":
            return _Coded(heap.kind_of, [kind.module for kind in heap.kinds])
        if name == "bytes":
            return heap.used_bytes
        if name == "exclusive":
            return heap.exclusive_bytes
        if name == "age":
            if self._is_young is None:
                refuse(asked.at, "age is known for the living heap only, not for a saved one")
            return _Coded(self._is_young.astype(np.int8), [OLD, YOUNG])
        contents = heap.contents
        return _Coded(contents.number_of, [_of_content(content, asked) for content in contents.table])

    def _held_by(self, condition: HeldBy) -> Ints:
        """Return where the best path begins at the object that the variable or the module is, and meets no class.

        Each instance leads to its class, and by that to much of its library, which no variable holds.
        """
        heap, name = self._heap, condition.name
        vertices = heap.start_vertices
        named = {
            int(vertex)
            for start, vertex in zip(heap.starts, vertices.tolist(), strict=True)
            if start.expression == name or start.words == f"module {name!r}"
        }
        if not named:
            known = [start.expression for start in heap.starts if start.is_variable and not start.is_history]
            near = difflib.get_close_matches(name, known, 1)
            advice = f"did you mean {near[0]}?" if near else "give the name of one of your variables, or of a module"
            refuse(condition.at, f"no variable and no module is called {name}; {advice}")
        begins = np.isin(vertices, [vertex for vertex in named if vertex >= 0])
        mask: Ints = np.append(begins, False).take(heap.paths.root_of)  # of -1 the last, which says no
        return mask & ~_behind(heap.is_class & (heap.paths.parent >= 0), heap.paths.parent)


def _behind(passed: Ints, parent: Ints) -> Ints:
    """Return for each object whether it, or one before it on its path, is one of *passed*."""
    passed = passed.copy()
    before = np.where(parent >= 0, parent, np.arange(len(parent)))
    while True:
        further = before.take(before)
        passed |= passed.take(before)
        if np.array_equal(further, before):
            return passed
        before = further


def _figures(column: _Coded | Ints) -> tuple[Ints, Ints]:
    return column.figures() if isinstance(column, _Coded) else (column, np.ones(len(column), bool))


def _of_content(content: ArrayTraits, asked: Property) -> Any:
    """Return a property of a tensor or an array, None where it has none."""
    shape = content.shape
    if asked.name in ("dtype", "device", "requires_grad"):
        return getattr(content, asked.name)
    if shape is None:
        return None
    if asked.index is not None:
        return shape[asked.index] if -len(shape) <= asked.index < len(shape) else None
    if asked.name == "ndim":
        return len(shape)
    return shape if asked.name == "shape" else _product(shape)


def _product(shape: tuple[int, ...]) -> int:
    return min(math.prod(shape), _MOST)


def _test(asked: Property, sign: str, right: Literal) -> Callable[[Any], bool]:
    """Return the test of one value of the property *asked*."""
    wanted: Any = right.value
    if sign in ("like", "not like"):
        return lambda value: _fits(value, wanted) is (sign == "like")
    equal: _Test = _EQUAL.get(asked.name, operator.eq)
    if sign in ("in", "not in"):
        return lambda value: any(equal(value, each) for each in wanted) is (sign == "in")
    if sign in ("==", "!="):
        return lambda value: equal(value, wanted) is (sign == "==")
    compare = _SIGNS[sign]
    return lambda value: bool(compare(value, wanted))


def _is_device(value: str, wanted: Value) -> bool:
    """Return whether *value* is that device, or any of that type: ``cuda`` means ``cuda:1`` too."""
    return value == wanted or value.partition(":")[0] == wanted


_EQUAL: Final[dict[str, _Test]] = {
    "type": is_named,
    "device": _is_device,
    "dtype": lambda value, wanted: value == wanted.removeprefix("torch."),
}
