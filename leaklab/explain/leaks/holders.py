"""Name the object that should let go, and choose the survivor to show."""

from __future__ import annotations

from collections.abc import Sequence

from leaklab.explain.leaks.groups import Group
from leaklab.explain.view import HeapView
from leaklab.model import RootPath
from leaklab.objects import type_name


def holder_of(view: HeapView, group: Group) -> tuple[str, str]:
    """Return the expression for the holder of *group*, or words for it, and the name of its type."""
    if group.holder < 0:
        return "globals()", "dict"
    described = view.describe(group.holder)
    kind = type_name(type(view.objects[group.holder]))
    if described.expressions and described.expressions[-1]:
        return described.expressions[-1], kind
    words = " ".join(step.reference for step in described.path.steps)
    return words or described.path.root, kind


def orphan_holder(path: RootPath) -> str:
    """Return words for a cycle that keeps itself: its first object, and the references around it."""
    if not path.steps:
        return "nothing in Python"
    references = (step.reference for step in path.steps[1:])
    hops = (one if one.startswith((".", "[")) else f" -> {one}" for one in references)
    return "".join((path.steps[0].kind, *hops))


def newest_leaked(view: HeapView, vertices: Sequence[int]) -> int:
    """Return the survivor with the shortest path among those born last: the easiest one to follow."""
    latest = max(int(view.credit_of[vertex]) for vertex in vertices)
    return min((v for v in vertices if view.credit_of[v] == latest), key=lambda v: (int(view.tree.cost[v]), v))
