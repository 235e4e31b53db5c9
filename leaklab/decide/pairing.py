"""Tell which objects of two heap snapshots are the same ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from leaklab.model.heap_diff import HeapSnapshotRecord, SnapshotWords, Whole

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """The objects of two moments *a* and *b* of one process.

    Attributes:
        survivors_a: Rows in *a* of the objects that live at both moments.
        survivors_b: Their rows in *b*, in the same order.
        died: For each object of *a* whether it is gone.
        born: For each object of *b* whether it is new.
        exact: Whether no birth can have been missed.
    """

    survivors_a: Whole
    survivors_b: Whole
    died: Mask
    born: Mask
    exact: bool


def pair_objects(a: HeapSnapshotRecord, b: HeapSnapshotRecord, words_a: SnapshotWords, words_b: SnapshotWords) -> Pairs:
    """Pair the objects of *a* with those of *b*, which was taken later in the same process.

    An address is used again as soon as its object has died, often by the next object of the same size. So the same
    address is the same object only if its type is the same, by address and by name, and the later moment does not know
    it to be young. Where births were not watched, an object that took the place of one of its own type passes for it:
    births and deaths are then both too low by one, and their difference is right.
    """
    at_a, at_b = common_rows(a.addresses, b.addresses)
    same = a.kind_addresses[a.kinds[at_a]] == b.kind_addresses[b.kinds[at_b]]
    renamed = _renamed(a, b, words_a.kinds, words_b.kinds)
    if len(renamed):
        same &= ~np.isin(b.kinds[at_b], renamed)
    exact = bool(b.exact_since) and b.exact_since == a.token
    if len(b.young) and (a.collected or exact):
        same &= ~is_among(b.addresses[at_b], b.young)
    survivors_a, survivors_b = at_a[same], at_b[same]
    died, born = np.ones(len(a.addresses), bool), np.ones(len(b.addresses), bool)
    died[survivors_a] = False
    born[survivors_b] = False
    born[is_among(b.addresses, _unfollowed(a, words_a, words_b))] = False
    return Pairs(survivors_a, survivors_b, died, born, exact)


def still_there(earlier: HeapSnapshotRecord, now: HeapSnapshotRecord) -> Whole:
    """Return the addresses of the objects of *earlier* that *now* shows with the same type."""
    at_a, at_b = common_rows(earlier.addresses, now.addresses)
    same = earlier.kind_addresses[earlier.kinds[at_a]] == now.kind_addresses[now.kinds[at_b]]
    addresses: Whole = earlier.addresses[at_a[same]]
    return addresses[~is_among(addresses, now.young)] if earlier.collected else addresses


def kinds_gone(moment: HeapSnapshotRecord, names: tuple[str, ...], born: Whole, alive: Whole) -> Counter[str]:
    """Count by the names of their types those of *born*, addresses in *moment*, that are not among *alive*."""
    gone = np.isin(moment.addresses, born) & ~np.isin(moment.addresses, alive)
    counts: Counter[str] = Counter()
    for kind, count in Counter(moment.kinds[gone].tolist()).items():
        counts[names[kind]] += count
    return counts


def common_rows(first: Whole, second: Whole) -> tuple[Whole, Whole]:
    """Return the rows of the numbers that both have; each is sorted and has no number twice."""
    if not len(first) or not len(second):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    places = np.searchsorted(first, second)
    places[places == len(first)] = 0
    found = first[places] == second
    return places[found], np.flatnonzero(found)


def is_among(numbers: Whole, these: Whole) -> Mask:
    """Return which of *numbers* are among *these*, which are sorted."""
    if not len(these):
        return np.zeros(len(numbers), bool)
    places = np.minimum(np.searchsorted(these, numbers), len(these) - 1)
    found: Mask = these[places] == numbers
    return found


def _unfollowed(a: HeapSnapshotRecord, words_a: SnapshotWords, words_b: SnapshotWords) -> Whole:
    """Return the addresses of old dicts and tuples that the collector did not list at *a*, sorted.

    It does not follow a dict of nothing but numbers and texts until something else is put into it: that is no birth.
    Known are those that a variable or a module referred to at both moments.
    """
    now = {(place.expression, place.address) for place in words_b.places}
    old = [
        place.address
        for place in words_a.places
        if place.kind in ("dict", "tuple") and (place.expression, place.address) in now
    ]
    addresses = np.sort(np.array(old, np.int64))
    result: Whole = addresses[~is_among(addresses, a.addresses)]
    return result


def _renamed(a: HeapSnapshotRecord, b: HeapSnapshotRecord, kinds_a: tuple[str, ...], kinds_b: tuple[str, ...]) -> Whole:
    """Return the rows in *b*'s table of types at whose address *a* had a type of another name."""
    at_a, at_b = common_rows(a.kind_addresses, b.kind_addresses)
    other = [row for row_a, row in zip(at_a.tolist(), at_b.tolist(), strict=True) if kinds_a[row_a] != kinds_b[row]]
    return np.array(other, np.int64)
