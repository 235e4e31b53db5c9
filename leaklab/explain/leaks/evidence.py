"""Gather what is known of a leak before its cause is looked for; give reasons for statuses on paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import psutil

from leaklab.explain.cycles.cycles import Orphans
from leaklab.explain.leaks.copies import original_of
from leaklab.explain.leaks.groups import Group, holder_of, orphan_holder
from leaklab.explain.leaks.ownership import Owner, owners_of
from leaklab.explain.leaks.sizes import GroupSummary, has_optimizer
from leaklab.heap.known_holders import with_known_holders
from leaklab.heap.names.reference import Reference
from leaklab.heap.paths import Described
from leaklab.heap.roles import Role, roles_by_name
from leaklab.heap.view import BASELINE, HeapView
from leaklab.model import RootPath, Status, Step
from leaklab.model.paths import CycleCertainty, CycleCut
from leaklab.runtime.containers import items_in, keys_in
from leaklab.runtime.objects import is_kind_of, is_tensor, loaded_type, no_torch_functions, type_name
from leaklab.runtime.referents import get_referents


@dataclass(frozen=True, slots=True)
class Facts:
    """What only the live objects show, read while they were borrowed.

    Attributes:
        roles: For each step of the path the roles of its object; empty where nothing but the record is left.
        original: Expression of the object that the survivors are copies of; empty if they are none.
        children: Returns the resident bytes of each child process of this one; asked only where the words tell them,
            since the system reads of every process that runs to find them.
        gone_parameters: How many parameters an optimizer on the path keeps state for without updating them.
        owners: For each step of the path whose its object is; empty where nothing but the record is left.
        bytes_per_entry: Of a container that grows: bytes of one new entry; 0.0 where it is not known.
        is_scalar: Whether each of the stored tensors has one element, so that ``.item()`` says all of them.
        are_views: Whether the stored tensors are parts of storages at least twice as large.
        is_in_tuple: Whether the holder is an item of a tuple, which cannot be changed by itself.
        is_users_module: Whether the path begins at a module that is the user's, a file beside the notebook.
    """

    roles: tuple[frozenset[Role], ...] = ()
    original: str = ""
    children: Callable[[], Sequence[int]] = tuple
    gone_parameters: int = 0
    owners: tuple[Owner, ...] = ()
    bytes_per_entry: float = 0.0
    is_scalar: bool = False
    is_in_tuple: bool = False
    are_views: bool = False
    is_users_module: bool = False


NO_FACTS = Facts()
_N_SAMPLED = 10


@dataclass(frozen=True)
class Evidence:
    """What is known of a leak when its cause is looked for.

    Attributes:
        path: From the root to one of the leaked objects.
        holder: Python for the object that should release it, as it is written where that is known by this name; words
            where Python has no way.
        holder_kind: Its type's name, empty if there is none.
        crossing: How the holder refers to what leaks; None if nothing holds it, or if it grows in place.
        entry_kinds: Names of the types of what the holder refers to.
        kinds: Names of the types of everything that leaks.
        what: What grows, in words.
        unit: What is counted.
        has_tensors: Whether tensors leak.
        has_graph: Whether any of them was computed and still carries its graph.
        has_optimizer: Whether an optimizer leaks.
        has_models: Whether all that the holder refers to are modules of torch.
        is_history: Whether the path begins at one of the notebook's own names.
        in_cycle: Whether a cycle without a root keeps it.
        cycle_is_hidden: Whether that cycle runs where the collector does not see.
        gc_is_off: Whether garbage stays because the collector is switched off, or because the cell freezes it.
        certainty: How sure it is that the cycle is never freed; None where no cycle keeps it.
        cut: Where the cycle is cut best, if that is known.
        facts: What else the live objects showed.
        holder_name: What the report calls the holder where that is not *holder*: with the function it is local to.
    """

    path: RootPath
    holder: str
    holder_kind: str
    crossing: Reference | None
    entry_kinds: frozenset[str]
    kinds: frozenset[str]
    what: str
    unit: str
    has_tensors: bool
    has_graph: bool
    has_optimizer: bool = False
    has_models: bool = False
    is_history: bool = False
    in_cycle: bool = False
    cycle_is_hidden: bool = False
    gc_is_off: bool = False
    certainty: CycleCertainty | None = None
    cut: CycleCut | None = None
    facts: Facts = field(default=NO_FACTS)
    holder_name: str = ""

    @property
    def shown_holder(self) -> str:
        """What the report calls the holder."""
        return self.holder_name or self.holder

    @property
    def place(self) -> str:
        """The reference to cut, as the user would write it."""
        if self.crossing is not None and self.crossing.kind in ("attribute", "slot") and self.crossing.suffix:
            return f"{self.holder}{self.crossing.suffix}"
        return self.holder

    @property
    def n_above(self) -> int:
        """How many steps lead down to the holder and the reference that crosses."""
        steps = enumerate(self.path.steps, 1)
        return next((i for i, step in steps if step.status is Status.LEAKED), len(self.path.steps))

    @property
    def steps_above(self) -> Sequence[Step]:
        """The steps of the path down to the holder and the reference that crosses."""
        return self.path.steps[: self.n_above]

    @cached_property
    def roles(self) -> tuple[frozenset[Role], ...]:
        """For each step of the path, the roles of its object."""
        read = self.facts.roles
        return read if len(read) == len(self.path.steps) else roles_by_name(self.path)

    @property
    def roles_above(self) -> frozenset[Role]:
        """The roles of the steps that lead to the holder, and of what it holds."""
        return frozenset[Role]().union(*self.roles[: self.n_above])

    @property
    def n_to_holder(self) -> int:
        """How many steps lead down to the holder, the reference that crosses not counted."""
        n_above = self.n_above
        is_crossed = any(step.status is Status.LEAKED for step in self.path.steps)
        return max(n_above - is_crossed, 0)

    @property
    def owner(self) -> Owner | None:
        """The object nearest above the holder, or the holder itself, that is no plain container; None if not known."""
        above = self.facts.owners[: self.n_to_holder]
        return next((owner for owner in reversed(above) if not owner.is_plain), None)

    @property
    def entry(self) -> Owner | None:
        """What the holder refers to that leaks; None if it is a plain container or not known."""
        found = self.facts.owners[self.n_to_holder : self.n_to_holder + 1]
        return found[0] if found and not found[0].is_plain else None

    def any_role(self, *roles: Role) -> bool:
        """Return whether any object of the whole path plays one of *roles*."""
        return any(own & set(roles) for own in self.roles)

    @property
    def is_collected(self) -> bool:
        """Whether the holder is a collection, and what leaks one of its entries."""
        return self.crossing is not None and self.crossing.kind in ("key", "index", "element")


def facts_of(
    view: HeapView,
    described: Described | None,
    members: Sequence[int] = (),
    entries: Sequence[int] = (),
    *,
    sample: int = -1,
    bytes_per_entry: float = 0.0,
) -> Facts:
    """Return the facts of a leak.

    Args:
        view: The heap.
        described: The path to one of the leaked objects, as ``view.describe`` returned it; None for orphans.
        members: The vertices that leak.
        entries: Those of them that the holder refers to itself.
        sample: The vertex that the path leads to or through, -1 if it leads to none.
        bytes_per_entry: Of a container that grows, bytes of one new entry.
    """
    return Facts(
        roles=() if described is None else described.roles,
        original=original_of(view, members),
        children=_bytes_of_children,
        gone_parameters=_gone_parameters(view, described, sample),
        owners=_owners(view, described, sample),
        bytes_per_entry=bytes_per_entry,
        is_scalar=_are_scalars(view, members, entries),
        is_in_tuple=_is_in_tuple(view, entries),
        are_views=_are_views(view, entries),
        is_users_module=_is_users_module(view, described, sample),
    )


def _is_users_module(view: HeapView, described: Described | None, sample: int) -> bool:
    """Return whether the path to *sample* begins at a module that belongs to no library."""
    if described is None or sample < 0 or not described.path.root.startswith("module "):
        return False
    return not view.starts[view.tree.root_of[sample]].is_library


def _is_in_tuple(view: HeapView, entries: Sequence[int]) -> bool:
    """Return whether what refers to all of *entries* is an item of tuples."""
    holders = {int(view.tree.parent[entry]) for entry in entries} - {-1}
    above = {int(view.tree.parent[holder]) for holder in holders}
    return bool(above) and all(vertex >= 0 and is_kind_of(view.objects[vertex], tuple) for vertex in above)


def _owners(view: HeapView, described: Described | None, sample: int) -> tuple[Owner, ...]:
    """Return whose the steps are that lead to *sample*; what comes below it is none of the heap's objects."""
    if described is None or sample < 0:
        return ()
    vertices = view.path(sample)
    known = [position for position in described.positions if position < len(vertices)]
    return owners_of([view.objects[vertices[position]] for position in known], described)


