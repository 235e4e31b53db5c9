"""Each case of `cases` that leaks: the leak is found and named with its holder and its cause."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cases import CASES
from checking import ask, by_day
from leak_case import Case

pytestmark = pytest.mark.untraced

# What leaklab does not get right yet. Strict: a case that begins to pass must be taken out of here.
KNOWN_GAPS = {
    "frozen_set_united_with_itself": "a set has no first entry by which its replacement could be recognised",
}

BY_DAY = by_day(1)


def marks_of(case: Case) -> Iterator[pytest.MarkDecorator]:
    if case.name not in BY_DAY:
        yield pytest.mark.nightly
    if case.name in KNOWN_GAPS:
        yield pytest.mark.xfail(reason=KNOWN_GAPS[case.name], strict=True)


FOUND = [pytest.param(case, id=case.name, marks=[*marks_of(case)]) for case in CASES.values() if case.leaks]


@pytest.mark.parametrize("case", FOUND)
def test_a_leak_is_found_with_its_holder_and_its_cause(case: Case) -> None:
    said = ask(case, case.cell)
    assert not said.failure
    assert said.leaked, said.verdict
    assert any(holder in said.place for holder in case.holders), said
    assert said.cause in case.causes, said
