"""Run a cell a few more times statement by statement, and count what each statement left behind.

The counted runs are over and recorded when this begins. One baseline is frozen; a census before the first statement and
after each one tells births by run and statement. What is alive at the end is its statement's, but for what takes the
place of older objects: a ring buffer that is full makes as much as it lets go, and grows no further.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.check.findings import Explained
from leaklab.check.session import CheckSession, Ran, Statement
from leaklab.measure.census import Baseline, DisturbedError, FrozenCensus
from leaklab.measure.measurement import Cohorts
from leaklab.model import StatementGrowth
from leaklab.runtime.addresses import Addresses, addresses_of, kinds_of, picked, types_at
from leaklab.runtime.gc_control import collect_quietly
from leaklab.runtime.objects import is_tensor, is_tensor_type
from leaklab.runtime.sizes import owned_bytes, storage_bytes
from leaklab.text import unit_words

_N_RUNS = 5
_FEWEST_RUNS = 3
"""The first run frees what the counted ones left in its variables, and what the last one made may be in them still."""
_FEWEST_WITH_BIRTHS = 2
"""What a statement left in one run only came once: a cache, a lazy import."""
_LEAST_LEFT = 1.0


def find_statements(session: CheckSession, explained: Explained) -> Generator[int, Ran, Explained]:
    """Run the cell statement by statement, where the settings want that, and say what each leaves behind per run."""
    if not session.settings.statements or session.in_loop or session.failure:
        return explained
    cell = session.cell
    if cell is None:
        return _with_rows(explained, (), "only the statements of a cell can be run one by one, not those of a function")
    births = _StatementBirths(session)
    started = time.perf_counter()
    with cell.by_statement(births.count) as statements:
        births.begin(len(statements))
        try:
            while births.n_runs < _N_RUNS and time.perf_counter() - started < session.seconds_left:
                _seconds, failure = yield session.next_run + births.n_runs
                if failure := failure or births.failure:
                    births.failure = f"statement-by-statement run {births.n_runs + 1} ended with {failure}"
                    break
                births.n_runs += 1
        finally:
            births.end()
    if births.n_runs < _FEWEST_RUNS:
        why = births.failure or "no time was left for runs statement by statement: allow more with -t"
        return _with_rows(explained, (), f"it is not known what each statement leaves behind: {why}")
    rows = births.rows(statements, _holders(cell.filename, statements, explained))
    note = (
        f"the cell was run {unit_words(births.n_runs, 'more times')}, statement by statement, to count what each "
        "leaves behind"
    )
    return _with_rows(explained, rows, births.failure, note)


def _with_rows(explained: Explained, rows: tuple[StatementGrowth, ...], *notes: str) -> Explained:
    return replace(explained, statements=rows, later_notes=(*explained.later_notes, *filter(None, notes)))


class _StatementBirths:
    """What was born before the first statement of each run and in every statement, by its slot.

    Args:
        session: Lends the heap, and makes what sees births.
    """

    def __init__(self, session: CheckSession) -> None:
        self._session, self._measurement = session, session.measurement
        self._taker: Baseline | None = None
        self.n_runs = 0
        self.failure = ""

    def begin(self, n_statements: int) -> None:
        """Take everything alive as the baseline."""
        self._n_slots = n_statements + 1
        self._cohorts = Cohorts((_N_RUNS + 1) * self._n_slots)
        # How much of the baseline was alive before each run: an array, which no census lists.
        self._n_frozen = np.zeros(_N_RUNS + 1, np.int64)
        # All of ours is made before the one count, or is gone at the other.
        self._kinds_before = self._kinds_now()
        self._taker = self._session.baseline()
        self._counts_frozen = isinstance(self._taker, FrozenCensus)
        self._taker.begin()

    def count(self, place: int) -> None:
        """Count what the statement at *place* bore; -1 is what comes before the first."""
        self._take()
        if place < 0:
            self._count_frozen()

    def end(self) -> None:
        """Give the baseline up, and see what there is of each type."""
        if self._taker is not None:
            if self.n_runs == _N_RUNS:
                self._count_frozen()
            self._taker.end()
            self._taker = None
            self._kinds_after = self._kinds_now()

    def rows(self, statements: Sequence[Statement], holders: Sequence[tuple[str, ...]]) -> tuple[StatementGrowth, ...]:
        """Return what each statement left behind; the baseline has been given up."""
        with self._measurement.heap() as objects:
            return self._rows(objects, statements, holders)

    def _take(self) -> None:
        if self.failure or self._taker is None:
            return
        try:
            self._taker.mark()
            self._cohorts.add(self._taker.take())
        except DisturbedError as disturbed:
            self.failure = f"the collector's objects {disturbed.how}"

    def _kinds_now(self) -> Addresses:
        if self._measurement.collects:
            collect_quietly()
        with self._measurement.heap() as objects:
            return kinds_of(objects)

    def _count_frozen(self) -> None:
        # It walks all objects, 50 ms for 200,000: too dear after every statement.
        self._n_frozen[self.n_runs] = gc.get_freeze_count() if self._counts_frozen else 0

    def _rows(
        self, objects: list[Any], statements: Sequence[Statement], holders: Sequence[tuple[str, ...]]
    ) -> tuple[StatementGrowth, ...]:
        addresses, kinds = addresses_of(objects), kinds_of(objects)
        self._cohorts.keep_alive_ones(addresses, kinds)
        born, born_kinds, slots = self._cohorts.members()
        runs, places = np.divmod(slots, self._n_slots)
        is_counted = (runs > 0) & (runs < self.n_runs - 1) & (places > 0)
        tensor_kinds = _tensor_kinds(kinds)
        n_left: npt.NDArray[np.float64] = np.zeros((len(statements), 2))
        for kind in np.unique(born_kinds[is_counted]).tolist():
            is_kind = born_kinds == kind
            chosen = is_counted & is_kind
            n_born = np.bincount(places[chosen] - 1, minlength=len(statements)).astype(float)
            in_runs = [len(np.unique(runs[chosen & (places == place + 1)])) for place in range(len(statements))]
            n_born[np.array(in_runs) < _FEWEST_WITH_BIRTHS] = 0
            is_last = is_kind & (runs == self.n_runs - 1) & (places > 0)
            n_dead = int((self._kinds_before == kind).sum() + is_kind.sum() - (self._kinds_after == kind).sum())
            left = self._without_replaced(n_born, int(is_last.sum()), n_dead, holders)
            n_left[:, 0] += left
            n_left[:, 1] += left if kind in tensor_kinds else 0
        known = set(storage_bytes(picked(objects, _places(addresses, kinds, tensor_kinds, without=born))))
        n_counted = self.n_runs - 2
        rows = []
        for place, (statement, held) in enumerate(zip(statements, holders, strict=True)):
            chosen = born[is_counted & (places == place + 1)]
            things = picked(objects, np.flatnonzero(np.isin(addresses, chosen)))
            share = n_left[place, 0] / len(chosen) if len(chosen) else 0.0
            n_bytes = owned_bytes(things, without_storages=known) if share else 0
            known.update(storage_bytes(filter(is_tensor, things)))
            things.clear()
            rows.append(
                StatementGrowth(
                    line=statement.line,
                    end_line=statement.end_line,
                    source=statement.source,
                    objects_per_run=float(n_left[place, 0]) / n_counted,
                    tensors_per_run=float(n_left[place, 1]) / n_counted,
                    bytes_per_run=n_bytes * float(share) / n_counted,
                    holders=held,
                )
            )
        return tuple(rows)

    def _without_replaced(
        self, n_born: npt.NDArray[np.float64], n_last: int, n_dead: int, holders: Sequence[tuple[str, ...]]
    ) -> npt.NDArray[np.float64]:
        """Return how much of what each statement bore is no replacement of an older object of its type.

        Args:
            n_born: What the counted runs left, by statement.
            n_last: What the last run left.
            n_dead: Objects of the baseline that died.
            holders: Of the leaks that a statement keeps: what these statements bear is the last to be a replacement.
        """
        n_counted = self.n_runs - 2
        # A variable that every run sets anew: the baseline's value died, that of the last run lives.
        n_variables = max(n_last - n_born.sum() / n_counted, 0)
        to_replace = max(n_dead - n_variables, 0) * n_counted / self.n_runs
        left = n_born.copy()
        if self._counts_frozen:  # what died in the first run only was not replaced, as what dies in every run is
            to_replace = min(to_replace, float(self._n_frozen[1] - self._n_frozen[self.n_runs - 1]))
        ranks = [bool(held) for held in holders]
        for rank in sorted(set(ranks)):
            chosen = np.array([one == rank for one in ranks]) & (left > 0)
            if to_replace <= 0 or not chosen.any():
                continue
            n_taken = min(float(left[chosen].sum()), to_replace)
            left[chosen] -= n_taken * left[chosen] / left[chosen].sum()
            to_replace -= n_taken
        # Where something was replaced the ends of the counted runs leave a rest of less than one object.
        left[(left < n_born) & (left < _LEAST_LEFT)] = 0
        return left


def _places(addresses: Addresses, kinds: Addresses, wanted: Addresses, *, without: Addresses) -> Addresses:
    """Return the places of the objects of *wanted* kinds but for the addresses *without*."""
    return np.flatnonzero(np.isin(kinds, wanted) & ~np.isin(addresses, without))


def _tensor_kinds(kinds: Addresses) -> Addresses:
    return np.array([address for address, kind in types_at(kinds).items() if is_tensor_type(kind)], np.int64)


def _holders(filename: str, statements: Sequence[Statement], explained: Explained) -> list[tuple[str, ...]]:
    """Return for each statement the holders of the leaks that a line of it keeps."""
    found: list[dict[str, None]] = [{} for _ in statements]
    for leak in explained.leaks:
        for name, number in (place for one in explained.lines for place in one.keeping.get(leak.fingerprint, ())):
            for holders, statement in zip(found, statements, strict=True):
                if name == filename and statement.line <= number <= statement.end_line:
                    holders[leak.holder] = None
    return [tuple(holders) for holders in found]
