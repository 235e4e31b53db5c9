"""Each case of `cases` after its repair, and what only looks like a leak: neither is called one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest
from cases import CASES
from checking import FOLLOWED, ask
from leak_case import Case

pytestmark = pytest.mark.untraced

REPAIRS_BY_DAY = 2
"""How many repaired cells of each cause are checked by day, besides those of the leaks that are followed."""


def repaired() -> Iterator[object]:
    n_of_cause: dict[str, int] = defaultdict(int)
    for case in CASES.values():
        if case.leaks:
            n_of_cause[case.causes[0]] += 1
            by_day = case.name in FOLLOWED or n_of_cause[case.causes[0]] <= REPAIRS_BY_DAY
            yield pytest.param(case, id=case.name, marks=() if by_day else pytest.mark.nightly)


@pytest.mark.parametrize("case", [*repaired()])
def test_the_repaired_cell_is_not_called_a_leak(case: Case) -> None:
    said = ask(case, case.fixed)
    assert not said.failure
    assert not said.leaked, said


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES.values() if not case.leaks])
def test_what_only_looks_like_a_leak_is_not_called_one(case: Case) -> None:
    said = ask(case, case.cell)
    assert not said.failure
    assert not said.leaked, said
