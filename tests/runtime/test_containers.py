"""Containers are read as they are, half-built ones too, and no code of their classes is run."""

from __future__ import annotations

import collections
from typing import Any

import pytest
from half_built import EMPTY_PLACE, half_built
from hypothesis import given
from hypothesis import strategies as st

from leaklab.runtime.containers import (
    EMPTY,
    ends_of,
    first_items,
    item_at,
    items_in,
    newest_items,
    newest_pairs,
    value_lines,
)

_FILLED = st.lists(st.booleans(), max_size=12)


class Hostile:
    """Fails when it is looked at; a base of containers."""

    def __getitem__(self, _place: object) -> Any:
        raise AssertionError

    __len__ = __iter__ = __reversed__ = __eq__ = __hash__ = __repr__ = __getitem__


class HostileList(Hostile, list[Any]):
    """A list."""


class HostileTuple(Hostile, tuple[Any, ...]):
    """A tuple."""

    __slots__ = ()


class HostileDeque(Hostile, collections.deque[Any]):
    """A deque."""


class HostileDict(Hostile, dict[Any, Any]):
    """A dict."""


@pytest.mark.parametrize("kind", [list, tuple])
@given(is_filled=_FILLED, n=st.integers(0, 14))
def test_every_place_is_read_and_an_empty_one_is_told(kind: type, is_filled: list[bool], n: int) -> None:
    """Whichever places are empty, the others are found where they are."""
    things = [object() if each else EMPTY_PLACE for each in is_filled]
    container = half_built(kind, things)
    expected = [EMPTY if thing is EMPTY_PLACE else thing for thing in things]
    addresses = [0 if thing is EMPTY_PLACE else id(thing) for thing in things]

    assert items_in(container) == expected
    assert first_items(container, n) == expected[:n]
    assert newest_items(container, n) == [
        each for each in reversed(expected[max(len(expected) - n, 0) :]) if each is not EMPTY
    ]
    assert ends_of(container) == ((addresses[0], addresses[-1]) if things else (0, 0))
    assert item_at(container, n) is (expected[n] if n < len(expected) else EMPTY)


@pytest.mark.parametrize("kind", [HostileList, HostileTuple, HostileDeque])
def test_classes_have_no_say(kind: Any) -> None:
    """What the built-in base holds is read, by its own code."""
    things = [object() for _ in range(4)]
    container = kind(things)

    assert items_in(container) == things
    assert newest_items(container, 2) == [things[3], things[2]]
    assert ends_of(container) == (id(things[0]), id(things[3]))


def test_the_newest_entries_of_a_dict_come_last_first() -> None:
    """Whatever the class says."""
    assert newest_pairs(HostileDict(a=1, b=2, c=3), 2) == [("c", 3), ("b", 2)]


def test_values_of_a_half_built_list_are_told() -> None:
    """The empty place is named."""
    lines = value_lines(half_built(list, [5, EMPTY_PLACE]))

    assert lines == ["5", "not filled yet"]
