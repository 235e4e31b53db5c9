"""Find on a stack the innermost line of the user's code, and the line that asked for the copy under way.

A class that makes its own copies, by ``__deepcopy__`` or ``__reduce__``, makes them in a line of its constructor.
That line made the original too, once; what makes an object in every run is the line that asked for the copy.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import TypeVar

from leaklab.lines.arrival import Line
from leaklab.lines.change import line_of_frame

_COPIERS = frozenset({copy.deepcopy.__code__.co_filename})
"""Files whose functions copy what they are given, and call the user's methods to do it."""


Place = TypeVar("Place")


def innermost_and_asking(
    stack: Iterable[tuple[str, Place]], whose: Callable[[str], bool | None]
) -> tuple[Place | None, Place | None]:
    """Return the innermost place of the user's on a stack, and the one that asked for the outermost copy under way.

    Args:
        stack: File names with what shall be returned for them, innermost first; what lies outside of leaklab's own
            files is not looked at.
        whose: Tells whose code a file is.

    Returns:
        The second is None where nothing is being copied, or where no line of the user's asked for it.
    """
    innermost = asking = None
    is_below_copy = False
    for filename, place in stack:
        if filename in _COPIERS:
            is_below_copy = True
            continue
        is_users = whose(filename)
        if is_users is None:
            break
        if is_users:
            if innermost is None:
                innermost = place
            if is_below_copy:
                asking, is_below_copy = place, False
    return innermost, asking


def frames_from(frame: FrameType | None) -> Iterator[tuple[str, FrameType]]:
    """Yield the running functions from *frame* outward, with their files."""
    while frame is not None:
        yield frame.f_code.co_filename, frame
        frame = frame.f_back


def line_of(frame: FrameType | None) -> Line | None:
    """Return the line that *frame* is at; None without a frame."""
    return None if frame is None else line_of_frame(frame)


def asking_line(depth: int, whose: Callable[[str], bool | None]) -> Line | None:
    """Return the line of the user's that asked for the copy under way; None if nothing is being copied.

    Args:
        depth: How many functions stand between this one and the first frame to look at.
        whose: Tells whose code a file is.
    """
    return line_of(innermost_and_asking(frames_from(sys._getframe(depth + 1)), whose)[1])  # noqa: SLF001
