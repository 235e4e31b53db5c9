from __future__ import annotations

from dataclasses import replace

import pytest
import samples
from hypothesis import given
from hypothesis import strategies as st

from leaklab.model import Outcome, RootPath, Status, Step
from leaklab.render.words import CAUSES, numbers_words, render_path, shown_path, suspect_references
from leaklab.reports.check_text import render_text
from leaklab.text import format_seconds, in_columns, shorten, visible

ALL_CHECKS = {
    "leak": samples.leaky_check(cuda=True),
    "clean": samples.clean_check(),
    "bounded": samples.bounded_check(),
    "failed": samples.failed_check(),
    "hook": samples.only(samples.hook_leak()),
    "cycle": samples.only(samples.cycle_leak()),
    "cured": samples.only(samples.cured_leak()),
    "empty": samples.empty_check(),
    "hostile": samples.hostile_check(),
}


def path(*statuses: Status, reference: str = ".a", root: str = "notebook variable") -> RootPath:
    return RootPath(root, tuple(Step(reference, "dict", "", status) for status in statuses))


E, U, L = Status.EXPECTED, Status.UNKNOWN, Status.LEAKED


@pytest.mark.parametrize("name", ALL_CHECKS)
@pytest.mark.parametrize("n_columns", [80, 100, 120])
def test_no_line_is_longer_than_the_columns(name, n_columns):
    with in_columns(n_columns):
        text = render_text(ALL_CHECKS[name])
    assert max(map(len, text.splitlines())) <= n_columns


@pytest.mark.parametrize("name", ALL_CHECKS)
def test_the_first_word_is_the_outcome(name):
    check = ALL_CHECKS[name]
    assert render_text(check).split()[0] == check.verdict.outcome.value.upper()


def test_a_clean_check_is_told_in_four_lines():
    assert len(render_text(samples.clean_check()).splitlines()) == 4


def test_control_characters_of_the_user_never_reach_the_terminal():
    text = render_text(samples.hostile_check())
    assert all(c.isprintable() or c == "\n" for c in text)
    assert "\\x1b[31m" in text
    text.encode("utf-8")  # and no lone surrogate is left


def test_six_leaks_stand_in_a_table_and_five_are_told_in_full():
    check = replace(samples.leaky_check(), leaks=tuple(replace(samples.hook_leak(), holder=f"h{n}") for n in range(6)))
    text = render_text(check)
    assert "\n     6  `h5`  1 function (208 B)  a hook is registered again and again\n" in text
    assert "Leak 5 of 6: `h4` grows by 1 function (208 B) every run" in text
    assert "Leak 6 of 6" not in text


def test_growth_of_a_bounded_place_is_told():
    place = replace(samples.window(), count_per_run=2.0, bytes_per_run=0.0)
    text = render_text(replace(samples.leaky_check(), bounded=(place,)))
    assert "(2 dicts every run while it grew)" in " ".join(text.split())


def test_growth_without_runs_of_birth_has_no_such_line():
    leak = replace(samples.hook_leak(), kept=())
    assert f"  evidence    {leak.reason}\n" in render_text(samples.only(leak))


def test_a_single_place_of_which_the_verdict_tells_is_not_told_twice():
    check = samples.bounded_check()
    assert "Not counted as leaks" not in render_text(check)
    assert "Not counted as leaks" in render_text(replace(check, bounded=check.bounded * 2))


def test_a_heap_that_cannot_be_read_is_unknown_and_not_zero():
    run = replace(samples.make_runs((1,))[0], heap_bytes=None)
    text = render_text(replace(samples.failed_check(), runs=(run,)))
    assert " unknown " in text.splitlines()[-3]


def test_a_path_of_thirty_steps_is_shown_in_full():
    path = RootPath("notebook variable", tuple(Step(f".link{i}", "Node", "", E) for i in range(30)))
    lines = render_path(path).splitlines()
    assert len(lines) == 31
    assert lines[30].split() == ["expected", ".link29", "Node"]


