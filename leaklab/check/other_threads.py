"""Tell which other threads of the program ran while code was checked: what they make is counted with what it makes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from leaklab.collect.measurement import Measurement
from leaklab.heap.roots import other_threads

_LEAST_NANOSECONDS = 500_000
"""A thread that waits in turns of a second uses a tenth of this in a whole check."""
_N_NAMED = 3


class ThreadClocks:
    """The processor time of the other threads from now on; of none where the system does not tell."""

    def __init__(self) -> None:
        self._before = {thread: _nanoseconds(thread) for thread in other_threads()}

    def busy(self) -> tuple[str, ...]:
        """Return the names of the threads that were there when this was made, and have run since."""
        return tuple(
            name
            for thread, name in other_threads().items()
            if thread in self._before and _nanoseconds(thread) - self._before[thread] >= _LEAST_NANOSECONDS
        )


def _nanoseconds(thread: int) -> int:
    """Return the processor time of a thread; 0 where the system does not tell, or where it has just ended."""
    try:
        return int(Path(f"/proc/self/task/{thread}/schedstat").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def new_threads_note(measurement: Measurement) -> str:
    """Say how many more threads there are than before the first run; empty where there are none."""
    counts = [checkpoint.n_threads for checkpoint in measurement.checkpoints]
    return f"{counts[-1] - counts[0]} more threads run than before" if counts and counts[-1] > counts[0] else ""


def thread_words(names: Sequence[str]) -> str:
    """Return ``thread 'loader'`` or ``threads 'a', 'b', 'c' and 2 more``."""
    named = ", ".join(map(repr, names[:_N_NAMED]))
    more = f" and {len(names) - _N_NAMED} more" if len(names) > _N_NAMED else ""
    return f"thread{'s' * (len(names) > 1)} {named}{more}"
