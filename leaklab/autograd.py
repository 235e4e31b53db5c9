"""Walk autograd graphs from Python without harm to them.

A node that Python has looked at keeps its Python wrapper for as long as the graph lives, and a graph with more than
some 40,000 wrapped nodes, deep or wide, overflows the C stack when it is freed (torch 2.13). Every walk is therefore
confined to a *window* of autograd's sequence numbers, which count the nodes that this thread ever made: a window of n
numbers can wrap at most n nodes. Nothing here reads a saved tensor through its unpack hook.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from leaklab.objects import loaded_type, no_torch_functions

SAFE_NODES = 20_000
"""A graph of so many nodes may be wrapped entirely: half of what was seen to crash."""
SMALL_WINDOW = 2_000
"""What one walk wraps where more nodes than `SAFE_NODES` exist: many checks of one ever longer graph must add up."""

_WIDE = ("StackBackward0", "CatBackward0")


@dataclass(frozen=True, slots=True)
class Window:
    """The sequence numbers ``low <= number < high`` that may be looked at."""

    low: int
    high: int

    @property
    def is_whole(self) -> bool:
        """Whether every node that exists is inside."""
        return self.low == 0


def current_window() -> Window:
    """Return the window that is safe now: everything, or the newest nodes if there are too many."""
    newest = newest_sequence_number()
    if newest <= SAFE_NODES:
        return Window(0, SAFE_NODES + SMALL_WINDOW)
    return Window(newest - SMALL_WINDOW, newest + 1)


def newest_sequence_number() -> int:
    """Return the number of the youngest node of this thread; 0 without torch. Makes one node, which dies at once."""
    torch = sys.modules.get("torch")
    if torch is None or loaded_type("torch", "Tensor") is None:
        return 0
    with no_torch_functions(), torch.enable_grad():
        probe = torch.zeros((), requires_grad=True).neg()
        return int(probe.grad_fn._sequence_nr()) if probe.grad_fn is not None else 0


def root_nodes(tensors: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield ``(tensor, grad_fn)`` for every one of *tensors* that has a graph, its gradient's graph included."""
    base: Any = loaded_type("torch", "Tensor")
    with no_torch_functions():
        for tensor in tensors:
            node = base.grad_fn.__get__(tensor)
            if node is not None:
                yield tensor, node
            elif base.requires_grad.__get__(tensor) and base.is_leaf.__get__(tensor):
                gradient = base.grad.__get__(tensor)
                if gradient is not None and gradient.grad_fn is not None:
                    yield gradient, gradient.grad_fn


def sequence_number(node: Any) -> int | None:  # noqa: ANN401 - nodes have no common Python type
    """Return the number of *node*; None for a node that has none of its own, such as the end of a leaf's branch."""
    read = getattr(node, "_sequence_nr", None)
    number = read() if read is not None else None
    return None if number is None or number >= 1 << 63 else int(number)


def may_open(node: Any, window: Window) -> bool:  # noqa: ANN401
    """Return whether the next functions of *node* may be read."""
    number = sequence_number(node)
    if number is None or not window.low <= number < window.high:
        return False
    return window.is_whole or type(node).__name__ not in _WIDE


def count_nodes(tensors: Iterable[Any], window: Window | None = None) -> int:
    """Return how many nodes the graphs of *tensors* have together, inside the window that is safe to look at."""
    if loaded_type("torch", "Tensor") is None:
        return 0
    window = window or current_window()
    seen: dict[int, Any] = {}  # by address: a custom function may define __hash__
    stack = [node for _tensor, node in root_nodes(tensors)]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen[id(node)] = node
        if may_open(node, window):
            stack.extend(after for after, _index in node.next_functions if after is not None)
    return len(seen)
