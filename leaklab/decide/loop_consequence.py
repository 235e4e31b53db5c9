"""What the growth of a loop leads to: what it takes until the loop ends, of what is free, and when nothing is left."""

from __future__ import annotations

import math
from dataclasses import dataclass

from leaklab.model.loop import ACCELERATOR
from leaklab.text import format_bytes

SHARE_THAT_MATTERS = 0.01
"""Of the free memory. A log of numbers takes some MiB in a run of days; what takes a hundredth of a machine is noticed
when a larger model, a longer run or a second process shares that machine."""


@dataclass(frozen=True, slots=True)
class Consequence:
    """What growth leads to.

    Attributes:
        n_bytes: What it takes until the loop ends; where nobody told how long the loop is, until it is twice as long.
        free_bytes: What is free now, of host or accelerator.
        full_at_step: The step at which nothing is left; None if that is later than the end of the loop, or never.
        matters: Whether somebody has to know.
    """

    n_bytes: float
    free_bytes: float
    full_at_step: int | None
    matters: bool

    def words(self, total_steps: int | None) -> str:
        """Return it as a clause: ``memory is full at step 310,000``."""
        if self.full_at_step is not None and self.matters:
            return f"memory is full at step {self.full_at_step:,}"
        if not self.n_bytes:
            return "the loop has ended"
        until = "the time the loop is twice as long" if total_steps is None else f"step {total_steps:,}"
        return f"by {until} it will take {format_bytes(self.n_bytes)} of the {format_bytes(self.free_bytes)} now free"


def consequence_of(bytes_per_step: float, step: int, total_steps: int | None, free_bytes: float) -> Consequence:
    """Return what growth by *bytes_per_step* from *step* on leads to.

    Args:
        bytes_per_step: The rate; 0.0 or less leads to nothing.
        step: Steps made so far.
        total_steps: Steps of the whole loop; None if not given: as many as so far are expected to come.
        free_bytes: What is free now.
    """
    remaining = max(step if total_steps is None else total_steps - step, 0)
    n_bytes = max(bytes_per_step, 0.0) * remaining
    steps_left = free_bytes / bytes_per_step if bytes_per_step > 0 else math.inf
    is_full = math.isfinite(steps_left) and (total_steps is None or steps_left < remaining)
    full_at = step + math.floor(steps_left) if is_full else None
    return Consequence(n_bytes, free_bytes, full_at, n_bytes > SHARE_THAT_MATTERS * free_bytes)


@dataclass(frozen=True, slots=True)
class Free:
    """Free memory in bytes: of the host, and of the accelerator that has least, 0 without one."""

    host: float
    accelerator: float = 0.0

    def of(self, memory: str) -> float:
        """Return that of `HOST` or `ACCELERATOR`."""
        return self.accelerator if memory == ACCELERATOR else self.host
