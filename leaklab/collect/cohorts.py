"""Know every object by the run that bore it, in packed arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from leaklab.addresses import Addresses
from leaklab.collect.census import Census

_NONE = np.empty(0, np.int64)


class Cohorts:
    """The objects that each measured run bore.

    The lists are as long as they will ever be, and hold only arrays, which the collector does not track: as objects,
    these records would be found by the very census that they record.
    """

    def __init__(self, max_runs: int) -> None:
        self._addresses: list[Addresses] = [_NONE] * max_runs
        self._kinds: list[Addresses] = [_NONE] * max_runs
        self._last_addresses, self._last_kinds = _NONE, _NONE
        self.n_runs = 0

    def start_phase(self) -> None:
        """Forget the last census: a new baseline makes everything alive old."""
        self._last_addresses, self._last_kinds = _NONE, _NONE

    def add(self, census: Census) -> int:
        """Make what the last census did not show the next cohort; return its size.

        An object that took the address of one of the same type that died in the same run, and that the census does not
        know to be young, is taken for that one.
        """
        old = _places(census, self._last_addresses, self._last_kinds)
        new = ~old | census.young
        if new.any():
            self._addresses[self.n_runs] = census.addresses[new]
            self._kinds[self.n_runs] = census.kinds[new]
        self._last_addresses, self._last_kinds = census.addresses, census.kinds
        self.n_runs += 1
        return int(new.sum())

    def keep_alive_ones(self, now: Census) -> None:
        """Drop the objects that *now*, a census of the whole heap, does not show any more."""
        taken = _NONE
        for run in reversed(range(self.n_runs)):  # an address belongs to the newest cohort that has it
            cohort = Census(self._addresses[run], self._kinds[run], np.zeros(len(self._kinds[run]), bool))
            alive = _places(cohort, now.addresses, now.kinds) & ~np.isin(cohort.addresses, taken)
            self._addresses[run], self._kinds[run] = cohort.addresses[alive], cohort.kinds[alive]
            taken = np.concatenate([taken, self._addresses[run]])

    @property
    def n_bytes(self) -> int:
        """The native memory that these records take."""
        return sum(array.nbytes for array in (*self._addresses, *self._kinds))

    def sizes(self) -> tuple[int, ...]:
        """Return how many objects each cohort holds."""
        return tuple(len(cohort) for cohort in self._addresses[: self.n_runs])

    def members(self) -> tuple[Addresses, Addresses, npt.NDArray[np.int64]]:
        """Return the addresses, the kinds and the run indices (0-based) of all cohorts, one row an object."""
        runs = np.repeat(np.arange(self.n_runs), self.sizes())
        if not self.n_runs:
            return _NONE, _NONE, runs
        return np.concatenate(self._addresses[: self.n_runs]), np.concatenate(self._kinds[: self.n_runs]), runs

    def by_kind(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield each kind's address with its count in every cohort."""
        _addresses, kinds, runs = self.members()
        for kind in np.unique(kinds):
            yield int(kind), tuple(np.bincount(runs[kinds == kind], minlength=self.n_runs).tolist())


def _places(census: Census, addresses: Addresses, kinds: Addresses) -> npt.NDArray[np.bool_]:
    """Return for each object of *census* whether the sorted *addresses* have it, with the same kind."""
    if not len(addresses):
        return np.zeros(len(census.addresses), bool)
    places = np.minimum(np.searchsorted(addresses, census.addresses), len(addresses) - 1)
    found: npt.NDArray[np.bool_] = (addresses[places] == census.addresses) & (kinds[places] == census.kinds)
    return found
