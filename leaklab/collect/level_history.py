"""Keep the levels of memory over a loop of any length, in a table that never gets larger."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from leaklab.collect.gauges import accelerator_levels, native_heap_bytes, rss_bytes
from leaklab.model.monitor import Levels

N_KEPT = 256
"""So many samples fit; when they are there, the distance that samples keep from each other doubles."""

_UNKNOWN = -1.0
_STEP, _SECONDS, _HEAP, _RSS, _ALLOCATED, _RESERVED = range(6)

Column = npt.NDArray[np.float64]


class LevelHistory:
    """Levels of memory after steps of a loop: at most `N_KEPT` of them, evenly spread, the first and the latest always.

    Kept as numbers in one array that exists before the first step: as objects, the samples would be what grows from
    step to step.
    """

    def __init__(self) -> None:
        self._rows = np.full((N_KEPT, 6), _UNKNOWN)
        self._n = 0
        self._spacing = 1.0
        self._n_thinned = 0

    def __len__(self) -> int:
        return self._n

    @property
    def spacing(self) -> int:
        """Steps that two samples are apart at least; only the latest may follow its neighbour sooner."""
        return int(self._spacing)

    def note(self, step: int, seconds: float) -> None:
        """Read the levels after *step*: 20 microseconds of the processor, a few more for each accelerator.

        Nothing is initialised by it, and no object of Python stays.

        Args:
            step: Not below that of an earlier note; such a one is left out.
            seconds: Since the loop began.
        """
        rows = self._rows
        if self._n and step < rows[self._n - 1, _STEP]:
            return
        n = self._row_for(step)
        heap, accelerator = native_heap_bytes(), accelerator_levels()
        allocated, reserved = (_UNKNOWN, _UNKNOWN) if accelerator is None else accelerator
        rows[n] = (step, seconds, _UNKNOWN if heap is None else heap, rss_bytes(), allocated, reserved)
        self._n = n + 1

    def heap(self) -> tuple[Column, Column]:
        """Return the steps, and what malloc had handed out after each; nothing where the system does not tell."""
        return self._series(_HEAP)

    def rss(self) -> tuple[Column, Column]:
        """Return the steps, and the resident set of the process after each."""
        return self._series(_RSS)

    def accelerator(self) -> tuple[Column, Column]:
        """Return the steps, and what was allocated on all accelerators; nothing for the steps before the first use."""
        return self._series(_ALLOCATED)

    def seconds(self) -> tuple[Column, Column]:
        """Return the steps, and the seconds since the loop began."""
        return self._series(_SECONDS)

    def levels(self) -> Levels:
        """Return the samples as a record."""
        columns = self._copy().T
        steps, heap, rss, allocated, reserved = (
            tuple(map(int, columns[i])) for i in (_STEP, _HEAP, _RSS, _ALLOCATED, _RESERVED)
        )
        return Levels(steps, tuple(columns[_SECONDS].tolist()), heap, rss, allocated, reserved)

    def _series(self, column: int) -> tuple[Column, Column]:
        rows = self._copy()
        known = rows[rows[:, column] != _UNKNOWN]
        return known[:, _STEP], known[:, column]

    def _copy(self) -> npt.NDArray[np.float64]:
        """Return the samples; read again if the loop thinned them out meanwhile, which another thread may see."""
        while True:
            before = self._n_thinned
            rows = self._rows[: self._n].copy()
            if before == self._n_thinned:
                return rows

    def _row_for(self, step: int) -> int:
        """Return the row for *step*: the latest sample gives its own away if it is too close to the one before it."""
        if self._n == N_KEPT and not self._is_latest_too_close():
            self._thin()
        if self._n and step == self._rows[self._n - 1, _STEP]:
            return self._n - 1
        return self._n - self._is_latest_too_close()

    def _is_latest_too_close(self) -> bool:
        if self._n < 2:  # noqa: PLR2004 - the first sample has none before it
            return False
        before, latest = self._rows[self._n - 2 : self._n, _STEP]
        return bool(latest - before < self._spacing)

    def _thin(self) -> None:
        """Double the spacing until half of the rows are free."""
        self._n_thinned += 1
        steps = self._rows[:, _STEP]
        kept = list(range(N_KEPT))
        while len(kept) > N_KEPT // 2 + 1:
            self._spacing *= 2
            kept = _spread(steps, kept[:-1], self._spacing) + kept[-1:]
        self._rows[: len(kept)] = self._rows[kept]
        self._n = len(kept)
        self._n_thinned += 1


def _spread(steps: Column, candidates: list[int], spacing: float) -> list[int]:
    """Return the first of *candidates* and each one that is *spacing* steps after the one kept before it."""
    kept = candidates[:1]
    for candidate in candidates[1:]:
        if steps[candidate] - steps[kept[-1]] >= spacing:
            kept.append(candidate)
    return kept
