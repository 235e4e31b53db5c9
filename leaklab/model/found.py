"""The record of a question to the heap: which objects fit a condition."""

from __future__ import annotations

from dataclasses import dataclass

FOUND_SCHEMA = 1
"""Raised whenever the layout of a saved answer changes."""


@dataclass(frozen=True, slots=True)
class FoundObject:
    """One object that fits.

    Attributes:
        kind: Qualified name of its type.
        holder: Python for the object, or for what of it the reader can name; empty where there is none.
        place: Where the path to it begins, in words: ``notebook variable``, ``module 'torch'``.
        n_bytes: The object itself, with the data of an array and the storages that a tensor uses.
        exclusive_bytes: What comes back if it goes.
        shape: Of a tensor or an array, ``(32, 10)``; empty for anything else.
        dtype: Of these; empty for anything else.
        device: Of these; empty for anything else.
        requires_grad: Of a tensor; None for anything else.
        number: Of a living object its address (``id``), of a saved one its number in the file.
    """

    kind: str
    holder: str
    place: str
    n_bytes: int
    exclusive_bytes: int
    shape: str
    dtype: str
    device: str
    requires_grad: bool | None
    number: int


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """Everything that fits a condition.

    Attributes:
        kind: The type that was asked for, empty for any.
        where: The condition, empty for none.
        n_found: Objects that fit.
        n_bytes: Of all of them together, storages counted once.
        n_objects: Objects that were looked at.
        rows: Those that fit, the largest first; not all of them where there are many.
        is_live: Whether the objects were alive when they were asked for; else they are those of a file.
        notes: What could not be looked at, one sentence each.
        environment: Versions.
    """

    kind: str
    where: str
    n_found: int
    n_bytes: int
    n_objects: int
    rows: tuple[FoundObject, ...]
    is_live: bool
    notes: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    schema: int = FOUND_SCHEMA
