"""Find the cycles that keep unreachable objects alive, and write them edge by edge."""

from __future__ import annotations

import types
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.explain.cycles.cuts import best_offer
from leaklab.explain.cycles.region import Region, RegionReferences
from leaklab.heap.folding import Hop, fold
from leaklab.heap.paths import fingerprint, place_of, summary_of
from leaklab.heap.view import HeapView
from leaklab.model import RootPath, Status, Step
from leaklab.model.paths import CycleCertainty, CycleCut
from leaklab.runtime.autograd_graph import is_node_type
from leaklab.runtime.node_hooks import TENSOR_HOOKS
from leaklab.runtime.objects import type_name

CYCLE_ROOT = "reference cycle that no variable reaches"
UNSEEN_ROOT = "held by something that is not seen from Python"
TOP = "its top"
"""Stands for the reference to what nothing visible refers to."""
ENTRY = "its entry"
"""The same where a registry is known, or suspected, to have it."""
_MAX_WRITTEN = 50
"""So many cycles of the same types are written out; of more the others count as the commonest of these."""
_MAX_STEPS = 30
"""A longer cycle is cut in its middle."""
_MAX_TRIED = 64
"""Through so many references of C++ a shortest cycle is looked for."""
_CLOSED = "the first object again: the cycle is closed"
_ASSUMED = "a hook's owner cannot be read: this graph is the likely one"
_CONTAINERS = (dict, list, tuple, set)
_INNARDS = ("cell", "function", "method", "frame")
_INNARD_MODULES = ("collections.", "functools.", "numpy.", "weakref.")


@dataclass(slots=True)
class Orphans:
    """Survivors that no root reaches, and that one kind of cycle, or nothing visible, keeps.

    Attributes:
        cycle: Vertices of one such cycle, in the order of their references; empty if none keeps them.
        path: The cycle in words, back to its first object; without steps if nothing visible holds the survivors.
        certainty: How sure it is that a cycle keeps them, and that no collection frees it.
        cut: Where the cycle is cut best; None without a cycle, or if no rule applies to any of its references.
        members: The survivors.
        fingerprint: The same for the same kind of cycle tomorrow.
    """

    cycle: list[int]
    path: RootPath
    certainty: CycleCertainty
    cut: CycleCut | None = None
    members: list[int] = field(default_factory=list)
    fingerprint: str = ""

    @property
    def crosses_hidden(self) -> bool:
        """Whether a cycle keeps them that runs through references which the collector does not see."""
        return self.certainty in (CycleCertainty.PROVED, CycleCertainty.PROBABLE)


@dataclass(frozen=True, slots=True)
class _FoundRegion:
    """A region with its cycles of one certainty.

    Attributes:
        region: The region; one with assumed references for `CycleCertainty.PROBABLE`.
        crossing: Which of its references make the cycles what they are; None where any does.
        certainty: How sure it is that no collection frees them.
    """

    region: Region
    crossing: npt.NDArray[np.bool_] | None
    certainty: CycleCertainty


@dataclass(frozen=True, slots=True)
class Immortal:
    """One proved immortal cycle.

    Attributes:
        references: Those of the region it lies in.
        component: Its strongly connected component.
        orphans: The cycle in words.
    """

    references: RegionReferences
    component: int
    orphans: Orphans


def immortal_cycles(view: HeapView) -> Iterator[Immortal]:
    """Yield every immortal cycle of a heap, each by itself, whoever made it and when."""
    region = Region(view.index, view.tree.root_of < 0, view.leaked)
    references = RegionReferences(view, region)
    found = _FoundRegion(region, references.crossing, CycleCertainty.PROVED)
    for component in np.flatnonzero(references.immortal).tolist():
        yield Immortal(references, component, _write_cycle(view, found, component))


def group_orphans(view: HeapView, orphans: list[int]) -> list[Orphans]:
    """Group the unreached survivors by the kind of cycle that keeps them, or by what is at the top where none does."""
    if not orphans:
        return []
    by_place: dict[str, Orphans] = {}
    for found in _by_certainty(view, orphans):
        one = by_place.setdefault(found.fingerprint, found)
        one.members.extend(found.members)
        if one.path != found.path and one.path.root == UNSEEN_ROOT:  # several callbacks: none of them stands for all
            one.path = RootPath(UNSEEN_ROOT, tuple(replace(step, summary="") for step in one.path.steps))
    for found in by_place.values():
        found.members = list(dict.fromkeys(found.members))
    return list(by_place.values())


