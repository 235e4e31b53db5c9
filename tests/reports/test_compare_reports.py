"""Two exported reports, compared check by check."""

from __future__ import annotations

from dataclasses import replace

import samples

import leaklab
from leaklab.model.check import KeptCheck, NotebookChecks
from leaklab.model.comparison import Fate
from leaklab.reports.check import LeakReport
from leaklab.reports.notebook import NotebookReport


def collection(*checks):
    return NotebookChecks("training.ipynb", tuple(map(KeptCheck, checks)))


def named(check, name):
    return replace(check, settings=replace(check.settings, name=name))


def test_two_reports_are_compared_check_by_check_and_pass_if_nothing_leaks():
    leaky, clean = samples.leaky_check(), samples.clean_check()
    before = NotebookReport(collection(named(leaky, "a"), named(clean, "b")))
    cured = NotebookReport(collection(named(leaky, "a"), named(clean, "b"), named(clean, "a")))
    comparison = before.compare(cured)  # the last check of a name is the one after the repair
    assert comparison.passed
    assert [name for name, _ in comparison.pairs] == ["b", "a"]
    assert "now 0: fixed" in str(comparison)
    assert not cured.compare(before).passed


def test_a_leaking_check_that_is_missing_from_the_second_report_does_not_pass():
    before = NotebookReport(collection(named(samples.leaky_check(), "a"), named(samples.clean_check(), "b")))
    after = NotebookReport(collection(named(samples.clean_check(), "b")))
    comparison = before.compare(after)
    assert not comparison.passed
    assert comparison.lines[-1] == "a: leaked, and is not in the second report"


def test_of_two_checks_with_different_names_nothing_is_called_fixed():
    before, other = LeakReport(named(samples.leaky_check(), "step")), LeakReport(named(samples.clean_check(), "load"))
    comparison = leaklab.compare(before, other)
    assert not comparison.passed
    assert 'these are different checks, "step" and "load": no leak is called fixed' in str(comparison)
    assert not comparison.pairs[0][1].fixed
    assert {row.fate for row in comparison.pairs[0][1].rows} == {Fate.UNPROVEN}


def test_reports_of_one_check_each_are_compared_where_one_has_no_name():
    before, after = LeakReport(named(samples.leaky_check(), "")), LeakReport(named(samples.clean_check(), "renamed"))
    comparison = leaklab.compare(before, after)
    assert comparison.passed
    assert "now 0: fixed" in str(comparison)


def test_a_failed_check_proves_nothing():
    assert not leaklab.compare(LeakReport(samples.clean_check()), LeakReport(samples.failed_check())).passed


def test_checks_without_a_name_are_not_paired_where_their_numbers_differ():
    plain = replace(samples.clean_check(), settings=replace(samples.clean_check().settings, name=""))
    before = NotebookReport(collection(plain, plain))
    assert before.compare(NotebookReport(collection(plain, plain))).pairs[1][0] == "check 2 without a name"
    assert before.compare(NotebookReport(collection(plain, plain, plain))).pairs == ()
