"""What asks for runs of the user's code and whoever makes them say to each other: run it so, and so it went."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

Ran = tuple[float, str]
"""How one run went: its seconds, and the name of what it raised (``ValueError``), empty if it ended by itself.

A plain tuple of plain values: the collector forgets it at once, so it is never counted as something the run bore.
"""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Several runs inside a context manager.

    Attributes:
        number: Number of the first of them.
        times: How many; 0 where only the context manager is to be entered, which may then take its time.
        around: Entered in the very function that runs the code.
    """

    number: int
    times: int
    around: AbstractContextManager[None]
