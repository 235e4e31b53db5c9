"""The records of call stacks: of what a check saw leak, and the tree of frames that a flame graph draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

OTHER_STACKS = "(other stacks)"
"""What stands in the place of a call stack that is one of many small ones."""
OUTSIDE = "<module>"
"""What stands in the place of a function's name outside of any."""


@dataclass(frozen=True, slots=True)
class StackFrame:
    """One line of a call stack.

    Attributes:
        name: The function, ``Net.forward``; ``<module>`` outside of any.
        place: Its file: below the working directory, below the packages' folder, or ``Cell In[7]``.
        line: Line number; 0 where it is not known.
        is_yours: Whether it is the user's own code: no library, no C or C++.
    """

    name: str
    place: str
    line: int
    is_yours: bool

    @property
    def label(self) -> str:
        """As ``train.py:12 step``; outside of any function as ``train.py:12``."""
        name = "" if self.name == OUTSIDE else f" {self.name}"
        return f"{self.place}:{self.line}{name}" if self.place else self.name


@dataclass(frozen=True, slots=True)
class AllocationStack:
    """What was allocated by one call stack, and stays.

    Attributes:
        fingerprint: Of the leak that it belongs to.
        frames: Positions in `AllocationStacks.frames`, innermost first.
        bytes_per_run: Its part of what the leak leaves behind per run.
    """

    fingerprint: str
    frames: tuple[int, ...]
    bytes_per_run: float


@dataclass(frozen=True, slots=True)
class AllocationStacks:
    """Every stack of what leaks, as the traced runs saw them.

    Attributes:
        frames: Every line that is on one of them, once.
        stacks: The stacks, largest first.
    """

    frames: tuple[StackFrame, ...] = ()
    stacks: tuple[AllocationStack, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.stacks)

    def frames_of(self, stack: AllocationStack) -> tuple[StackFrame, ...]:
        """Return the lines of *stack*, innermost first."""
        return tuple(self.frames[number] for number in stack.frames)


NO_STACKS = AllocationStacks()


@dataclass(frozen=True, slots=True)
class FrameNode:
    """A frame with everything that was allocated below it.

    Attributes:
        label: ``train.py:12 step``.
        active_bytes: Live bytes of all stacks through it; in a series, what they grew by; in a check, what they leave
            in every run.
        n_blocks: Their blocks; in a series, how many more; in a check, how many stacks.
        children: Frames that it called, largest first.
    """

    label: str
    active_bytes: int
    n_blocks: int
    children: tuple[FrameNode, ...]


@dataclass(slots=True)
class _FrameTally:
    active_bytes: float = 0.0
    n_blocks: int = 0
    children: dict[str, _FrameTally] = field(default_factory=dict)

    def frozen(self, label: str) -> FrameNode:
        children = [child.frozen(name) for name, child in self.children.items()]
        children.sort(key=lambda child: (-child.active_bytes, child.label))
        return FrameNode(label, round(self.active_bytes), self.n_blocks, tuple(children))


def frame_tree(rows: Iterable[tuple[Sequence[str], float, int]], label: str) -> FrameNode:
    """Return the tree of *rows*: the labels of a stack, outermost first, its bytes, and how many blocks these are."""
    root = _FrameTally()
    for labels, n_bytes, n_blocks in rows:
        node = root
        for name in ("", *labels):
            node = node.children.setdefault(name, _FrameTally()) if name else node
            node.active_bytes += n_bytes
            node.n_blocks += n_blocks
    return root.frozen(label)