def _by_certainty(view: HeapView, orphans: list[int]) -> Iterator[Orphans]:
    """Yield the orphans, the proved ones first; a cycle is assumed only where nothing else explains them."""
    unreached = view.tree.root_of < 0
    region = Region(view.index, unreached, view.leaked)
    references = RegionReferences(view, region)
    kept, others = region.by_cycle(orphans, references.immortal)
    # What could not be looked at may reach the cycle.
    sure = CycleCertainty.PROBABLE if view.notes else CycleCertainty.PROVED
    yield from _in_cycles(view, _FoundRegion(region, references.crossing, sure), kept)
    is_held = references.is_held[region.places_of(others)]
    held = [orphan for orphan, is_it in zip(others, is_held, strict=True) if is_it]
    waiting = [orphan for orphan, is_it in zip(others, is_held, strict=True) if not is_it]
    garbage, rest = region.by_cycle(waiting)
    yield from _in_cycles(view, _FoundRegion(region, None, CycleCertainty.GARBAGE), garbage)
    yield from _held(view, unreached, references, held + rest)


def _held(
    view: HeapView, unreached: npt.NDArray[np.bool_], references: RegionReferences, orphans: list[int]
) -> Iterator[Orphans]:
    """Yield what nothing visible explains: the cycles there would be if graphs owned the likely hooks, and the rest."""
    assumed = references.assumed_owners() if orphans else []
    if assumed:
        region = Region(view.index, unreached, view.leaked, assumed)
        likely = region.numbers < 0
        kept, orphans = region.by_cycle(orphans, region.cycles_with(likely))
        yield from _in_cycles(view, _FoundRegion(region, likely, CycleCertainty.PROBABLE), kept)
    yield from _unseen(view, references, orphans)


def _in_cycles(view: HeapView, found: _FoundRegion, in_cycles: dict[int, list[int]]) -> Iterator[Orphans]:
    """Yield the orphans of each kind of cycle.

    A cell that leaves thousands of cycles leaves thousands of the same: those made of the same types are not all
    written out to find that out.
    """
    by_types: dict[bytes, list[int]] = defaultdict(list)
    newest_first = sorted(in_cycles, key=lambda component: -int(view.birth_run[in_cycles[component]].max()))
    for component in newest_first:
        by_types[np.sort(view.kinds[found.region.members_of(component)]).tobytes()].append(component)
    for components in by_types.values():
        places: dict[str, Orphans] = {}
        counts: Counter[str] = Counter()
        for component in components[:_MAX_WRITTEN]:
            written = _write_cycle(view, found, component)
            places.setdefault(written.fingerprint, written).members.extend(in_cycles[component])
            counts[written.fingerprint] += 1
        commonest = places[counts.most_common(1)[0][0]]
        for component in components[_MAX_WRITTEN:]:
            commonest.members.extend(in_cycles[component])
        yield from places.values()


def _write_cycle(view: HeapView, found: _FoundRegion, component: int) -> Orphans:
    cycle = cycle_of(view, found.region, component, found.crossing)
    things = [view.objects[vertex] for vertex in [*cycle, cycle[0]]]
    hops = fold(things)
    notes = _notes(things, hops, is_assumed=found.certainty is CycleCertainty.PROBABLE and not view.notes)
    steps = [_step(view, cycle[0], "")]
    steps += [
        _step(view, cycle[hop.end], hop.reference.text, note) for hop, note in zip(hops[:-1], notes, strict=False)
    ]
    steps.append(_step(view, cycle[0], hops[-1].reference.text, notes[-1]))
    ends = [0, *(hop.end for hop in hops)]
    # A set: neither the object that the cycle is read from nor its length makes it another leak.
    stable = {f"{type_name(type(things[end]))}{hop.reference.stable}" for end, hop in zip(ends, hops, strict=False)}
    offer = best_offer(things[:-1])
    # A result's own hook is immortal, a leaf's is garbage: the same references make two kinds of cycle.
    kind = [CYCLE_ROOT, *sorted(stable), *([found.certainty] if found.certainty is CycleCertainty.GARBAGE else [])]
    return Orphans(
        cycle,
        RootPath(CYCLE_ROOT, _shortened(steps)),
        found.certainty,
        None if offer is None else offer.cut,
        fingerprint=fingerprint(kind),
    )


def _notes(things: list[Any], hops: list[Hop], *, is_assumed: bool) -> list[str]:
    """Return a note for each hop: where the functions in it were written, and what is assumed or closed."""
    notes: list[str] = []
    before = 0
    for hop in hops:
        words = [*dict.fromkeys(filter(None, (place_of(thing) for thing in things[before : hop.end + 1])))]
        if is_assumed and hop.reference.text == TENSOR_HOOKS:
            words.append(_ASSUMED)
        notes.append("; ".join(words))
        before = hop.end + 1
    notes[-1] = "; ".join(filter(None, (notes[-1], _CLOSED)))
    return notes


