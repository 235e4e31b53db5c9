"""The records of one question, why is this object alive, and of a live look at the heap.

The answer comes first; below it the graph around one object and the overview of what retains most.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from leaklab.model.paths import CycleCut, RootPath, Status
from leaklab.text import visible

ALIVE_SCHEMA_VERSION = 1
"""Raised whenever one of these records changes so that older files cannot be read any more."""


class Hold(str, enum.Enum):
    """What keeps an object alive."""

    HELD = "held"  # at least one root reaches it
    GARBAGE = "garbage cycle"  # only a cycle of Python references keeps it: the next collection frees it
    IMMORTAL = "immortal cycle"  # only a cycle through C++ keeps it: no collection ever frees it
    PROBABLE = "probable immortal cycle"  # as before, if a reference that cannot be read is the likely one
    UNSEEN = "unseen holder"  # no root and no cycle, and yet it is referred to: from C, or where leaklab cannot look
    NOTHING = "nothing"  # only the question itself held it


@dataclass(frozen=True, slots=True)
class AlivePath:
    """One independent path: it shares no reference with the other paths of the same answer.

    Attributes:
        path: Root first, the object asked about last; each step with its status, and the reason for it as its note.
        holder: Python expression for the last object before the one asked about: what refers to it. ``globals()`` if a
            variable of the namespace does; empty where Python has no expression.
        expression: Python expression for the object itself along this path; empty where there is none.
        places: A number for the object of each step: the same object has the same number in all paths of one answer,
            and the object asked about has 0.
        cut_at: Positions of the steps whose reference belongs to the smallest cut.
        remark: What is known of a library's holder on it, and how it is released; may be empty.
    """

    path: RootPath
    holder: str
    expression: str
    places: tuple[int, ...]
    cut_at: tuple[int, ...] = ()
    remark: str = ""


@dataclass(frozen=True, slots=True)
class DirectReference:
    """A reference to the object itself, whoever made it.

    Attributes:
        holder: Python expression for what refers to it, or words where there is none.
        reference: How it refers: ``.history``, ``['loss']``.
        kind: Qualified name of the holder's type.
        count: How many of these references there are.
        from_cpp: Whether C++ holds the object, and not Python: counted by a tensor's use count.
        is_reached: Whether a root reaches the holder; one that no root reaches keeps nothing by itself.
    """

    holder: str
    reference: str
    kind: str
    count: int
    from_cpp: bool
    is_reached: bool


@dataclass(frozen=True, slots=True)
class AutogradHolder:
    """A graph that saved the object, or that leads to it.

    Attributes:
        node: Type of the autograd node, ``MulBackward0``.
        role: How the node holds it: ``._saved_self``, ``.variable``.
        carrier: Expression for, or words on, the tensor that carries that graph; empty if none was found.
        carrier_kind: Its type and shape.
    """

    node: str
    role: str
    carrier: str
    carrier_kind: str


@dataclass(frozen=True, slots=True)
class CutReference:
    """One reference to let go of.

    Attributes:
        holder: Python expression for the object that refers, or words for it.
        reference: How it refers to the next.
        target: What is let go of, in words.
        advice: The statement that does it, or words where there is none.
        is_statement: Whether *advice* is Python.
    """

    holder: str
    reference: str
    target: str
    advice: str
    is_statement: bool


@dataclass(frozen=True, slots=True, repr=False)
class Cut:
    """The fewest references without which the object goes, and the proof: what would go without them.

    Attributes:
        references: All of them have to go; empty where no set is known.
        is_exact: Whether no smaller set exists; otherwise it is merely one that suffices.
        obstacle: Why no set is known, one sentence; empty where one is.
        frees_object: Whether, without them, no root reaches the object.
        n_freed: Objects that no root would reach any more.
        freed_bytes: What these own, storages counted once, and not what somebody else shares.
        is_lower_bound: Whether more could come back than *freed_bytes* says.
    """

    references: tuple[CutReference, ...]
    is_exact: bool
    frees_object: bool
    n_freed: int
    freed_bytes: int
    is_lower_bound: bool = False
    obstacle: str = ""

    def __str__(self) -> str:
        if not self.references:
            return visible(f"no set of references to cut is known{': ' if self.obstacle else ''}{self.obstacle}")
        return visible("; ".join(reference.advice for reference in self.references))

    def __repr__(self) -> str:
        if not self.references:
            return f"<Cut: {self}>"
        least = "at least " if self.is_lower_bound else ""
        objects = "1 object" if self.n_freed == 1 else f"{self.n_freed:,} objects"
        return f"<Cut: {self}  # frees {objects}, {least}{self.freed_bytes:,} bytes>"


@dataclass(frozen=True, slots=True)
class CountItem:
    """A part of a reference count, in words.

    Attributes:
        words: Who has these references.
        count: How many.
    """

    words: str
    count: int


@dataclass(frozen=True, slots=True)
class Counts:
    """The reference counts of the object, explained item by item; what the question itself holds is not in them.

    Attributes:
        python: Python's reference count.
        python_items: Who has them.
        use_count: torch's own count of C++ owners, the Python object being one; None for anything but a tensor.
        cpp_items: Who has those.
    """

    python: int
    python_items: tuple[CountItem, ...]
    use_count: int | None = None
    cpp_items: tuple[CountItem, ...] = ()

    @property
    def n_unexplained(self) -> int:
        """Python references that nobody visible has."""
        return self.python - sum(item.count for item in self.python_items)

    @property
    def n_unexplained_cpp(self) -> int:
        """C++ owners that nothing visible is."""
        return 0 if self.use_count is None else self.use_count - sum(item.count for item in self.cpp_items)


@dataclass(frozen=True, slots=True)
class Retained:
    """What comes back if the object goes.

    Attributes:
        exclusive_bytes: Owned by the object and by what only it keeps alive; each storage counted once.
        shared_bytes: Owned by what it refers to and others keep alive as well: this does not come back.
        n_objects: How many objects go, itself included.
        is_lower_bound: Whether a size could not be told, and more may come back.
    """

    exclusive_bytes: int
    shared_bytes: int
    n_objects: int
    is_lower_bound: bool = False


@dataclass(frozen=True, slots=True)
class FanIn:
    """Objects of one type that refer to something on a path and are on none themselves.

    Attributes:
        place: Number of what they refer to, as in `AlivePath.places`.
        kind: Qualified name of their type.
        count: How many.
        holder: Expression for one of them; empty where Python has none.
    """

    place: int
    kind: str
    count: int
    holder: str


@dataclass(frozen=True, slots=True)
class WhyAliveRecord:
    """Everything that was found out about one object: the record behind a `WhyAlive`.

    Attributes:
        asked: The expression that was asked about; empty if there was none.
        what: Type and summary of the object.
        hold: What keeps it alive.
        reason: One sentence that says so, with its figures.
        paths: Independent paths, the one that is easiest to understand first.
        has_more_paths: Whether there are more than were asked for.
        references: Direct references to the object.
        n_references: How many there are; *references* may be fewer.
        autograd: Graphs that hold it.
        retained: What comes back if it goes.
        cut: The smallest set of references to cut that leaves the user's variables alone, where there is one; None
            where no root reaches it.
        wider_cut: A smaller set that takes a variable of the user, and what else hangs on it; None if there is none.
        counts: Its reference counts, explained.
        fan_in: What else refers to the objects on the paths, by type, the most frequent first.
        cycle: The cycle that keeps it where no root does, edge by edge; without steps where there is none.
        cycle_cut: Where that cycle is cut best; None where there is none, or no rule knows one of its references.
        notes: Caveats and observations, one sentence each.
        n_heap: Objects looked at.
        environment: Versions, as ``(name, version)``.
        only_path: Whether no more than the best path was asked for: all other figures are empty then, and mean nothing.
    """

    asked: str
    what: str
    hold: Hold
    reason: str
    paths: tuple[AlivePath, ...]
    has_more_paths: bool
    references: tuple[DirectReference, ...]
    n_references: int
    autograd: tuple[AutogradHolder, ...]
    retained: Retained
    cut: Cut | None
    counts: Counts
    fan_in: tuple[FanIn, ...] = ()
    cycle: RootPath | None = None
    cycle_cut: CycleCut | None = None
    wider_cut: Cut | None = None
    notes: tuple[str, ...] = ()
    n_heap: int = 0
    environment: tuple[tuple[str, str], ...] = ()
    only_path: bool = False
    schema: int = ALIVE_SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class LiveNode:
    """An object that is alive, or a root, or what stands for several objects.

    Attributes:
        key: Names the node within its graph.
        role: ``root``, ``object``, ``asked`` for the object the look is about, ``more`` for several objects.
        kind: Qualified type of the object; words for a root and for several objects.
        summary: Shape, length; may be empty.
        status: Whether it has a reason to be alive.
        note: The reason; may be empty.
        expression: Python for the object; empty where there is none.
        address: Where it lies, 0 for what is no object. It is known by it as long as it lives, and no longer.
        n_holders: How many objects refer to it.
    """

    key: str
    role: str
    kind: str
    summary: str
    status: Status
    note: str
    expression: str
    address: int = 0
    n_holders: int = 0


@dataclass(frozen=True, slots=True)
class LiveLink:
    """A reference between two nodes, by their keys, in the words of Python where it has any."""

    holder: str
    held: str
    reference: str


@dataclass(frozen=True, slots=True)
class LiveGraph:
    """What leads to one object.

    Attributes:
        asked: Expression for the object, or words.
        nodes: Roots first.
        links: References between them.
        n_paths: Independent paths found; no more are looked for than were asked for.
        notes: What could not be shown, one sentence each.
    """

    asked: str
    nodes: tuple[LiveNode, ...]
    links: tuple[LiveLink, ...]
    n_paths: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Retainer:
    """An object with what it alone keeps alive.

    Attributes:
        expression: Python for it; empty where there is none.
        place: Where the path to it begins, in words: ``notebook variable``, ``module 'torch'``.
        kind: Qualified type.
        summary: Shape, length; may be empty.
        retained_bytes: What comes back if it goes, storages counted once.
        address: Where it lies.
    """

    expression: str
    place: str
    kind: str
    summary: str
    retained_bytes: int
    address: int


@dataclass(frozen=True, slots=True)
class LiveTensorKind:
    """Living tensors of one shape, dtype and device; a storage that several use counts in one row only."""

    kind: str
    words: str
    count: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class HeapOverview:
    """The whole heap at a glance.

    Attributes:
        variables: The user's variables, what retains most first.
        retainers: Other objects that retain much, the largest first.
        tensors: Living tensors by kind, the most bytes first.
        n_objects: Objects looked at.
        notes: Caveats, one sentence each.
    """

    variables: tuple[Retainer, ...]
    retainers: tuple[Retainer, ...]
    tensors: tuple[LiveTensorKind, ...]
    n_objects: int
    notes: tuple[str, ...] = ()
