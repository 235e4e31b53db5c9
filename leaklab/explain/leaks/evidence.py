"""What is known of a leak when its cause is looked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from leaklab.explain.leaks.user_lines import SourceLine
from leaklab.explain.paths.roles import Role, roles_by_name
from leaklab.explain.references import Reference
from leaklab.model import RootPath, Status, Step
from leaklab.model.cycles import CycleCut, Stage


@dataclass(frozen=True, slots=True)
class Facts:
    """What only the live objects could tell, read while they were borrowed.

    Attributes:
        roles: For each step of the path the roles of its object; empty where nothing but the record is left.
        original: Expression of the object that the survivors are copies of; empty if they are none.
        n_workers: Child processes of this one.
        worker_bytes: Their resident memory together.
        gone_parameters: How many parameters an optimizer on the path keeps state for without updating them.
        line: The user's line that puts things into the holder; None if none, or no single one, was found.
        bytes_per_entry: Of a container that grows: bytes of one new entry; 0.0 where it is not known.
        is_scalar: Whether each of the stored tensors has one element, so that ``.item()`` says all of them.
    """

    roles: tuple[frozenset[Role], ...] = ()
    original: str = ""
    n_workers: int = 0
    worker_bytes: int = 0
    gone_parameters: int = 0
    line: SourceLine | None = None
    bytes_per_entry: float = 0.0
    is_scalar: bool = False


NO_FACTS = Facts()


@dataclass(frozen=True)
class Evidence:
    """What is known of a leak when its cause is looked for.

    Attributes:
        path: From the root to one of the leaked objects.
        holder: Expression for the object that should let go, or words for it.
        holder_kind: Its type's name, empty if there is none.
        crossing: How the holder refers to what leaks; None if nothing holds it, or if it grows in place.
        entry_kinds: Names of the types of what the holder refers to.
        kinds: Names of the types of everything that leaks.
        what: What grows, in words.
        unit: What is counted.
        has_tensors: Whether tensors leak.
        has_graph: Whether any of them was computed and still carries its graph.
        has_optimizer: Whether an optimizer leaks.
        is_history: Whether the path begins at one of the notebook's own names.
        in_cycle: Whether a cycle without a root keeps it.
        cycle_is_hidden: Whether that cycle runs where the collector does not see.
        gc_is_off: Whether garbage stays because the collector is switched off, or because the cell freezes it.
        stage: How sure it is that the cycle is never freed; None where no cycle keeps it.
        cut: Where the cycle is cut best, if that is known.
        facts: What the live objects told beside.
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
    is_history: bool = False
    in_cycle: bool = False
    cycle_is_hidden: bool = False
    gc_is_off: bool = False
    stage: Stage | None = None
    cut: CycleCut | None = None
    facts: Facts = field(default=NO_FACTS)

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
    def holder_roles(self) -> frozenset[Role]:
        """The roles of the last object that has a reason to live."""
        expected = [i for i, step in enumerate(self.path.steps) if step.status is not Status.LEAKED]
        return self.roles[expected[-1]] if expected else frozenset()

    def any_role(self, *roles: Role) -> bool:
        """Return whether any object of the whole path plays one of *roles*."""
        return any(own & set(roles) for own in self.roles)

    @property
    def is_collected(self) -> bool:
        """Whether the holder is a collection, and what leaks one of its entries."""
        return self.crossing is not None and self.crossing.kind in ("key", "index", "element")
