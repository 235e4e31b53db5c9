"""Containers are followed from moment to moment by where they stand in the collector's lists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaklab import leakcheck
from leaklab.check import explaining
from leaklab.measure.checkpoint import Lengths, follow
from leaklab.model import Outcome

_KIND = id(list)
_MOST = 40


def _moment(lengths: dict[int, int]) -> Lengths:
    addresses = np.array([*lengths], np.int64)
    return Lengths(addresses, np.full(len(lengths), _KIND), np.array([*lengths.values()], np.int64))


@st.composite
def _two_moments(draw: st.DrawFn) -> tuple[dict[int, int], dict[int, int]]:
    """Some containers, and what there is later: some died, some were born in front, behind, some moved."""
    before = draw(st.lists(st.integers(1, 200), unique=True, max_size=_MOST))
    survivors = [each for each in before if draw(st.integers(0, 5))]
    born = draw(st.lists(st.integers(201, 220), unique=True, max_size=5))
    later = [*born, *survivors] if draw(st.booleans()) else [*survivors, *born]
    if later and draw(st.booleans()):
        later.append(later.pop(draw(st.integers(0, len(later) - 1))))
    length = st.integers(0, 3)
    return {each: draw(length) for each in before}, {each: draw(length) for each in later}


@given(_two_moments())
def test_containers_are_followed_however_the_collector_lists_them(
    moments: tuple[dict[int, int], dict[int, int]],
) -> None:
    before, after = moments
    addresses, _kinds, table = follow([_moment(before), _moment(after)])
    expected = {each: (before.get(each, 0), n) for each, n in after.items() if n > before.get(each, 0)}
    found = zip(addresses.tolist(), map(tuple, table.tolist()), strict=True)
    assert dict(found) == expected


def test_a_container_that_dies_between_two_moments_is_followed_no_more() -> None:
    addresses, _kinds, _table = follow([_moment({1: 1, 2: 1}), _moment({2: 1}), _moment({1: 5, 2: 4})])
    assert addresses.tolist() == [2]


def _leaves_nothing() -> None:
    [1].copy()


def test_a_clean_check_of_a_quick_cell_asks_nobody_who_holds_what(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_args: object) -> object:
        pytest.fail("the heap was explained, though nothing grew")

    leakcheck(_leaves_nothing, sites=False)  # what the first check of a process fills is nobody's
    monkeypatch.setattr(explaining, "explain_growth", ask)
    report = leakcheck(_leaves_nothing, sites=False)
    assert report.verdict.outcome is Outcome.CLEAN
    assert len(report.record.runs) > 100
