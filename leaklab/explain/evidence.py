"""What is known of a leak when its cause is looked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leaklab.explain.references import Reference
from leaklab.model import RootPath, Step


@dataclass(frozen=True, slots=True)
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

    @property
    def place(self) -> str:
        """The reference to cut, as the user would write it."""
        if self.crossing is not None and self.crossing.kind in ("attribute", "slot") and self.crossing.suffix:
            return f"{self.holder}{self.crossing.suffix}"
        return self.holder

    @property
    def steps_above(self) -> Sequence[Step]:
        """The steps of the path down to the holder and the reference that crosses."""
        count = next((i for i, step in enumerate(self.path.steps) if step.status.value == "leaked"), None)
        return self.path.steps if count is None else self.path.steps[: count + 1]


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause by its slug, and the advice for this case."""

    slug: str
    advice: str
