"""Which leaks are gone, which stay, which are new, and which only changed their holder."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import samples

from leaklab.errors import ReportError
from leaklab.magics.leakcheck import MAX_NAMES, compared_with_last
from leaklab.model import Outcome, Verdict
from leaklab.render.json import from_json, to_json
from leaklab.reports.check import LeakReport, said_since
from leaklab.reports.comparison import compare_checks

CLEAN = samples.clean_check()
LEAKY = samples.leaky_check()
LEAK = replace(samples.history_leak(), what="torch.Tensor (64, 128) float32 cpu", bytes_per_run=32_768.0)


def check_of(*leaks):
    return replace(LEAKY, leaks=leaks)


def held_by(holder, fingerprint, *holders, **changes):
    return replace(LEAK, holder=holder, fingerprint=fingerprint, holders=(holder, *holders), **changes)


def test_a_leak_whose_second_holder_was_known_is_half_fixed():
    before = check_of(held_by("trainer.history", "a", "cache.items"))
    after = check_of(held_by("cache.items", "b"))
    comparison = compare_checks(before, after)
    assert not comparison.fixed
    assert comparison.lines == (
        (
            "torch.Tensor (64, 128) float32 cpu: was 32.0 KiB per run, now 32.0 KiB per run: "
            "1 of 2 holders fixed (trainer.history), cache.items still holds it"
        ),
    )


def test_a_holder_that_only_the_repair_brings_to_light_is_told_as_a_holder_not_as_a_new_leak():
    comparison = compare_checks(check_of(held_by("a.list", "a")), check_of(held_by("b.list", "b")))
    assert comparison.lines == (
        (
            "torch.Tensor (64, 128) float32 cpu: was 32.0 KiB per run, now 32.0 KiB per run: "
            "a.list lets go, but b.list holds the same: one of several holders fixed"
        ),
    )


def test_a_holder_that_the_second_check_still_lists_is_not_said_to_have_let_go():
    before = check_of(held_by("trainer.history", "a"))
    after = check_of(held_by("also['copy']", "b", "trainer.history"))
    comparison = compare_checks(before, after)
    assert not comparison.fixed
    assert comparison.lines == (
        (
            "torch.Tensor (64, 128) float32 cpu: was 32.0 KiB per run, now 32.0 KiB per run: still leaks, no holder "
            "let go (trainer.history), and also['copy'] is now listed first"
        ),
    )


def test_a_leak_whose_holder_is_listed_under_a_leak_of_both_checks_is_not_fixed():
    before = check_of(held_by("a.list", "a"), held_by("b.list", "b"))
    lines = compare_checks(before, check_of(held_by("b.list", "b", "a.list"))).lines
    expected = "still a holder of torch.Tensor (64, 128) float32 cpu in b.list: not fixed"
    assert lines[0].endswith(f"in a.list: was 32.0 KiB per run, {expected}")


def test_another_kind_in_the_same_holder_does_not_stand_for_the_one_that_is_gone():
    before = check_of(held_by("a.list", "a"), held_by("a.list", "b", what="list"))
    lines = compare_checks(before, check_of(held_by("a.list", "b", what="list"))).lines
    assert lines[0].endswith("now 0: fixed")


def test_the_same_kind_at_another_rate_is_a_new_leak():
    comparison = compare_checks(check_of(held_by("a.list", "a")), check_of(held_by("b.list", "b", bytes_per_run=8.0)))
    assert [line.rpartition(", ")[2] for line in comparison.lines] == ["now 0: fixed", "new leak"]


def test_a_known_holder_is_found_before_a_leak_of_the_same_kind():
    before = check_of(held_by("a.list", "a"), held_by("b.list", "b", "c.list"))
    after = check_of(held_by("c.list", "c"))
    first, second = compare_checks(before, after).lines
    assert first.endswith("in a.list: was 32.0 KiB per run, now 0: fixed")
    assert second.endswith("1 of 2 holders fixed (b.list), c.list still holds it")


def test_a_leak_that_stays_with_fewer_holders_says_so():
    before = check_of(held_by("a.list", "a", "b.list"))
    comparison = compare_checks(before, check_of(held_by("a.list", "a")))
    assert comparison.lines[0].endswith("still leaks, 1 of 2 holders fixed (b.list)")


def test_a_renamed_variable_is_no_fixed_holder():
    comparison = compare_checks(check_of(held_by("old.list", "a")), check_of(held_by("new.list", "a")))
    assert comparison.lines[0].endswith("now 32.0 KiB per run: still leaks")


def test_a_comparison_shows_its_sentences_in_a_notebook():
    bundle = compare_checks(check_of(LEAK), CLEAN)._repr_mimebundle_()
    assert bundle["text/plain"].endswith("now 0: fixed")
    assert "<b>Fixed</b>" in bundle["text/html"]


def test_markup_in_a_name_stays_text():
    html = compare_checks(check_of(held_by("<script>", "a")), CLEAN)._repr_mimebundle_()["text/html"]
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_a_report_of_an_earlier_day_is_compared():
    old = from_json(to_json(check_of(LEAK)))
    assert compare_checks(old, CLEAN).fixed


@pytest.mark.parametrize("text", ["", "{", '{"format": "leaklab check", "schema": 99}', '{"format": "x"}'])
def test_what_cannot_be_compared_is_refused_in_one_line(text):
    with pytest.raises(ReportError) as caught:
        from_json(text)
    assert "\n" not in str(caught.value)


def named(check, name="step"):
    return replace(check, settings=replace(check.settings, name=name))


@pytest.fixture
def owner():
    return SimpleNamespace()


def test_the_first_check_of_a_name_has_nothing_to_compare(owner):
    assert compared_with_last(owner, named(LEAKY)) is None


def test_the_second_check_of_a_name_says_what_became_of_the_leaks(owner):
    compared_with_last(owner, named(check_of(LEAK)))
    assert "now 0: fixed" in str(compared_with_last(owner, named(CLEAN)))


def test_checks_of_other_names_or_none_are_not_compared(owner):
    compared_with_last(owner, named(LEAKY))
    assert compared_with_last(owner, named(CLEAN, "other")) is None
    assert compared_with_last(owner, named(CLEAN, "")) is None


def test_two_clean_checks_are_not_spoken_of(owner):
    compared_with_last(owner, named(CLEAN))
    assert compared_with_last(owner, named(CLEAN)) is None


def test_a_check_that_failed_does_not_replace_the_last_proof(owner):
    compared_with_last(owner, named(check_of(LEAK)))
    assert not compared_with_last(owner, named(samples.failed_check())).fixed
    assert compared_with_last(owner, named(CLEAN)).fixed


def test_the_repaired_check_is_the_next_one_to_compare_with(owner):
    for check in (check_of(LEAK), CLEAN):
        compared_with_last(owner, named(check))
    comparison = compared_with_last(owner, named(check_of(LEAK)))
    assert comparison.lines[0].endswith("new leak")


def test_no_more_names_are_remembered_than_the_limit(owner):
    for number in range(MAX_NAMES + 3):
        compared_with_last(owner, named(CLEAN, f"check {number}"))
    (memory,) = vars(owner).values()
    assert next(iter(memory)) == "check 3"
    assert len(memory) == MAX_NAMES


@pytest.mark.parametrize("told", ["noted", "bounded"])
def test_what_the_first_check_had_in_its_notes_or_as_bounded_is_no_new_leak(told):
    hook = held_by("net._forward_hooks", "b", what="function hook", bytes_per_run=217.0)
    before = replace(check_of(held_by("losses", "a")), **{told: (hook,)})
    comparison = compare_checks(before, check_of(hook))
    assert [line.rpartition(": ")[2] for line in comparison.lines] == ["fixed", "not new"]
    assert "now a leak of 217 B per run" in comparison.lines[1]
    assert not comparison.fixed


def test_a_recheck_begins_with_how_many_leaks_are_fixed_and_left():
    leaks = [held_by(f"{name}.list", name, what=name) for name in "abc"]
    comparison = compare_checks(check_of(*leaks), check_of(leaks[2]))
    assert comparison.summary == "2 of 3 fixed, 1 left"
    assert str(comparison).splitlines()[0] == comparison.summary
    fresh = held_by("d.list", "d", what="d")
    assert compare_checks(check_of(*leaks), check_of(leaks[2], fresh)).summary == "2 of 3 fixed, 1 left, 1 new"
    assert compare_checks(check_of(*leaks), samples.empty_check()).summary == "0 of 3 fixed, 3 not proven"
    assert compare_checks(CLEAN, check_of(fresh)).summary == "no leak before, 1 new"


def test_what_became_of_the_last_check_is_said_above_the_report_and_on_its_page():
    report = LeakReport(check_of(LEAK))
    again = said_since(report, compare_checks(check_of(LEAK, held_by("b.list", "b", what="b")), report.record))
    assert str(again).startswith("1 of 2 fixed, 1 left\n")
    for markup in (again._repr_html_(), again.to_html()):
        assert markup.index("1 of 2 fixed, 1 left") < markup.index(">LEAK<")
    assert again == report
    assert again.to_json() == report.to_json()


def test_a_row_says_in_words_what_its_figures_do_not():
    before = check_of(held_by("a.list", "a", "b.list"))
    (row,) = compare_checks(before, check_of(held_by("b.list", "b"))).rows
    assert row.words.endswith("1 of 2 holders fixed (a.list), b.list still holds it")


def undecided_check(*places, n_runs=40):
    """A check whose only open question is whether *places* leak."""
    verdict = Verdict(Outcome.INCONCLUSIVE, f"{places[0].what} in {places[0].holder}: it may end", n_runs=n_runs)
    return replace(CLEAN, verdict=verdict, undecided=places)


def test_a_leak_is_fixed_though_it_is_not_decided_whether_another_place_leaks():
    before, cache = check_of(held_by("a.list", "a")), held_by("cache", "c", what="list")
    comparison = compare_checks(before, undecided_check(cache))
    assert not comparison.fixed
    assert comparison.summary == "fixed"
    assert comparison.lines[0].endswith("in a.list: was 32.0 KiB per run, now 0: fixed")
    assert comparison.lines[1].startswith("not decided in the second check: `cache` grows by ")


def test_a_leak_whose_place_is_not_decided_is_not_proven_beside_one_that_is_fixed():
    before = check_of(held_by("a.list", "a"), held_by("cache", "c"))
    comparison = compare_checks(before, undecided_check(held_by("cache", "c", bytes_per_run=8.0)))
    assert comparison.summary == "1 of 2 fixed, 1 not proven"
    assert comparison.lines[1:] == (f"{LEAK.what} in cache: was 32.0 KiB per run, now 8 B per run so far: not decided",)


def test_a_known_holder_that_is_not_decided_leaves_the_leak_unproven():
    before = check_of(held_by("a.list", "a"))
    comparison = compare_checks(before, undecided_check(held_by("b.list", "b", "a.list")))
    assert comparison.summary == "0 of 1 fixed, 1 not proven"


def test_too_few_runs_prove_nothing_whatever_is_undecided():
    cache = held_by("cache", "c", what="list")
    comparison = compare_checks(check_of(held_by("a.list", "a")), undecided_check(cache, n_runs=3))
    assert comparison.summary == "0 of 1 fixed, 1 not proven"
