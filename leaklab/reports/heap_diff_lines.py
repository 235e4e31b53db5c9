"""Put what differs between two heap snapshots into sentences: a line for each change, the sums, the caveats."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from leaklab.model.heap_diff import Difference, ObjectChange, PlaceChange
from leaklab.text import format_bytes, format_seconds, shorten, signed_bytes, signed_words, unit_words, visible

_NAME_LIMIT = 120
_MANY = 3
_PARSED = "ast."
_SMALL_PARTS = frozenset({
    "tuple", "cell", "method", "builtin_function_or_method", "functools.partial", "generator", "coroutine", "frame",
    "traceback", "weakref.ReferenceType", "_contextvars.Context", "asyncio.events.Handle", "asyncio.events.TimerHandle",
})  # fmt: skip
_LEAST_ATTRIBUTE = 4096


class Course(enum.Enum):
    """What became of something between two moments, in the order in which that is worth reading."""

    NEW = "new"
    GREW = "grew"
    LESS = "gone or smaller"
    REPLACED = "replaced by others of their kind"


@dataclass(frozen=True, slots=True)
class Line:
    """One change.

    Attributes:
        count: How many more there are (less: negative); 0 where nothing is counted.
        what: What they are.
        n_bytes: Their bytes; None where they say nothing.
        holders: Expressions for some of them.
        group: ``tensors``, ``arrays``, ``containers``, ``objects`` or ``variables``.
        course: Whether they are new, grew, are gone, or were replaced.
    """

    count: int
    what: str
    n_bytes: int | None
    holders: tuple[str, ...]
    group: str
    course: Course

    def __str__(self) -> str:
        count = f"{self.count:+,} " if self.count else ""
        n_bytes = f", {format_bytes(abs(self.n_bytes))}" if self.n_bytes else ""
        holders = f", held by {', '.join(self.holders)}" if self.holders else ""
        return visible(f"{count}{self.what}{n_bytes}{holders}")


def lines_of(difference: Difference) -> tuple[Line, ...]:
    """Return everything that changed, each thing once: first what is new, the largest before the others."""
    lines = [*_tensor_lines(difference), *_array_lines(difference), *_container_lines(difference)]
    lines += _object_lines(difference)
    told = {holder for line in lines for holder in line.holders}
    lines += [_place_line(row) for row in difference.places if _is_untold(row, told, difference)]
    order = list(Course)
    return tuple(sorted(lines, key=lambda line: (order.index(line.course), -(line.n_bytes or 0))))


def _tensor_lines(difference: Difference) -> Iterator[Line]:
    for row in difference.tensors:
        what = f"{row.what}{' with a graph' if row.what.has_graph else ''}"
        yield from _born_and_died(
            what, (row.n_born, row.n_died), (row.bytes_born, row.bytes_died), row.holders, "tensors"
        )


def _array_lines(difference: Difference) -> Iterator[Line]:
    for row in difference.arrays:
        counts, n_bytes = (row.n_born, row.n_died), (row.bytes_born, row.bytes_died)
        yield from _born_and_died(row.what, counts, n_bytes, row.holders, "arrays")


def _born_and_died(
    what: str, counts: tuple[int, int], n_bytes: tuple[int, int], holders: tuple[str, ...], group: str
) -> Iterator[Line]:
    """Yield one line for births, one for deaths; one for both where as many died as were born."""
    n_born, n_died = counts
    if n_born == n_died:
        others = "another of its kind" if n_born == 1 else "others of their kind"
        words = f"{n_born:,} {what} replaced by {others}"
        yield Line(0, words, n_bytes[0], holders, group, Course.REPLACED)
        return
    if n_born:
        yield Line(n_born, what, n_bytes[0], holders, group, Course.NEW)
    if n_died:
        yield Line(-n_died, what, n_bytes[1], (), group, Course.LESS)


def _container_lines(difference: Difference) -> Iterator[Line]:
    for row in difference.containers:
        step = abs(row.after - row.before)
        verb, course = ("grew", Course.GREW) if row.after > row.before else ("shrank", Course.LESS)
        content = f" of {row.content}" if row.content and row.after > row.before else ""
        name = f"{row.holder} ({row.kind})" if row.holder else row.kind
        words = f"{name} {verb} by {unit_words(step, 'entries')}{content}, {row.before:,} -> {row.after:,}"
        yield Line(0, words, row.content_bytes or None, (), "containers", course)


def object_step(row: ObjectChange) -> int:
    """Return how many more objects of the user's there are; the notebook replaces its own, one for one.

    That some of the small parts died by which code is run says nothing: nobody freed them on purpose.
    """
    n_born = row.n_born - row.n_aside
    step = n_born - max(row.n_died - row.n_aside, 0)
    return max(step, 0) if row.kind in _SMALL_PARTS or row.kind.startswith(_PARSED) else step


def _object_lines(difference: Difference) -> Iterator[Line]:
    tensors = {row.what.kind for row in difference.tensors}
    for row in difference.objects:
        step = object_step(row)
        if step and row.kind not in tensors:
            holders, course = (row.holders, Course.NEW) if step > 0 else ((), Course.LESS)
            yield Line(step, row.kind, None, holders, "objects", course)


def _place_line(row: PlaceChange) -> Line:
    where = "" if row.home == "notebook" else f" of module {row.home}"
    name = f"{'variable' if not where else 'attribute'} {row.expression}{where}"
    if row.change == "born":
        return Line(0, f"new {name}: {row.after}", None, (), "variables", Course.NEW)
    if row.change == "died":
        return Line(0, f"{name} is gone: it was {row.before}", None, (), "variables", Course.LESS)
    words, course = {"grown": ("grew", Course.GREW), "shrunk": ("shrank", Course.LESS)}.get(
        row.change, ("was replaced" if row.change == "replaced" else "changed", Course.REPLACED)
    )
    return Line(0, f"{name} {words}: {row.before} -> {row.after}", None, (), "variables", course)


def _is_untold(row: PlaceChange, told: set[str], difference: Difference) -> bool:
    """Return whether the change of a name says more than the lines above it: who holds what is new is told there.

    Of the attributes of modules only the larger changes are told: libraries keep many small tables.
    """
    is_small = max(row.bytes_before, row.bytes_after) < _LEAST_ATTRIBUTE or row.expression == "sys.modules"
    if row.home != "notebook" and (row.home in difference.new_modules or is_small or _is_slight(row)):
        return False
    if row.change in ("born", "replaced"):
        return not any(holder == row.expression or _leads_to(row.expression, holder) for holder in told)
    if row.change in ("grown", "shrunk"):
        return not any(change.holder == row.expression for change in difference.containers)
    return True


def _is_slight(row: PlaceChange) -> bool:
    return row.change in ("grown", "shrunk") and abs(row.bytes_after - row.bytes_before) < _LEAST_ATTRIBUTE


def _leads_to(expression: str, holder: str) -> bool:
    """Return whether *holder* begins with the variable, as ``h[0]`` begins with ``h``."""
    return holder.startswith((f"{expression}[", f"{expression}."))


def headline(difference: Difference) -> str:
    """Return the sums: objects, tensors and bytes, or that nothing changed."""
    if not lines_of(difference):
        return "nothing was made or freed"
    n_objects = sum(object_step(row) for row in difference.objects)
    n_tensors = sum(row.n_born - row.n_died for row in difference.tensors)
    tensor_bytes = sum(row.bytes_after - row.bytes_before for row in difference.devices)
    array_bytes = sum(row.bytes_born - row.bytes_died for row in difference.arrays)
    if 0 < n_tensors <= n_objects:
        parts = [f"{signed_words(n_objects, 'objects')} ({unit_words(n_tensors, 'tensors')})"]
    else:
        parts = [signed_words(n, unit) for n, unit in ((n_objects, "objects"), (n_tensors, "tensors")) if n]
    if tensor_bytes:
        parts.append(f"{signed_bytes(tensor_bytes)} in tensors")
    if array_bytes:
        parts.append(f"{signed_bytes(array_bytes)} in arrays")
    return ", ".join(parts) or "as many objects and bytes as before"


def title(difference: Difference) -> str:
    """Return which two moments are compared, and how far they lie apart."""
    names = (
        f"{shorten(difference.before or 'before', _NAME_LIMIT)} -> {shorten(difference.after or 'after', _NAME_LIMIT)}"
    )
    return f"{names}, {format_seconds(max(difference.seconds, 0.0))} apart"


def levels(difference: Difference) -> str:
    """Return what the process-wide meters say; they include what leaklab and the notebook took."""
    words = []
    if difference.heap_bytes is not None:
        words.append(f"native heap {signed_bytes(difference.heap_bytes)}")
    if difference.accelerator_bytes is not None:
        words.append(f"accelerator {signed_bytes(difference.accelerator_bytes)}")
    words.append(f"resident {signed_bytes(difference.rss_bytes)}")
    return f"process: {', '.join(words)}"


def remarks(difference: Difference) -> tuple[str, ...]:
    """Return the caveats, and what was left out of the lines."""
    found = list(difference.notes)
    if difference.failure:
        found.insert(0, f"the code raised {difference.failure}; objects that its frames still hold are counted")
    if difference.n_aside:
        places = f" ({', '.join(difference.aside)})" if difference.aside else ""
        aside = unit_words(difference.n_aside, "new objects")
        found.append(f"left out: {aside} of libraries and of the notebook{places}")
    if difference.new_modules:
        names = difference.new_modules
        many = len(names) > _MANY
        shown = list(dict.fromkeys(name.partition(".")[0] for name in names)) if many else names
        more = " and others" if len(shown) > _MANY else ""
        were = "module was" if len(names) == 1 else "modules were"
        found.append(f"{len(names):,} {were} imported in between: {', '.join(shown[:_MANY])}{more}")
    return tuple(found)
