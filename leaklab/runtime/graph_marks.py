"""Where in torch's numbering of autograd nodes the runs began; torch need not be there, and is asked only if loaded."""

from __future__ import annotations

from typing import NamedTuple

from leaklab.runtime.objects import loaded_variables

UNSET = -1  # the first node of a process has the number 0


class GraphMarks(NamedTuple):
    """Numbers of the first autograd node that a run could make.

    Attributes:
        first: Of the first measured run.
        previous: Of the last run but one.
        newest: Of the last run.
    """

    first: int = UNSET
    previous: int = UNSET
    newest: int = UNSET

    def next_run(self) -> GraphMarks:
        """Return the marks as a further run starts."""
        now = next_number()
        return GraphMarks(now, now, now) if self.newest == UNSET else GraphMarks(self.first, self.newest, now)


NO_MARKS = GraphMarks()


def next_number() -> int:
    """Return the number of the next autograd node that this thread makes; `UNSET` where torch does not tell."""
    peek = loaded_variables("torch._C._autograd").get("_get_sequence_nr")
    return UNSET if peek is None else int(peek())