def _are_views(view: HeapView, entries: Sequence[int]) -> bool:
    """Return whether all of *entries*, or of some of many, are tensors that show a part of a far larger storage."""
    tensors = [entry for entry in entries[-_N_SAMPLED:] if view.is_tensor[entry]]
    with no_torch_functions():
        return (
            bool(tensors)
            and len(tensors) == len(entries[-_N_SAMPLED:])
            and all(is_view(view.objects[entry]) for entry in tensors)
        )


def is_view(tensor: object) -> bool:
    """Return whether the storage of *tensor* is at least twice as large as what it shows."""
    base: Any = loaded_type("torch", "Tensor")
    try:
        with no_torch_functions():
            return bool(base.untyped_storage(tensor).nbytes() >= 2 * base.numel(tensor) * base.element_size(tensor))
    except (RuntimeError, NotImplementedError):  # a tensor without a storage of its own
        return False


def _bytes_of_children() -> list[int]:
    """Return the resident bytes of each child process of this one, as far as the system shows them."""
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
    tables = [group for group in items_in(groups) if type(group) is dict]
    updated = {id(p) for group in tables for p in get_referents(group.get("params", ()))}
    return sum(1 for parameter in keys_in(state) if is_tensor(parameter) and id(parameter) not in updated)


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


def _are_modules(view: HeapView, entries: Sequence[int]) -> bool:
    module = loaded_type("torch.nn", "Module")
    return module is not None and bool(entries) and all(is_kind_of(view.objects[entry], module) for entry in entries)


