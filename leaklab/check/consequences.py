"""Tell which small places end with a larger leak: what keeps them is cut where that leak's holders let go.

Size proves nothing: a hook that every run registers takes 200 bytes beside a kept graph of megabytes, and is a leak of
its own. A place is a consequence of another leak only if the heap shows it: once all holders of the other let go, no
root reaches what grows here; or threads that leak have it in hand until their functions return.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Thread

import numpy as np

from leaklab.check.ranking import SMALL_BYTES
from leaklab.explain.groups import Group
from leaklab.explain.unseen_parts import in_hand_of_threads
from leaklab.heap.view import HeapView
from leaklab.model import Leak
from leaklab.runtime.addresses import Ints
from leaklab.runtime.objects import is_kind_of

SMALL_SHARE = 0.05
"""What is told with a larger leak is also less than this share of the largest."""
_THREAD_LOCALS = "thread-locals"
"""Beside the cause of a leak of what threads keep for themselves: the threads are told with it."""


@dataclass(frozen=True, slots=True, eq=False)
class LeakWithSurvivors:
    """One leak with its survivors.

    Attributes:
        leak: The leak.
        group: Its survivors; None for what grows in place.
        freed: What no root reaches once all its holders let go; None where that was not asked.
    """

    leak: Leak
    group: Group | None
    freed: Ints | None = None


def ended_with(view: HeapView, places: Sequence[LeakWithSurvivors]) -> dict[str, Leak]:
    """Return for the fingerprint of each small place that ends with a larger one the leak that it ends with."""
    larger_first = sorted(places, key=lambda place: -place.leak.bytes_per_run)
    with_threads = [place for place in larger_first if _has_threads(view, place.group)]
    in_hand = in_hand_of_threads(view)
    bar = min(SMALL_BYTES, SMALL_SHARE * larger_first[0].leak.bytes_per_run) if larger_first else 0.0
    found: dict[str, Leak] = {}
    for number, place in enumerate(larger_first):
        if place.group is None:
            continue
        survivors = np.asarray(place.group.entries or place.group.members, np.int64)
        ends: Iterable[LeakWithSurvivors] = ()
        if place in with_threads:
            ends = (other for other in larger_first if other is not place and _THREAD_LOCALS in other.leak.also_causes)
        elif in_hand[survivors].all():
            ends = with_threads
        elif place.leak.bytes_per_run < bar:
            others = ((other, other.freed) for other in larger_first[:number])
            ends = (other for other, freed in others if freed is not None and np.isin(survivors, freed).all())
        for other in ends:
            found[place.leak.fingerprint] = found.get(other.leak.fingerprint, other.leak)
            break
    return found


def _has_threads(view: HeapView, group: Group | None) -> bool:
    members = () if group is None else group.members
    return any(is_kind_of(view.objects[member], Thread) for member in members)
