"""Read from the borrowed objects of one leak what an inspector wants to know beside the path."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import psutil

from leaklab.explain.leaks.evidence import Facts
from leaklab.explain.leaks.twins import original_of
from leaklab.explain.leaks.user_lines import find_line
from leaklab.explain.paths.paths import Described
from leaklab.explain.paths.roles import Role
from leaklab.explain.view import HeapView
from leaklab.objects import is_kind_of, is_tensor, loaded_type, no_torch_functions


def facts_of(
    view: HeapView,
    described: Described | None,
    members: Sequence[int] = (),
    entries: Sequence[int] = (),
    *,
    sample: int = -1,
    holder: str = "",
    bytes_per_entry: float = 0.0,
) -> Facts:
    """Return the facts of a leak.

    Args:
        view: The heap.
        described: The path to one of the leaked objects, as ``view.describe`` returned it; None for orphans.
        members: The vertices that leak.
        entries: Those of them that the holder refers to itself.
        sample: The one that the path leads to, -1 if it leads to none of them.
        holder: Expression of the holder, by which the user's line is found.
        bytes_per_entry: Of a container that grows, bytes of one new entry.
    """
    workers = _workers()
    return Facts(
        roles=() if described is None else described.roles,
        original=original_of(view, members),
        n_workers=len(workers),
        worker_bytes=sum(workers),
        gone_parameters=_gone_parameters(view, described, sample),
        line=find_line(holder) if holder else None,
        bytes_per_entry=bytes_per_entry,
        is_scalar=_are_scalars(view, members, entries),
    )


def _workers() -> list[int]:
    """Return the resident bytes of each child process of this one, as far as the system tells."""
    try:
        children = psutil.Process().children(recursive=True)
    except psutil.Error:
        return []
    return [size for size in map(_resident_bytes, children) if size]


def _resident_bytes(child: psutil.Process) -> int:
    try:
        return int(child.memory_info().rss)
    except psutil.Error:  # it has just ended
        return 0


def _gone_parameters(view: HeapView, described: Described | None, sample: int) -> int:
    """Return how many of the parameters that an optimizer on the path has state for are in none of its groups."""
    if described is None or sample < 0 or not any(Role.OPTIMIZER in roles for roles in described.roles):
        return 0
    optimizer_type = loaded_type("torch.optim", "Optimizer")
    vertices = view.path(sample)
    for vertex in vertices:
        thing = view.objects[vertex]
        if optimizer_type is not None and is_kind_of(thing, optimizer_type):
            return _n_gone(thing)
    return 0


def _n_gone(optimizer: Any) -> int:
    attributes: Any = object.__getattribute__(optimizer, "__dict__")
    state, groups = attributes.get("state"), attributes.get("param_groups")
    if not is_kind_of(state, dict) or type(groups) is not list:
        return 0
    updated = {id(p) for group in groups if type(group) is dict for p in gc.get_referents(group.get("params", ()))}
    return sum(1 for parameter in dict.keys(state) if is_tensor(parameter) and id(parameter) not in updated)


def _are_scalars(view: HeapView, members: Sequence[int], entries: Sequence[int]) -> bool:
    """Return whether every stored tensor has one element: those that the holder or a container in it refers to.

    What only a graph keeps was not stored by the user. Where the holder is itself a tensor, and its graph is what
    leaks, it is the stored one: of a state carried from run to run the older ones are left to the graph.
    """
    base: Any = loaded_type("torch", "Tensor")
    above = (int(view.tree.parent[entry]) for entry in entries)
    stored = [v for v in above if v >= 0 and view.is_tensor[v]]
    own = frozenset(entries)
    stored += [v for v in {*members, *own} if view.is_tensor[v] and _is_stored(view, v, own)]
    with no_torch_functions():
        return bool(stored) and all(base.numel(view.objects[vertex]) == 1 for vertex in stored)


def _is_stored(view: HeapView, tensor: int, entries: frozenset[int]) -> bool:
    """Return whether neither an autograd node nor another tensor stands between *tensor* and the holder."""
    vertex = tensor
    while vertex not in entries:
        vertex = int(view.tree.parent[vertex])
        if vertex < 0:
            return True
        if view.in_graph[vertex] or view.is_tensor[vertex]:
            return False
    return True
