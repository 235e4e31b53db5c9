"""Find the cycles that keep unreachable objects alive, and write them edge by edge."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from leaklab.explain.folding import fold
from leaklab.explain.paths import fingerprint
from leaklab.explain.references import Reference
from leaklab.explain.region import Region
from leaklab.explain.view import HeapView
from leaklab.model import RootPath, Status, Step
from leaklab.objects import is_tensor, loaded_type, summary, type_name

CYCLE_ROOT = "reference cycle that no variable reaches"
UNSEEN_ROOT = "no reference in Python"

_MAX_WRITTEN = 50
"""So many cycles of the same types are written out; of more the others count as the commonest of these."""
_MAX_STEPS = 30
"""A longer cycle is cut in its middle."""
_CLOSED = "the first object again: the cycle is closed"


@dataclass(slots=True)
class Orphans:
    """Survivors that no root reaches, and that one kind of cycle, or nothing visible, keeps.

    Attributes:
        cycle: Vertices of one such cycle, in the order of their references; empty if none was found.
        path: The cycle in words, back to its first object; without steps if nothing visible holds the survivors.
        crosses_hidden: Whether the cycle runs through references that the collector does not see.
        members: The survivors.
        fingerprint: The same for the same kind of cycle tomorrow.
    """

    cycle: list[int]
    path: RootPath
    crosses_hidden: bool
    members: list[int] = field(default_factory=list)
    fingerprint: str = ""


def group_orphans(view: HeapView, orphans: list[int]) -> list[Orphans]:
    """Group the unreached survivors by the kind of cycle that keeps them, or by what is at the top where none does."""
    if not orphans:
        return []
    region = Region(view.index, view.tree.root_of < 0, view.leaked)
    in_cycles, others = region.by_cycle(orphans)
    by_place: dict[str, Orphans] = {}
    for found in (*_in_cycles(view, region, in_cycles), *_unseen(view, region, others)):
        by_place.setdefault(found.fingerprint, found).members.extend(found.members)
    for found in by_place.values():
        found.members = list(dict.fromkeys(found.members))
    return list(by_place.values())


def _in_cycles(view: HeapView, region: Region, in_cycles: dict[int, list[int]]) -> Iterator[Orphans]:
    """Yield the orphans of each kind of cycle.

    A cell that leaves thousands of cycles leaves thousands of the same: those made of the same types are not all
    written out to find that out.
    """
    by_types: dict[bytes, list[int]] = defaultdict(list)
    newest_first = sorted(in_cycles, key=lambda component: -int(view.run_of[in_cycles[component]].max()))
    for component in newest_first:
        by_types[np.sort(view.kinds[region.members_of(component)]).tobytes()].append(component)
    for components in by_types.values():
        places: dict[str, Orphans] = {}
        counts: Counter[str] = Counter()
        for component in components[:_MAX_WRITTEN]:
            found = _write_cycle(view, region, component)
            places.setdefault(found.fingerprint, found).members.extend(in_cycles[component])
            counts[found.fingerprint] += 1
        commonest = places[counts.most_common(1)[0][0]]
        for component in components[_MAX_WRITTEN:]:
            commonest.members.extend(in_cycles[component])
        yield from places.values()


def _write_cycle(view: HeapView, region: Region, component: int) -> Orphans:
    cycle = region.shortest_cycle(_plainest(view, region.members_of(component).tolist()))
    things = [view.objects[vertex] for vertex in [*cycle, cycle[0]]]
    hops = fold(things)
    steps = [_step(view, cycle[0], "")]
    steps += [_step(view, cycle[hop.end], hop.reference.text) for hop in hops[:-1]]
    steps.append(_step(view, cycle[0], hops[-1].reference.text, _CLOSED))
    ends = [0, *(hop.end for hop in hops)]
    # A set: neither the object that the cycle is read from nor its length makes it another leak.
    stable = {f"{type_name(type(things[end]))}{hop.reference.stable}" for end, hop in zip(ends, hops, strict=False)}
    hidden = any(vertex >= view.n_heap for vertex in cycle) or any(
        _is_hidden(things[end], hop.reference) for end, hop in zip(ends, hops, strict=False)
    )
    return Orphans(
        cycle, RootPath(CYCLE_ROOT, _shortened(steps)), hidden, [], fingerprint([CYCLE_ROOT, *sorted(stable)])
    )


def _is_hidden(holder: object, reference: Reference) -> bool:
    """Return whether C++ has a share in a reference: of autograd, or of a tensor's hooks, which its graph owns too."""
    return reference.kind == "hidden" or (is_tensor(holder) and _is_owned_by_graph(holder, reference.text))


def _is_owned_by_graph(tensor: Any, reference: str) -> bool:
    """Return whether the hooks that *tensor* shows belong to its graph: those of a result do, and those that wait."""
    leaf: bool = loaded_type("torch", "Tensor").is_leaf.__get__(tensor)  # type: ignore[union-attr]  # tensors exist
    return reference.startswith("._post_accumulate_grad_hooks") or (
        reference.startswith("._backward_hooks") and not leaf
    )


def _shortened(steps: list[Step]) -> tuple[Step, ...]:
    if len(steps) <= _MAX_STEPS:
        return tuple(steps)
    head, tail = steps[: _MAX_STEPS // 2], steps[-(_MAX_STEPS // 2) :]
    left_out = Step(f"(… {len(steps) - _MAX_STEPS:,} more objects …)", "", "", Status.LEAKED)
    return (*head, left_out, *tail)


def _plainest(view: HeapView, vertices: list[int]) -> int:
    """Return the object of a cycle that a reader knows best: the one to begin with."""
    ranks: dict[int, tuple[int, str]] = {}
    for vertex in vertices:
        kind = type(view.objects[vertex])
        if id(kind) not in ranks:
            ranks[id(kind)] = _plainness(kind), type_name(kind)
    return min(vertices, key=lambda vertex: (ranks[id(type(view.objects[vertex]))], vertex))


def _plainness(kind: type) -> int:
    """Rank how little a reader knows a type: classes of the user first, then torch's, then containers."""
    name = type_name(kind)
    if any(kind is container for container in _CONTAINERS) or ("." not in name and name in _INNARDS):
        return 3
    if name.startswith("torch.nn.modules"):
        return 1
    return 2 if name.startswith("torch.") else 0


_CONTAINERS = (dict, list, tuple, set)
_INNARDS = ("cell", "function", "method", "frame")


def _unseen(view: HeapView, region: Region, orphans: list[int]) -> Iterator[Orphans]:
    """Yield the orphans that no cycle keeps, by the types of what nothing visible refers to."""
    if not orphans:
        return
    path = RootPath(UNSEEN_ROOT, ())
    for top, members in region.hanging_together(orphans):
        kinds = sorted({type_name(type(view.objects[vertex])) for vertex in top})
        yield Orphans([], path, crosses_hidden=False, members=members, fingerprint=fingerprint([UNSEEN_ROOT, *kinds]))


def _step(view: HeapView, vertex: int, reference: str, note: str = "") -> Step:
    thing = view.objects[vertex]
    status = Status.LEAKED if view.leaked[vertex] else Status.UNKNOWN
    return Step(reference, type_name(type(thing)), summary(thing), status, note)