def cycle_of(view: HeapView, region: Region, component: int, crossing: npt.NDArray[np.bool_] | None) -> list[int]:
    """Return a shortest cycle of *component*, which passes one of the references *crossing*, as vertices.

    It begins with the object most familiar to a reader.
    """
    members = region.members_of(component).tolist()
    cycle = region.shortest_cycle(_plainest(view, members))
    if crossing is None:
        return cycle
    inner = region.references_within(component)
    inner = inner[crossing[inner]]
    pairs = list(
        dict.fromkeys(
            zip(
                region.vertices[region.sources[inner]].tolist(),
                region.vertices[region.targets[inner]].tolist(),
                strict=True,
            )
        )
    )
    if set(zip(cycle, [*cycle[1:], cycle[0]], strict=True)) & set(pairs):
        return cycle
    cycles = [region.shortest_cycle(source, by=target) for source, target in pairs[:_MAX_TRIED]]
    best = min(cycles, key=len)
    first = best.index(_plainest(view, best))
    return best[first:] + best[:first]


def _shortened(steps: list[Step]) -> tuple[Step, ...]:
    if len(steps) <= _MAX_STEPS:
        return tuple(steps)
    head, tail = steps[: _MAX_STEPS // 2], steps[-(_MAX_STEPS // 2) :]
    left_out = Step(f"(… {len(steps) - _MAX_STEPS:,} more objects …)", "", "", Status.LEAKED)
    return (*head, left_out, *tail)


def _plainest(view: HeapView, vertices: list[int]) -> int:
    """Return the object of a cycle that is most familiar to a reader: the one to begin with."""
    ranks: dict[int, tuple[int, str]] = {}
    for vertex in vertices:
        kind = type(view.objects[vertex])
        if id(kind) not in ranks:
            ranks[id(kind)] = _plainness(kind), type_name(kind)
    return min(vertices, key=lambda vertex: (ranks[id(type(view.objects[vertex]))], vertex))


def _plainness(kind: type) -> int:
    """Rank how unfamiliar a type is: classes of the user first, then torch's, then containers, nodes."""
    name = type_name(kind)
    if is_node_type(kind):
        return 4
    if any(kind is container for container in _CONTAINERS) or name in _INNARDS or name.startswith(_INNARD_MODULES):
        return 3
    if name.startswith("torch.nn.modules"):
        return 1
    return 2 if name.startswith("torch.") else 0


def _unseen(view: HeapView, references: RegionReferences, orphans: list[int]) -> Iterator[Orphans]:
    """Yield the orphans that no cycle keeps, by the types of what nothing visible refers to."""
    if not orphans:
        return
    for top, members in references.region.hanging_together(orphans):
        things = [view.objects[vertex] for vertex in top]
        # Of a class, which refers to itself, or of another cycle nothing is at the top: then what C holds is.
        held = [view.objects[vertex] for vertex in references.held_from_outside(members)] if not top else things
        path = RootPath(UNSEEN_ROOT, top_steps(held))
        yield Orphans([], path, CycleCertainty.UNSEEN, members=members, fingerprint=unseen_fingerprint(things))


def unseen_fingerprint(top: Iterable[object]) -> str:
    """Return the fingerprint of what nothing visible holds, by the types of the objects that nothing refers to."""
    return fingerprint([UNSEEN_ROOT, *sorted({type_name(type(thing)) for thing in top})])


def top_steps(top: Sequence[object]) -> tuple[Step, ...]:
    """Return the step to what nothing visible refers to: a callback by its name, of methods of one class that class."""
    names = {_callback_name(thing) for thing in top}
    kinds = Counter(type_name(type(thing)) for thing in top)
    if len(names) == 1 and (name := names.pop()):
        return (Step(TOP, kinds.most_common(1)[0][0], name, Status.LEAKED),)
    owned = Counter(type_name(type(thing.__self__ if type(thing) is types.MethodType else thing)) for thing in top)
    return tuple(Step(TOP, name, "", Status.LEAKED) for name, _count in owned.most_common(1))


def _callback_name(thing: object) -> str:
    """Return the qualified name of a method or a function; empty for anything else."""
    function = thing.__func__ if type(thing) is types.MethodType else thing
    return function.__qualname__ if type(function) is types.FunctionType else ""


def _step(view: HeapView, vertex: int, reference: str, note: str = "") -> Step:
    thing = view.objects[vertex]
    status = Status.LEAKED if view.leaked[vertex] else Status.UNKNOWN
    return Step(reference, type_name(type(thing)), summary_of(thing), status, note)
