"""The records of a live look at the heap: nodes and references around one object, and what retains most."""

from __future__ import annotations

from dataclasses import dataclass

from leaklab.model.paths import Status


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
class TensorKind:
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
    tensors: tuple[TensorKind, ...]
    n_objects: int
    notes: tuple[str, ...] = ()
