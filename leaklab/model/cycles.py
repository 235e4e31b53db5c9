"""Records of cycles that no variable reaches: how sure the finding is, where to cut, what a cut gave back."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Stage(str, enum.Enum):
    """Why objects that no root reaches are alive, and how sure that is."""

    PROVED = "proved immortal cycle"  # every reference of the cycle was read, one of them is C++'s: never freed
    PROBABLE = "probable immortal cycle"  # a cycle if an owner that cannot be read is the likely one, or nothing unread
    UNSEEN = "held by something unseen"  # references exist that nothing visible has; that alone is no leak
    GARBAGE = "garbage waiting for gc"  # the next gc.collect() frees it


@dataclass(frozen=True, slots=True)
class CycleCut:
    """Where a cycle is cut best.

    Attributes:
        reference: The reference to remove, as Python writes it where it can: ``.grad``, ``._backward_hooks[0]``.
        how: The Python that removes it, in terms of the object that has the reference: ``tensor.grad = None``.
        words: What the names in *how* stand for, and what to write instead, one sentence.
        is_safe: Whether `leaklab.cut_cycles` can do it: removing an entry, an attribute or a gradient.
    """

    reference: str
    how: str
    words: str
    is_safe: bool


@dataclass(frozen=True, slots=True)
class CutResult:
    """What cutting cycles gave back.

    Attributes:
        n_cycles: Immortal cycles that were cut open; those that share objects count as one.
        n_references: References that were removed.
        n_objects: Objects that the collector knew and that are gone now.
        n_bytes: Bytes of the tensor storages that went with them, each counted once. A lower bound of the memory.
        n_left: Immortal cycles of the kind asked for that have no reference which is safe to remove.
        is_outside_whole: Whether every object outside that the cycles referred to is still alive.
        sentence: All of it in one sentence.
    """

    n_cycles: int
    n_references: int
    n_objects: int
    n_bytes: int
    n_left: int
    is_outside_whole: bool
    sentence: str

    def __str__(self) -> str:
        return self.sentence
