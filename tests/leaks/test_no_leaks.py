"""Each case of `cases` after its repair, and what only looks like a leak: neither is called one."""

from __future__ import annotations

import pytest
from cases import CASES
from checking import ask, by_day
from leak_case import Case

pytestmark = pytest.mark.untraced

BY_DAY = by_day(1)
REPAIRED = [
    pytest.param(case, id=case.name, marks=() if case.name in BY_DAY else pytest.mark.nightly)
    for case in CASES.values()
    if case.leaks
]


@pytest.mark.parametrize("case", REPAIRED)
def test_the_repaired_cell_is_not_called_a_leak(case: Case) -> None:
    said = ask(case, case.fixed)
    assert not said.failure
    assert not said.leaked, said


@pytest.mark.by_day(28)
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES.values() if not case.leaks])
def test_what_only_looks_like_a_leak_is_not_called_one(case: Case) -> None:
    said = ask(case, case.cell)
    assert not said.failure
    assert not said.leaked, said
