"""List the objects born since a baseline, at the cost of what was born.

After ``gc.freeze()`` the collector's lists hold only younger objects: a census then costs microseconds, whatever the
size of the heap (`FrozenCensus`). Where the user has frozen objects of their own, ``gc.unfreeze()`` would thaw those
too, so the baseline is kept as a sorted array of addresses and every census lists the whole heap (`ScanCensus`). A cell
that freezes in every run hides its objects from both: `RefreezingCensus` thaws, lists and freezes again.

Objects are listed by ``gc.get_objects()`` without a generation and collected by ``gc.collect()`` without an argument:
these behave alike on CPython 3.10 to 3.15, generational or incremental. The younger generations only add evidence.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from leaklab.runtime.addresses import Addresses, addresses_of, kinds_of
from leaklab.runtime.gc_control import collect_quietly, user_has_frozen


class DisturbedError(Exception):
    """The cell froze or thawed the collector's objects: this census cannot see what it should."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


@dataclass(frozen=True, slots=True)
class Census:
    """The objects alive now and born since the baseline.

    Attributes:
        addresses: Shape ``(n,)``, sorted.
        kinds: Shape ``(n,)``, the address of each object's type.
        young: Shape ``(n,)``, whether the object is certainly younger than the last census: where an object died and
            another took its address and type, this is what tells them apart. False where that is not known.
    """

    addresses: Addresses
    kinds: Addresses
    young: npt.NDArray[np.bool_]


class Baseline(Protocol):
    """One way to see what was born; used as ``begin``, then per run ``mark`` and ``take``, then ``end``."""

    def begin(self) -> None:
        """Take everything alive now as the baseline."""

    def mark(self) -> None:
        """Note that a run starts."""

    def take(self) -> Census:
        """List what was born since the baseline and lives; raises `DisturbedError` if the cell hid it."""

    def end(self) -> None:
        """Give up the baseline; the collector's lists are as before `begin`."""


def sorted_census(objects: list[object], without: int = 0, young: Addresses | None = None) -> Census:
    """Return the census of *objects*, but for the one at address *without*; *young* are addresses known to be new."""
    addresses, kinds = addresses_of(objects), kinds_of(objects)
    order = np.argsort(addresses, kind="stable")
    order = order[addresses[order] != without]
    addresses = addresses[order]
    is_young = np.zeros(len(addresses), bool)
    if young is not None and len(addresses):
        # Not np.isin: its first call imports numpy.ma, whose thousand objects would be listed as born in that run.
        places = np.minimum(np.searchsorted(addresses, young), len(addresses) - 1)
        is_young[places[addresses[places] == young]] = True
    return Census(addresses, kinds[order], is_young)


def _collect_and_list(*, collects: bool) -> tuple[list[object], Addresses]:
    """Return all unfrozen objects, and the addresses of those that were made since the last collection.

    A full collection moves every survivor to the oldest generation, so what the younger ones hold before the next is
    new. (What automatic collections moved on meanwhile is missed; with an incremental collector generation 1 is empty.)
    """
    if not collects:
        return gc.get_objects(), np.empty(0, np.int64)
    fresh = gc.get_objects(generation=0)
    fresh += gc.get_objects(generation=1)
    young = addresses_of(fresh)
    fresh.clear()
    del fresh
    collect_quietly()
    return gc.get_objects(), young


class FrozenCensus:
    """The baseline is frozen: ``gc.get_objects()`` returns only what is younger.

    Args:
        collects: Whether garbage is collected before counting. Not where the user has switched the collector off:
            there, cyclic garbage stays, and that is what the user wants to know.
    """

    def __init__(self, *, collects: bool) -> None:
        self._collects = collects
        self._old: list[object] = []  # a tracked object of the baseline: visible only if somebody thaws it
        self._young: list[object] = []

    def begin(self) -> None:
        """Freeze everything alive; the caller has just collected."""
        gc.freeze()

    def mark(self) -> None:
        """Make the object that must be visible after the run, unless the cell freezes."""
        self._young = []

    def take(self) -> Census:
        """List the unfrozen objects."""
        objects, young = _collect_and_list(collects=self._collects)
        # No generator expressions here: the cell that ties one to `self` would be listed as born.
        census = sorted_census(objects, id(self._young), young)
        frozen = len(census.addresses) == len(objects)
        thawed = bool((census.addresses == id(self._old)).any())
        objects.clear()
        if thawed or frozen:
            raise DisturbedError("thawed" if thawed else "frozen")
        return census

    def end(self) -> None:
        """Thaw everything: nothing but our own baseline was frozen."""
        gc.unfreeze()


