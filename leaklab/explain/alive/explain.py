"""Answer why one object is alive: paths, holders, counts, retained bytes, the smallest cut."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from leaklab.explain.alive.counts import (
    RawCounts,
    autograd_holders,
    direct_references,
    explain_counts,
    fan_in,
    holders_of,
)
from leaklab.explain.alive.retained import retained, size_of_freed
from leaklab.explain.alive.smallest_cut import freed_without, independent_paths, release_statement, smallest_cut
from leaklab.explain.cycles.cycles import Orphans, group_orphans
from leaklab.heap.known_holders import remark_on
from leaklab.heap.names import MAX_NAMES, name_references
from leaklab.heap.names.containers import keys_of
from leaklab.heap.names.reference import Reference, is_name
from leaklab.heap.paths import Described, describe_path
from leaklab.heap.roles import with_reasons
from leaklab.heap.shortest_paths import ROOT, Start
from leaklab.heap.view import HeapView
from leaklab.model import RootPath, Status
from leaklab.model.alive import AlivePath, Counts, Cut, CutReference, Hold, Retained, WhyAliveRecord
from leaklab.model.paths import CycleCertainty
from leaklab.runtime.objects import is_kind_of, is_tensor, loaded_type, no_torch_functions, summary, type_name
from leaklab.runtime.sizes import storages_of
from leaklab.text import format_bytes, unit_words

VARIABLES = "notebook variable"
_INDEX = re.compile(r"\[(\d+)\]")
_HOLDS = {
    CycleCertainty.PROVED: Hold.IMMORTAL,
    CycleCertainty.PROBABLE: Hold.PROBABLE,
    CycleCertainty.GARBAGE: Hold.GARBAGE,
}
_SENTENCES = {
    Hold.GARBAGE: "no variable reaches it: a cycle of references keeps it, which the next collection frees",
    Hold.IMMORTAL: "no variable reaches it, and yet it is never freed: its cycle runs through autograd's C++ side",
    Hold.PROBABLE: "no variable reaches it; the likely reason is a cycle through autograd's C++ side, never freed",
    Hold.NOTHING: "nothing but this question held the object: it is freed as soon as the question is answered",
}
_MANY_PATHS = 32
"""So many are looked at to find those that are easy to understand."""
_CHEAPEST_UNKNOWN = 100  # more than any known start costs
_MANY_TIMES = 4
"""A view of less than this part of its storage is worth a remark."""
_WORTH_A_REMARK = 1 << 20


def explain_alive(view: HeapView, vertex: int, raw: RawCounts, *, asked: str, max_paths: int) -> WhyAliveRecord:
    """Return everything that is known about what keeps the object at *vertex* alive.

    *raw* has its reference counts as they were before the heap was looked at; *asked* is empty if there was no
    expression.
    """
    holders = holders_of(view, vertex)
    counts = explain_counts(view, holders, raw)
    references, n_references = direct_references(view, vertex, holders)
    walked, cut, pairs, wider = _ways(view, vertex, max_paths + 1)
    numbers = {vertex: 0}
    paths = tuple(alive_path(one, numbers, pairs) for one in walked[:max_paths])
    shown = {pair for one in walked[:max_paths] for pair in zip((-1, *one.vertices), one.vertices, strict=False)}
    shown |= {(view.namespace, held) for holder, held in shown if holder < 0}
    orphans = None if walked else group_orphans(view, [vertex])[0]
    hold = _hold(walked, orphans, counts)
    size = retained(view, [vertex])
    autograd, n_nodes = autograd_holders(view, vertex)
    return WhyAliveRecord(
        asked=asked,
        what=_what(view, vertex),
        hold=hold,
        reason=_reason(hold, len(walked), max_paths, counts, n_references),
        paths=paths,
        has_more_paths=len(walked) > max_paths,
        references=tuple(references),
        n_references=n_references,
        autograd=autograd,
        retained=Retained(size.exclusive_bytes, size.shared_bytes, size.n_objects, size.is_lower_bound),
        cut=cut,
        wider_cut=wider,
        counts=counts,
        fan_in=tuple(fan_in(view, _nearest_first(walked[:max_paths], numbers), shown)),
        cycle=_cycle(orphans),
        cycle_cut=None if orphans is None else orphans.cut,
        notes=tuple(_notes(view, vertex, counts, n_nodes - len(autograd), cut)),
        n_heap=view.n_heap,
    )


def explain_best_path(view: HeapView, vertex: int, raw: RawCounts, *, asked: str) -> WhyAliveRecord:
    """Return the best path to the object at *vertex*, and nothing more; all that is known where no root reaches it.

    *view* may be the part of the heap that `leaklab.heap.borrow.view_for_path` shows; all else is as in
    `explain_alive`.
    """
    vertices = view.path(vertex)
    if not vertices:
        return explain_alive(view, vertex, raw, asked=asked, max_paths=1)
    path = alive_path(walk_path(view, vertices), {vertex: 0}, ())
    return WhyAliveRecord(
        asked=asked,
        what=_what(view, vertex),
        hold=Hold.HELD,
        reason="the best path to the object (other paths, sizes and counts were not requested)",
        paths=(path,),
        has_more_paths=False,
        references=(),
        n_references=0,
        autograd=(),
        retained=Retained(0, 0, 0, is_lower_bound=True),
        cut=None,
        counts=Counts(0, ()),
        notes=(*view.notes, *_storage_note(view.objects[vertex])),
        only_path=True,
    )


def _what(view: HeapView, vertex: int) -> str:
    thing = view.objects[vertex]
    return " ".join(filter(None, (type_name(type(thing)), summary(thing) if view.summaries else "")))


def _ways(
    view: HeapView, vertex: int, limit: int
) -> tuple[list[WalkedPath], Cut | None, tuple[tuple[int, int], ...], Cut | None]:
    """Return the independent paths, the smallest cut, its references as vertices, and a smaller cut that takes more.

    The user's variables are kept where that leaves anything to cut: an object that two attributes of one trainer hold
    is held twice, and to delete the trainer is the last resort. Not where more would have to be cut than is shown: of a
    list of thousands of records it is the list that has to go.
    """
    if not view.is_reached(vertex):
        return [], None, (), None
    cut, pairs = cut_of(view, vertex, keeps_variables=True)
    least, least_pairs = cut_of(view, vertex, keeps_variables=False)
    keeps_variables = 0 < len(cut.references) < limit or not least.references
    walked = _paths(view, vertex, limit, keeps_variables=keeps_variables)
    if not keeps_variables:
        return walked, least, least_pairs, None
    is_smaller = 0 < len(least.references) < len(cut.references)
    return walked, cut, pairs, least if is_smaller else None


def _paths(view: HeapView, vertex: int, limit: int, *, keeps_variables: bool) -> list[WalkedPath]:
    """Return the independent paths, the one that is easiest to understand first."""
    found = independent_paths(view, vertex, max(limit, _MANY_PATHS), keeps_variables=keeps_variables)
    walked = [walk_path(view, vertices) for vertices in found]
    return sorted(walked, key=lambda one: _effort(view, one))


def _effort(view: HeapView, walked: WalkedPath) -> tuple[int, bool, bool, int]:
    """Return what says how easily a path is understood: from a variable, in Python, through a module, short."""
    cost = _CHEAPEST_UNKNOWN if walked.start is None else walked.start.cost
    is_part = any(view.is_torch_module(vertex) for vertex in walked.step_vertices[-2:-1])
    return cost, not walked.described.code, not is_part, len(walked.vertices)


def _nearest_first(walked: list[WalkedPath], numbers: dict[int, int]) -> dict[int, int]:
    """Return the numbers of the objects on the paths, in turns from each path, the nearest to its end first."""
    backwards = (reversed(one.step_vertices) for one in walked)
    return {vertex: numbers[vertex] for turn in zip_longest(*backwards) for vertex in turn if vertex is not None}


def _hold(walked: list[WalkedPath], orphans: Orphans | None, counts: Counts) -> Hold:
    if walked or orphans is None:
        return Hold.HELD
    if orphans.certainty is not CycleCertainty.UNSEEN:
        return _HOLDS[orphans.certainty]
    return Hold.UNSEEN if counts.python > 0 or (counts.use_count or 0) > 1 else Hold.NOTHING


def _reason(hold: Hold, n_paths: int, max_paths: int, counts: Counts, n_references: int) -> str:
    if hold is Hold.HELD:
        if n_paths > max_paths:
            return f"more than {max_paths} independent paths lead to it"
        return "one path leads to it" if n_paths == 1 else f"{n_paths} independent paths lead to it"
    if hold is not Hold.UNSEEN:
        return _SENTENCES[hold]
    owners = "" if counts.use_count is None else f", torch counts {counts.use_count} in C++"
    seen = "no reference to it can be seen" if not n_references else f"{_references(n_references)} to it can be seen"
    return (
        f"neither a variable nor a cycle keeps it: Python counts {_references(counts.python)}{owners}; {seen}, so its "
        "holder is invisible: C or C++ code, or a place that leaklab cannot read"
    )


@dataclass(frozen=True, slots=True)
class WalkedPath:
    """A path as vertices and as words.

    Attributes:
        vertices: Root first; the first may be a namespace, which is no step.
        described: The steps and their expressions.
        start: Where it begins; None where that is unknown.
        namespace: The vertex of the user's variables, -1 if there is none.
    """

    vertices: tuple[int, ...]
    described: Described
    start: Start | None
    namespace: int

    @property
    def step_vertices(self) -> tuple[int, ...]:
        """For each step the vertex of its object."""
        return tuple(self.vertices[position] for position in self.described.positions)

    def cut_at(self, references: Collection[tuple[int, int]]) -> tuple[int, ...]:
        """Return the steps between whose object and the one before lies one of *references*, holder and held."""
        wanted = {(self._holder_of(holder), held) for holder, held in references}
        pairs = list(zip((ROOT, *self.vertices), self.vertices, strict=False))
        found, first = [], 0
        for number, position in enumerate(self.described.positions):
            if any((self._holder_of(holder), held) in wanted for holder, held in pairs[first : position + 1]):
                found.append(number)
            first = position + 1
        return tuple(found)

    def _holder_of(self, vertex: int) -> int:
        """Return the root for the namespace: paths may begin at it, or at the value of one of its variables."""
        return ROOT if vertex == self.namespace else vertex


def walk_path(view: HeapView, vertices: Sequence[int]) -> WalkedPath:
    """Describe the path along *vertices*, root first."""
    things = [view.objects[vertex] for vertex in vertices]
    unknown, name_key = [Status.UNKNOWN] * len(things), view.key_names(vertices)
    if vertices[0] == view.namespace:
        start = _variable_start(view, vertices)
        described = describe_path(things, VARIABLES, "", unknown, summaries=view.summaries, name_key=name_key)
    else:
        start = start_of(view, vertices[0])
        expression = None if start is None else start.expression_for(things[0])
        root = "unknown root" if start is None else start.words
        described = describe_path(things, root, expression, unknown, summaries=view.summaries, name_key=name_key)
    shown = [things[position] for position in described.positions]
    in_graph = [bool(view.in_graph[vertices[position]]) for position in described.positions]
    steps = tuple(with_reasons(described.path.steps, shown, in_graph, start))
    path = replace(described.path, steps=steps)
    return WalkedPath(tuple(vertices), replace(described, path=path), start, view.namespace)


def start_of(view: HeapView, vertex: int) -> Start | None:
    """Return the best known root that begins at *vertex*, None if none does."""
    address = int(view.index.ids[vertex])
    found = [start for start in view.starts if start.address == address]
    return min(found, key=lambda start: start.cost, default=None)


def _variable_start(view: HeapView, vertices: Sequence[int]) -> Start | None:
    return start_of(view, vertices[1]) if len(vertices) > 1 else None


def alive_path(walked: WalkedPath, numbers: dict[int, int], cut: Collection[tuple[int, int]]) -> AlivePath:
    """Return the record of *walked*; *numbers* gives each vertex its number and is added to."""
    described, start = walked.described, walked.start
    places = tuple(numbers.setdefault(vertex, len(numbers)) for vertex in walked.step_vertices)
    return AlivePath(
        described.path,
        _holder(walked),
        described.expressions[-1] or "",
        places,
        walked.cut_at(cut),
        remark_on(start, described.path),
    )


def _holder(walked: WalkedPath) -> str:
    """Return the expression for what refers to the object asked about."""
    expressions = walked.described.expressions
    if len(expressions) > 1:
        return expressions[-2] or ""
    start = walked.start
    if start is None or start.is_variable:
        return "globals()" if start is not None else ""
    return start.expression if start.is_place and len(walked.vertices) > 1 else ""


def cut_of(view: HeapView, vertex: int, *, keeps_variables: bool) -> tuple[Cut, tuple[tuple[int, int], ...]]:
    """Return the smallest cut that lets the object at *vertex* go, and its references as vertices."""
    found = smallest_cut(view, [vertex], keeps_variables=keeps_variables)
    freed = freed_without(view, found.references)
    size = size_of_freed(view, freed.tolist())
    ordered = sorted(found.references, key=lambda pair: _position(view, pair))
    cut = Cut(
        references=tuple(_reference(view, holder, held) for holder, held in ordered),
        is_exact=found.is_exact,
        frees_object=bool((freed == vertex).any()),
        n_freed=len(freed),
        freed_bytes=size.exclusive_bytes,
        is_lower_bound=size.is_lower_bound,
        obstacle=found.obstacle,
    )
    return cut, found.references


def _position(view: HeapView, pair: tuple[int, int]) -> tuple[bool, int, int]:
    """Put the statements in an order in which each can be run.

    Variables go last, since others may be reached by their names; of one list the references from its end, since each
    deletion moves what comes after it.
    """
    holder, held = pair
    is_root = holder in (ROOT, view.namespace)
    if is_root or not is_kind_of(view.objects[holder], list):
        return is_root, holder, 0
    names = name_references(view.objects[holder], view.objects[held])
    match = _INDEX.fullmatch(names[-1].text) if names else None
    return is_root, holder, -int(match[1]) if match else 0


def _reference(view: HeapView, holder: int, held: int) -> CutReference:
    thing = view.objects[held]
    target = " ".join(filter(None, (type_name(type(thing)), summary(thing) if view.summaries else "")))
    if holder == ROOT:
        return _of_root(view, held, target)
    described = view.describe_child(holder, thing)
    step, expression = described.path.steps[-1], described.expressions[-1]
    owner = (described.expressions[-2] or "") if len(described.expressions) > 1 else ""
    if not owner:
        above = described.path.steps[:-1]
        owner = " ".join(step.reference for step in above) or described.path.root
    places = _places(view, holder, held)
    if len(places) > 1 or expression is None:
        expressions: Sequence[str] = places
    else:
        expressions = (expression,)
    advice, is_statement = release_statement(view.objects[holder], step.reference, expressions, owner)
    return CutReference(owner, step.reference, target, advice, is_statement)


def _places(view: HeapView, holder: int, held: int) -> tuple[str, ...]:
    """Return an expression for each place in which the holder has the object, the last place first; maybe none."""
    source, thing = view.objects[holder], view.objects[held]
    if holder == view.namespace:
        return tuple(key for key in keys_of(source, thing) if is_name(key))  # type: ignore[arg-type,misc]
    base = view.describe(holder).expressions[-1] if view.is_reached(holder) else None
    names: list[Reference] = name_references(source, thing)
    if not base or len(names) >= MAX_NAMES:
        return ()
    return tuple(f"{base}{name.suffix}" for name in reversed(names) if name.suffix is not None)


def _of_root(view: HeapView, held: int, target: str) -> CutReference:
    start = start_of(view, held)
    if start is None:
        return CutReference("the interpreter", "", target, "a root without a name holds it", is_statement=False)
    if start.is_variable:
        known = _places(view, view.namespace, held) if view.namespace >= 0 else ()
        names = known or (start.expression,)
        advice, is_statement = release_statement({}, names[0], names, "globals()")
        return CutReference("globals()", names[0], target, advice, is_statement)
    advice = f"del {start.expression}" if is_deletable(start.expression) else f"release it: {start.words} holds it"
    return CutReference(start.words, start.expression, target, advice, advice.startswith("del "))


def is_deletable(expression: str) -> bool:
    """Return whether ``del`` takes *expression*: a call is none."""
    return bool(expression) and not expression.endswith(")")


def _references(count: int) -> str:
    return f"{count:,} reference{'' if count == 1 else 's'}"


def _cycle(orphans: Orphans | None) -> RootPath | None:
    """Return the cycle; all of it is leaked, for nothing that has a reason to be alive refers to it."""
    if orphans is None or not orphans.cycle:
        return None
    return replace(orphans.path, steps=tuple(replace(step, status=Status.LEAKED) for step in orphans.path.steps))


def _notes(view: HeapView, vertex: int, counts: Counts, n_nodes_left_out: int, cut: Cut | None) -> list[str]:
    notes = list(view.notes)
    if counts.n_unexplained > 0:
        notes.append(
            f"unexplained: {counts.n_unexplained} of {_references(counts.python)} in Python, which may belong to C "
            "code, to an expression that is being evaluated, or to an array of objects that the collector does not "
            "track"
        )
    if counts.n_unexplained < 0:
        notes.append("more references were found than Python counts: the heap changed while it was read")
    if counts.n_unexplained_cpp > 0:
        notes.append(
            f"unexplained: {counts.n_unexplained_cpp} of {counts.use_count} C++ owners, which may belong to a graph "
            "whose tensors no longer exist in Python, to TorchScript, to a future, or to C++ code of another thread"
        )
    if n_nodes_left_out > 0:
        notes.append(f"{unit_words(n_nodes_left_out, 'more autograd nodes')} hold{'s' * (n_nodes_left_out == 1)} it")
    if cut is not None and cut.references and not cut.frees_object:
        notes.append(
            "cutting these references is not enough: an object that no root reaches, or a fixed reference, "
            "also holds it"
        )
    notes += _storage_note(view.objects[vertex])
    return notes


def _storage_note(thing: object) -> list[str]:
    """Say so where a tensor shows a small part of a big storage."""
    if not is_tensor(thing):
        return []
    stored = sum(size for _key, size in storages_of(thing) or ())
    shown = _shown_bytes(thing)
    if shown is None or stored < _WORTH_A_REMARK or stored < shown * _MANY_TIMES:
        return []
    words = f"it is a view of {format_bytes(shown)}, but keeps the whole storage of {format_bytes(stored)} alive"
    return [f"{words}: store a copy of the part that is needed, .clone()"]


def _shown_bytes(tensor: object) -> int | None:
    base: Any = loaded_type("torch", "Tensor")
    with no_torch_functions():
        try:
            return int(base.numel(tensor)) * int(base.element_size(tensor))
        except (RuntimeError, TypeError):
            return None
