"""Series of cells written by hand, and whether they keep growing."""

from __future__ import annotations

from leaklab.decide.growth import judge_habit
from leaklab.model.heap_diff import Totals


def runs(*tensors: int, each_bytes: int = 4000, n_objects: int = 3) -> list[Totals]:
    return [Totals(n_objects, n, n * each_bytes, 0) for n in tensors]


def test_three_executions_after_the_first_that_leave_a_tensor_are_a_habit():
    habit = judge_habit(runs(1, 1, 1, 1))
    assert habit is not None
    assert habit.n_runs == 3
    assert habit.words == "+1 tensor, +3.91 KiB in tensors"


def test_three_executions_are_too_few():
    assert judge_habit(runs(1, 1, 1)) is None


def test_the_first_execution_may_do_what_it_wants():
    assert judge_habit(runs(50, 0, 0, 0)) is None
    assert judge_habit(runs(0, 2, 2, 2)) is not None


def test_a_cell_that_gives_back_has_no_habit():
    assert judge_habit(runs(1, 1, -1, 1, 1)) is None


def test_a_cache_that_fills_has_no_habit():
    assert judge_habit(runs(9, 8, 4, 2, 1)) is None


def test_two_or_three_objects_of_the_notebook_itself_raise_no_alarm():
    assert judge_habit(runs(0, 0, 0, 0, 0, n_objects=3)) is None


def test_many_objects_of_each_execution_do():
    habit = judge_habit(runs(0, 0, 0, 0, n_objects=40))
    assert habit is not None
    assert habit.words == "+40 other objects"


def test_the_heap_counts_from_64_kib_on():
    assert judge_habit([Totals(0, 0, 0, 60_000)] * 5) is None
    habit = judge_habit([Totals(0, 0, 0, 1 << 20)] * 5)
    assert habit is not None
    assert habit.words == "+1.00 MiB of native heap"


def test_totals_subtract_and_an_unknown_heap_counts_as_unchanged():
    assert Totals(5, 3, 100, 900).since(Totals(2, 1, 40, 400)) == Totals(3, 2, 60, 500)
    assert Totals(5, 3, 100, -1).since(Totals(2, 1, 40, 400)).heap_bytes == 0