def test_of_a_long_path_the_ends_are_shown_and_the_suspect_reference():
    steps = tuple(Step(f".link{i}", "Node", "", L if i >= 400 else E) for i in range(900))
    path = RootPath("notebook variable", steps)
    lines = render_path(path).splitlines()
    shown = [line.split()[1] for line in lines[1:] if "~" not in line]
    beside = ["(384", ".link399", ".link400", ".link401", "(484"]
    assert shown == [f".link{i}" for i in range(15)] + beside + [f".link{i}" for i in range(886, 900)]
    assert lines[lines.index(next(line for line in lines if "~" in line)) - 1].split()[:2] == ["leaked", ".link400"]
    assert suspect_references(shown_path(path)[0]) == range(17, 18)


def test_a_path_without_objects_says_what_the_root_is():
    assert render_path(RootPath("nothing in Python", ())) == "nothing in Python"


def test_a_long_reference_takes_its_own_line_and_is_underlined():
    reference = ".a_very_long_name_of_an_attribute_of_a_class"
    lines = render_path(RootPath("r", (Step("x", "A", "", E), Step(reference, "B", "", L)))).splitlines()
    assert lines[2] == f"leaked    {reference}"
    assert lines[3].strip() == "B"
    assert lines[4].split() == ["~" * 28, "<==", "here"]


@pytest.mark.parametrize(
    ("statuses", "suspects"),
    [
        ((E, E, L, L), range(2, 3)),
        ((E, U, U, L), range(1, 4)),
        ((E, U, U), range(1, 3)),
        ((L,), range(1)),
        ((U, L), range(2)),
        ((E, L, E, L), range(1, 2)),
    ],
)
def test_suspects_lie_between_the_last_expected_and_the_first_leaked_object(statuses, suspects):
    assert suspect_references(path(*statuses)) == suspects


def test_no_reference_is_suspected_where_everything_is_expected():
    assert not suspect_references(path(E, E))
    assert not suspect_references(path())


def test_a_cycle_that_begins_with_a_leaked_object_accuses_no_reference():
    assert not suspect_references(samples.cycle_leak().path)


def test_numbers_are_packed_when_they_do_not_fit():
    assert numbers_words((1, 1, 1), 10) == "1 1 1"
    assert numbers_words((0,) * 30 + (5,), 20) == "0 x30, 5"
    assert numbers_words(tuple(range(1000, 1040)), 30) == "1000 1001 ... 1038 1039"
    assert numbers_words(tuple(range(1000, 1040)), 12) == "40 figures"


@given(st.lists(st.integers(0, 10**6), max_size=60), st.integers(12, 100))
def test_numbers_keep_within_their_width(numbers, width):
    assert len(numbers_words(numbers, width)) <= width


@given(st.text(), st.integers(8, 60))
def test_shortened_text_is_printable_and_short(text, limit):
    short = shorten(text, limit)
    assert len(short) <= limit
    assert short.isprintable()


def test_right_to_left_marks_become_visible():
    assert visible("a\u202eb") == "a\\u202eb"


def test_seconds_take_the_unit_that_reads_best():
    assert [format_seconds(s) for s in (0, 4e-5, 0.0125, 2.5, 4000)] == ["0 us", "40 us", "12.5 ms", "2.5 s", "4,000 s"]


def test_every_public_cause_has_its_words():
    slugs = """graph-kept tensor-kept hook-left closure-kept global-cache cycle-garbage immortal-cycle traceback-kept
    notebook-history deepcopy-kept container-growth thread-or-worker-kept native optimizer-state autograd-ctx
    run-switch callback-registry descriptor-left unknown"""
    assert set(CAUSES) == set(slugs.split())


def test_the_words_of_the_verdict_begin_with_the_outcome():
    for outcome in Outcome:
        check = replace(samples.clean_check(), verdict=replace(samples.clean_check().verdict, outcome=outcome))
        assert str(check.verdict).startswith(outcome.value)
