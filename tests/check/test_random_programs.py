"""A quick sample of random programs whose truth is known by construction; more seeds find more, and take longer."""

from __future__ import annotations

import pytest
from random_programs import program

import leaklab

pytestmark = pytest.mark.untraced


def by_night(start, stop):
    return [pytest.param(seed, marks=pytest.mark.nightly) for seed in range(start, stop)]


def check(wanted):
    return leaklab.leakcheck(wanted.cell, namespace={"owner": wanted.owner}, sites=False)


@pytest.mark.parametrize("seed", [0, 1, *by_night(2, 4)])
def test_a_program_that_settles_is_no_leak(seed):
    wanted = program(seed, n_leaking=0)
    report = check(wanted)
    assert report.verdict.outcome in ("clean", "bounded"), (wanted.parts, str(report.verdict))
    assert wanted.settled <= len(report.record.runs)


@pytest.mark.parametrize("seed", [0, 1, 2, *by_night(3, 6)])
def test_a_program_that_leaks_is_named_with_its_amount_and_nothing_else_is(seed):
    wanted = program(seed, n_leaking=1)
    (part,), report = wanted.leaking, check(wanted)
    assert [leak.holder for leak in report.leaks if f"owner.{part.place}" not in leak.holder] == []
    assert report.leaks[0].count_per_run == pytest.approx(part.per_run, rel=1 / 3, abs=0.1), part.name