class ScanCensus:
    """The baseline is an array of addresses; every census lists the whole heap.

    An address of the baseline whose object has died may be taken by a new object of the same type within one run; that
    object is then seen as an old one.
    """

    def __init__(self, *, collects: bool) -> None:
        self._collects = collects
        self._young: list[object] = []
        self._forget()

    def begin(self) -> None:
        """Note the address and the type of everything alive."""
        now = self._list_all()
        self._old_addresses, self._old_kinds = now.addresses, now.kinds

    def mark(self) -> None:
        """Make the object that must be visible after the run, unless the cell freezes."""
        self._young = []

    def take(self) -> Census:
        """List what is not in the baseline; the baseline forgets what has died."""
        now = self._list_all()
        if id(self._young) in self._hidden_of(now):
            msg = "frozen"
            raise DisturbedError(msg)
        common, at_now, at_base = np.intersect1d(
            now.addresses, self._old_addresses, assume_unique=True, return_indices=True
        )
        same = (now.kinds[at_now] == self._old_kinds[at_base]) & ~now.young[at_now]
        self._old_addresses, self._old_kinds = common[same], now.kinds[at_now[same]]
        new = np.ones(len(now.addresses), bool)
        new[at_now[same]] = False
        new[now.addresses == id(self._young)] = False
        return Census(now.addresses[new], now.kinds[new], now.young[new])

    def end(self) -> None:
        """Forget the baseline."""
        self._forget()

    def _forget(self) -> None:
        # Bare arrays, which the collector does not track: a `Census` kept here would be listed as born.
        self._old_addresses = self._old_kinds = np.empty(0, np.int64)

    def _hidden_of(self, now: Census) -> tuple[int, ...]:
        """Return the mark's address if the census does not show it."""
        place = int(np.searchsorted(now.addresses, id(self._young)))
        seen = place < len(now.addresses) and now.addresses[place] == id(self._young)
        return () if seen else (id(self._young),)

    def _list_all(self) -> Census:
        objects, young = _collect_and_list(collects=self._collects)
        census = sorted_census(objects, id(objects), young)
        objects.clear()
        return census


class RefreezingCensus(ScanCensus):
    """For a cell that freezes in every run: thaw, list, freeze again.

    After such a run everything alive is frozen by the user's own doing, so freezing again brings that state back. No
    garbage is collected: frozen garbage is what this user keeps for ever.
    """

    def __init__(self) -> None:
        super().__init__(collects=False)

    def _list_all(self) -> Census:
        gc.unfreeze()
        try:
            return super()._list_all()
        finally:
            gc.freeze()

    def _hidden_of(self, now: Census) -> tuple[int, ...]:  # noqa: ARG002 - thawed: nothing can hide
        return ()


class BirthWindow:
    """Open it before the code and close it after, whatever happens in between.

    An address that dies and is used again inside the window is known to be new: no later comparison can tell that.
    Where the user has frozen objects of their own, or has switched the collector off, nothing is done at all. Garbage
    made of objects older than the window is collected only after it.

    Attributes:
        code_froze: After `close`, whether the code called ``gc.freeze()``: then everything alive is frozen still.
    """

    def __init__(self) -> None:
        self._is_open = False
        self.code_froze = False
        self._old: list[object] = []  # tracked and older than the window: visible only if the code thaws
        self._young: list[object] = []

    def open(self) -> None:
        """Freeze everything alive; the caller has just collected."""
        if gc.isenabled() and not user_has_frozen():
            gc.freeze()
            self._young = []
            self._is_open = True

    def close(self) -> Addresses | None:
        """Thaw, and return the addresses of what was born and lives; None if that is not known."""
        if not self._is_open:
            return None
        self._is_open = False
        try:
            collect_quietly()
            objects = gc.get_objects()
            addresses = addresses_of(objects)
            objects.clear()
            self.code_froze = not bool((addresses == id(self._young)).any())
            code_thawed = bool((addresses == id(self._old)).any())
        finally:
            # Objects that the code itself has frozen stay frozen: ours are among them, and it asked for that.
            if not self.code_froze:
                gc.unfreeze()
        return None if self.code_froze or code_thawed else addresses[addresses != id(self._young)]
