"""Containers that grew are read again by their addresses, as long as they live; nothing of theirs is held."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass

from leaklab.measure.level_history import HolderLengths


@dataclass(frozen=True)
class At:
    fingerprint: str
    chain: tuple[int, ...]
    grows: bool


class Holder:
    def __init__(self):
        self.outputs = []


def test_lengths_of_a_list_and_of_an_entrys_container_are_read_again():
    things, entry = [[1]], {"loss": [0]}
    things.append(entry)
    lengths = HolderLengths()
    lengths.note([At("grows", (id(things),), True), At("entry", (id(things), id(entry)), False), At("none", (), True)])
    assert lengths.read() == {"grows": 2, "entry": 2}
    things.extend([[2], [3]])
    assert lengths.read() == {"grows": 4, "entry": 4}
    lengths.keep({"entry"})
    assert lengths.read() == {"entry": 4}


def test_nothing_is_held_and_what_lasted_and_is_dead_has_no_length():
    holder = Holder()
    lengths = HolderLengths()
    holder.outputs.append([0])
    lengths.note([At("outputs", (id(holder), id(holder.outputs)), True)])
    assert lengths.read() == {"outputs": 1}
    assert lengths.read() == {"outputs": 1}
    known = weakref.ref(holder)
    del holder
    gc.collect()
    assert known() is None
    assert lengths.read() == {"outputs": 0}


def test_what_is_made_anew_at_every_step_is_not_taken_for_emptied():
    losses = [[1]]
    lengths = HolderLengths()
    lengths.note([At("losses", (id(losses),), True)])
    assert lengths.read() == {"losses": 1}
    kept = losses + [[2]]  # noqa: RUF005 - another list
    del losses
    gc.collect()
    assert lengths.read() == {}
    assert len(kept) == 2
