"""Records of paths: the references from a root to an object, one step each."""

from __future__ import annotations

import enum
from dataclasses import dataclass


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
        return f"{self.root}: {words}" if words else self.root
