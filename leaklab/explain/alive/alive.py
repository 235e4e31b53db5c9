"""Answer why one object is alive: paths, holders, counts, retained bytes, the smallest cut."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from typing import Any

from leaklab.explain.alive.alive_cut import cut_of
from leaklab.explain.alive.alive_holders import direct_references, fan_in
from leaklab.explain.alive.alive_paths import WalkedPath, alive_path, walk_path
from leaklab.explain.alive.refcounts import RawCounts, explain_counts, holders_of
from leaklab.explain.autograd.autograd_holders import autograd_holders
from leaklab.explain.cycles.cycles import Orphans, group_orphans
from leaklab.explain.freeing.cuts import independent_paths
from leaklab.explain.freeing.retained import retained
from leaklab.explain.view import HeapView
from leaklab.model import RootPath, Status
from leaklab.model.alive import Alive, Counts, Cut, Hold, Retained
from leaklab.model.cycles import Stage
from leaklab.objects import is_tensor, loaded_type, no_torch_functions, summary, type_name
from leaklab.tensors import storages_of
from leaklab.words import format_bytes

_HOLDS = {Stage.PROVED: Hold.IMMORTAL, Stage.PROBABLE: Hold.PROBABLE, Stage.GARBAGE: Hold.GARBAGE}
_SENTENCES = {
    Hold.GARBAGE: "no variable reaches it: a cycle of references keeps it, which the next collection frees",
    Hold.IMMORTAL: "no variable reaches it, and yet it is never freed: its cycle runs through autograd's C++ side",
    Hold.PROBABLE: "no variable reaches it; the likely reason is a cycle through autograd's C++ side, never freed",
    Hold.NOTHING: "nothing but this question held it: it goes as soon as the answer is there",
}
_MANY_PATHS = 32
"""So many are looked at to find those that are easy to understand."""
_CHEAPEST_UNKNOWN = 100  # more than any known start costs
_MANY_TIMES = 4
"""A view of less than this part of its storage is worth a remark."""
_WORTH_A_REMARK = 1 << 20


def explain_alive(view: HeapView, vertex: int, raw: RawCounts, *, asked: str, max_paths: int) -> Alive:
    """Return everything that is known about what keeps the object at *vertex* alive.

    Args:
        view: The whole heap.
        vertex: The object.
        raw: Its reference counts as they were before the heap was looked at.
        asked: The expression that was asked about; empty if there was none.
        max_paths: How many independent paths to look for.
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
    thing = view.objects[vertex]
    return Alive(
        asked=asked,
        what=" ".join(filter(None, (type_name(type(thing)), summary(thing) if view.summaries else ""))),
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
    return sorted(
        walked, key=lambda one: (_CHEAPEST_UNKNOWN if one.start is None else one.start.cost, len(one.vertices))
    )


def _nearest_first(walked: list[WalkedPath], numbers: dict[int, int]) -> dict[int, int]:
    """Return the numbers of the objects on the paths, in turns from each path, the nearest to its end first."""
    backwards = (reversed(one.step_vertices) for one in walked)
    return {vertex: numbers[vertex] for turn in zip_longest(*backwards) for vertex in turn if vertex is not None}


def _hold(walked: list[WalkedPath], orphans: Orphans | None, counts: Counts) -> Hold:
    if walked or orphans is None:
        return Hold.HELD
    if orphans.stage is not Stage.UNSEEN:
        return _HOLDS[orphans.stage]
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
        f"no variable and no cycle keeps it: Python counts {_references(counts.python)}{owners}; {seen}, so what keeps "
        "it is out of sight: C or C++ code, or a place that leaklab cannot look into"
    )


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
            f"{counts.n_unexplained} of {_references(counts.python)} in Python stay unexplained: C code has them, an "
            "expression that is being evaluated, or an array of objects that the collector does not track"
        )
    if counts.n_unexplained < 0:
        notes.append("more references were found than Python counts: the heap changed while it was read")
    if counts.n_unexplained_cpp > 0:
        notes.append(
            f"{counts.n_unexplained_cpp} of {counts.use_count} C++ owners stay unexplained: a graph whose tensors are "
            "gone from Python, TorchScript, a future, or another thread's C++ code"
        )
    if n_nodes_left_out > 0:
        notes.append(f"{n_nodes_left_out:,} more autograd nodes hold it")
    if cut is not None and cut.references and not cut.frees_object:
        notes.append("the references named do not suffice: something that no root reaches, or a fixed part, has it too")
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
    words = f"it shows {format_bytes(shown)} of a storage of {format_bytes(stored)}, all of which it keeps"
    return [f"{words}: store a copy of the part that is needed, .clone()"]


def _shown_bytes(tensor: object) -> int | None:
    base: Any = loaded_type("torch", "Tensor")
    with no_torch_functions():
        try:
            return int(base.numel(tensor)) * int(base.element_size(tensor))
        except (RuntimeError, TypeError):
            return None