def evidence_of_group(view: HeapView, group: Group, summary: GroupSummary, sample: int) -> Evidence:
    """Gather what is known of *group*, whose path is the one to *sample*."""
    frame = _frame_of_blocks(view, group)  # people know the frame, not the blocks that it is made of
    name = holder_of(view, group) if frame < 0 else view.describe(frame).name
    kept_by = group.holder if frame < 0 else frame
    holder = name if kept_by < 0 else view.describe(kept_by).code or name
    return Evidence(
        path=view.describe(sample).path,
        holder=holder,
        holder_kind="dict" if kept_by < 0 else type_name(type(view.objects[kept_by])),
        crossing=group.crossing,
        entry_kinds=frozenset(type_name(type(view.objects[entry])) for entry in group.entries),
        kinds=summary.kinds,
        what=summary.what,
        unit="objects",
        has_tensors=bool(summary.main_objects) and is_tensor(view.objects[summary.main_objects[0]]),
        has_graph=summary.has_graph or any(view.in_graph[entry] for entry in group.entries),
        has_optimizer=has_optimizer(view, group.members),
        has_models=_are_modules(view, group.entries),
        is_history=view.starts[view.tree.root_of[sample]].is_history,
        facts=facts_of(view, view.describe(sample), group.members, group.entries, sample=sample),
        holder_name=name,
    )


BLOCKS = "pandas.core.internals.blocks."
"""Of such types are the columns of a frame of pandas, one block for all that came together."""


def _frame_of_blocks(view: HeapView, group: Group) -> int:
    """Return the frame that *group* are new columns of, or what is in new rows; -1 if it is anything else.

    What somebody put into a cell is kept by what is in that cell.
    """
    if group.holder < 0:
        return -1
    path = view.path(group.holder)
    is_cells = type_name(type(view.objects[group.holder])) == "numpy.ndarray"
    blocks = path[-2:-1] if is_cells else group.entries
    kinds = {type_name(type(view.objects[block])) for block in blocks}
    if not kinds or not all(kind.startswith(BLOCKS) for kind in kinds):
        return -1
    above = reversed(path)
    return next((each for each in above if type_name(type(view.objects[each])) == "pandas.DataFrame"), -1)


def evidence_of_orphans(view: HeapView, orphans: Orphans, summary: GroupSummary, *, gc_is_off: bool) -> Evidence:
    """Gather what is known of survivors that no root reaches."""
    return Evidence(
        path=orphans.path,
        holder=orphan_holder(orphans.path),
        holder_kind="",
        crossing=None,
        entry_kinds=frozenset(),
        kinds=summary.kinds,
        what=summary.what,
        unit="objects",
        has_tensors=is_tensor(view.objects[summary.main_objects[0]]),
        has_graph=summary.has_graph,
        in_cycle=bool(orphans.cycle),
        certainty=orphans.certainty,
        cut=orphans.cut,
        cycle_is_hidden=orphans.crosses_hidden,
        gc_is_off=gc_is_off,
        facts=facts_of(view, None, orphans.members),
    )


def with_reasons(view: HeapView, vertex: int, described: Described, n_runs: int) -> RootPath:
    """Return the path to *vertex* with the reason for the status beside the steps that decide.

    A reason is a fact that the code under test cannot have set by mistake: when an object was born, and what it is. The
    steps that decide are the last one that is expected, and each leaked one whose run of birth differs from that of the
    step before it. Known holders are named.

    *described* is what ``view.describe(vertex)`` returned.
    """
    vertices = view.path(vertex)
    path = with_known_holders(described.path)
    if not vertices:
        return path
    steps = list(path.steps)
    last_expected = max((i for i, step in enumerate(steps) if step.status is Status.EXPECTED), default=-1)
    before = ""
    for number, (step, position) in enumerate(zip(steps, described.positions, strict=True)):
        words = _reason(view, vertices[position], step, n_runs)
        decides = number == last_expected or (step.status is Status.LEAKED and words != before)
        before = words
        if decides and words and not step.note:
            steps[number] = replace(step, note=words)
    return replace(path, steps=tuple(steps))


def _reason(view: HeapView, vertex: int, step: Step, n_runs: int) -> str:
    run = int(view.birth_run[vertex])
    if step.status is Status.LEAKED:
        if run == BASELINE:
            return ""  # a node that only the graph holds: its birth was not seen
        if run == n_runs - 1:
            return f"made in run {n_runs}, kept by what an earlier run left"
        return f"made in run {run + 1} of {n_runs}, still here"
    module = loaded_type("torch.nn", "Module")
    if run == BASELINE and module is not None and is_kind_of(view.objects[vertex], module):
        return "a model that was there before the first run"
    if run == BASELINE:
        return "was there before the first run"
    return f"the newest: made in run {n_runs}" if run == n_runs - 1 else ""
