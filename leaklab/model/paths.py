"""Records of paths, one step for each reference from a root to an object, and of cycles that no variable reaches."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from leaklab.text import visible


class Status(str, enum.Enum):
    """Whether an object on a path has a reason to be alive."""

    EXPECTED = "expected"  # it was there before the measured runs, or it is the newest value
    LEAKED = "leaked"  # an earlier run made it, later runs did not need it
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Step:
    """One object on a path, and how the object before it refers to it.

    Attributes:
        reference: The reference from the step before, as Python writes it where it can: ``.history``, ``['loss']``,
            ``[3]``, ``.__closure__[0].cell_contents``; in words where Python has no way: ``local 'x' of fill()``.
        kind: Qualified name of the object's type.
        summary: A few words on the object (``(64, 128) float32 cpu``, ``12 entries``); may be empty.
        status: Why it is or is not expected to be alive.
        note: A reason or remark for the reader, may be empty (``made in run 3, still here after run 24``).
    """

    reference: str
    kind: str
    summary: str
    status: Status
    note: str = ""


def _step_words(step: Step) -> str:
    thing = " ".join(filter(None, (step.kind, step.summary)))
    return f"{step.reference} ({thing})" if step.reference else thing


@dataclass(frozen=True, slots=True)
class RootPath:
    """The references from a root to an object, root first.

    Attributes:
        root: What the path starts from, in words: ``notebook variable``, ``module 'ctypes'``, ``thread 'prefetch'``,
            ``garbage cycle``, ``nothing in Python``.
        steps: The objects on the way, the held object last. The reference of the first step is the root's own
            expression (``trainer``, ``ctypes._pointer_type_cache``); empty for a path without a root.
    """

    root: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        """One line, root first, with every reference named."""
        words = " -> ".join(map(_step_words, self.steps))
        return visible(f"{self.root}: {words}" if words else self.root)


_NOTEBOOK_VARIABLE, _SCRIPT_VARIABLE = "notebook variable", "module variable"


def path_of_script(path: RootPath) -> RootPath:
    """Return *path* in words for a program that is no notebook."""
    return replace(path, root=_SCRIPT_VARIABLE) if path.root == _NOTEBOOK_VARIABLE else path


class CycleCertainty(str, enum.Enum):
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
        return visible(self.sentence)
