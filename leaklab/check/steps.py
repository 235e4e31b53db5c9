"""What the pipeline and whoever runs the user's code say to each other: run it so, and so it went."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from leaklab.model import Check

Ran = tuple[float, str]
"""How one run went: its seconds, and the name of what it raised (``ValueError``), empty if it ended by itself.

A plain tuple of plain values: the collector forgets it at once, so it is never counted as something the run bore.
"""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Several runs inside a context manager.

    Attributes:
        number: Number of the first of them.
        times: How many.
        around: Entered in the very function that runs the code.
    """

    number: int
    times: int
    around: AbstractContextManager[None]


Steps = Generator[int | RunRequest, Ran, Check]
"""Yields the number of the run to make (0 for a warm-up) or a request for several, is sent how it went, returns the
record. A single run is asked for by a bare number: a request, being an object, would count as born in the run."""
