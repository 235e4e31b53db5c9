"""Put call stacks together into one tree of frames, each with the bytes that were allocated below it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from leaklab.model.snapshots import CallFrame, FrameNode, LiveStack
from leaklab.snapshots.stacks import frame_words, is_python, label_of

MAX_DEPTH = 60
"""Deeper frames are put down to the last one that is shown."""


@dataclass(slots=True)
class _Node:
    active_bytes: int = 0
    n_blocks: int = 0
    children: dict[str, _Node] = field(default_factory=dict)

    def add(self, stack: LiveStack) -> None:
        self.active_bytes += stack.active_bytes
        self.n_blocks += stack.n_blocks


def tree_of(stacks: Iterable[LiveStack], label: str = "all live blocks") -> FrameNode:
    """Return the tree: devices first, then the outermost frames. Stacks without frames are leaves of their own."""
    root = _Node()
    for stack in stacks:
        node = root
        node.add(stack)
        for name in (stack.device, *_labels(stack)):
            node = node.children.setdefault(name, _Node())
            node.add(stack)
    return _frozen(label, root)


def _labels(stack: LiveStack) -> list[str]:
    """Return the Python frames, outermost first; C++ frames lie below every one of them and say little."""
    if not stack.frames:
        return [stack.label]
    frames: list[CallFrame] = [frame for frame in stack.frames if is_python(frame.filename)]
    if not frames:
        return ["(C++ only)", label_of(stack.frames)]
    return [frame_words(frame) for frame in reversed(frames)][:MAX_DEPTH]


def _frozen(label: str, node: _Node) -> FrameNode:
    children = [_frozen(name, child) for name, child in node.children.items()]
    children.sort(key=lambda child: (-child.active_bytes, child.label))
    return FrameNode(label, node.active_bytes, node.n_blocks, tuple(children))
