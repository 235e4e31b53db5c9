"""What is true of a loop, written down before it was watched for the first time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaklab.loop.monitor import Monitor

    Watched = Callable[[int], Monitor]
    """Makes so many steps and returns the monitor that watched them."""

OVERHEAD = 1.0
"""Whether watching is cheap is not judged here. Steps take 1 to 5 milliseconds here, those of a training 50;
and a busy machine makes the difference larger: checks that are due there would be too dear here."""


@dataclass(frozen=True)
class RealLoop:
    """One loop and the truth about it.

    Attributes:
        watched: Runs it.
        framework: It is written for.
        holder: A part of the name of what holds the leak; "" where nothing does (garbage), None where nothing leaks.
        line: A part of the line that keeps it.
    """

    watched: Watched
    framework: str
    holder: str | None = None
    line: str = ""

    @property
    def name(self) -> str:
        """The function's."""
        return self.watched.__name__

    @property
    def leaks(self) -> bool:
        """Whether memory ends if the loop goes on for long enough."""
        return self.holder is not None
