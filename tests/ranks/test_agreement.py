"""Ranks that check together make the same runs, whatever each of them finds; the end of one is the end of all."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from rank_jobs import on_ranks
from torch import distributed

import leaklab
from leaklab.check.runner import drive
from leaklab.check.session import RunRequest
from leaklab.ranks.agreement import Agreement

pytestmark = pytest.mark.untraced


@dataclass
class Told:
    """What one rank has to tell."""

    n_calls: int
    measured: list
    result: str
    ended: str


def wishes(*numbers_or_requests):
    """Want these runs, one after the other; return what the last one said."""
    for wish in numbers_or_requests:
        _seconds, failure = yield wish
        if failure:
            return SimpleNamespace(told=failure, failure=failure)
    return SimpleNamespace(told="all well", failure="")


def driven(rank, wanted, failing=-1, how=""):
    """Make the runs that all ranks want, each with a collective that hangs if one of them makes none."""
    agreement = Agreement(group=True, seconds=8.0)
    calls = []

    def run(number):
        calls.append(number)
        if failing == rank and len(calls) == 3:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError
        if not how:
            distributed.all_reduce(torch.zeros(1))

    with agreement:
        finished = drive(agreement.agreed(wishes(*wanted[rank])), run)
    return Told(len(calls), calls, finished.check.told, agreement.ended)


def many(number, times):
    return RunRequest(number, times, nullcontext())


def test_all_ranks_make_as_many_runs_as_the_one_that_wants_most():
    first, second, third = on_ranks(driven, 3, [(1, 2), (0, 1, 2, 3, many(4, 3)), (many(7, 2), 9)])
    assert first.n_calls == second.n_calls == third.n_calls == 4 + 3 + 1
    assert (first.result, second.result, third.result) == ("all well", "all well", "all well")
    assert first.measured[:2] == [1, 2]
    assert second.measured[:7] == [0, 1, 2, 3, 4, 4, 4]
    assert third.measured[4:6] == [7, 7]  # several at once waited until nobody wanted a single one
    assert third.measured[7] == 9
    assert not first.ended + second.ended + third.ended


def test_a_rank_that_raises_ends_the_check_of_all_and_is_named():
    first, second = on_ranks(driven, 2, [range(9), range(9)], 1, "raises")
    assert (first.result, first.ended, first.n_calls) == ("RankError", "rank 1 ended with ValueError", 3)
    assert (second.result, second.ended) == ("ValueError", "rank 1 ended with ValueError")


def test_a_rank_that_is_killed_is_named_by_the_others():
    first, second, third = on_ranks(driven, 3, [range(9), range(9), range(9)], 1, "killed")
    assert second is None
    assert first.ended == third.ended == "rank 1 was killed or has ended"
    assert (first.result, third.result) == ("RankError", "RankError")


history = []


def check(rank, how):
    """Check a step with a collective; rank 1 leaks, or does what *how* says."""
    model = torch.nn.Linear(4, 4)
    n_calls = 0

    def step():
        nonlocal n_calls
        n_calls += 1
        loss = model(torch.ones(2, 4)).sum()
        distributed.all_reduce(loss.detach())
        if rank == 1:
            history.append(loss)

    def setup():
        if how == "setup" and rank == 1:
            raise KeyError

    try:
        leaklab.leakcheck(
            step, runs=12, group=True, group_timeout=60.0, setup=setup, fail_on_leak=True, namespace=globals()
        )
    except (KeyError, leaklab.LeakFound, leaklab.RankError) as error:
        report = getattr(error, "leaklab_report", None)
        everyone = report.ranks if report else None
        return (
            type(error).__name__,
            str(error),
            n_calls,
            everyone and {n: one.leaked for n, one in everyone.reports.items()},
            report and [leak.sites[0] for leak in report.leaks],
        )
    return None


def test_the_first_rank_has_the_report_on_all_and_a_leak_on_one_fails_on_all():
    first, second = on_ranks(check, 2, "")
    assert (first[0], first[1], first[3:]) == ("LeakFound", "rank 1 leaks", ({0: False, 1: True}, []))
    assert (second[0], second[3]) == ("LeakFound", None)
    assert "history" in second[1]
    assert "history.append(loss)  # keeps it" in second[4][0]
    assert first[2] == second[2]


def test_a_setup_that_fails_on_one_rank_ends_the_check_of_all():
    first, second = on_ranks(check, 2, "setup")
    words = "rank 1 ended with KeyError: the check ended on all ranks"
    assert first[:4] == ("RankError", words, 0, {0: False})
    assert second[0] == "KeyError"


def watch(rank, how):
    """Watch a loop; rank 1 leaks, and breaks off if *how* says so."""
    n_steps = 300 if how else 1_400
    with leaklab.monitor(total_steps=n_steps, group=True, group_timeout=60.0, first_step=20, quiet=True) as monitor:
        for number in range(n_steps):
            if rank == 1:
                history.append(torch.ones(8))
            if how == "leaves" and rank == 1 and number == 100:
                break
            monitor.step()
    record = monitor.record
    return [
        (one.first_step, one.steps_per_run, one.check.verdict.outcome.value) for one in record.stretches
    ], record.notes


def test_watched_loops_are_checked_at_the_same_steps():
    (first, notes), (second, _notes) = on_ranks(watch, 2, "")
    assert first[0][:2] == second[0][:2]
    assert (first[0][2], second[0][2]) == ("clean", "leak")
    assert not notes


def test_a_rank_that_leaves_the_loop_is_a_note_of_the_others():
    (checks, notes), _second = on_ranks(watch, 2, "leaves")
    assert checks
    assert any(note.endswith("on, this rank watched its loop alone: rank 1 has left the loop") for note in notes)


def test_a_group_of_one_makes_its_own_runs():
    (only,) = on_ranks(driven, 1, [(0, 1, many(2, 3))])
    assert (only.result, only.measured) == ("all well", [0, 1, 2, 2, 2])


def test_without_a_process_group_it_says_what_to_do():
    with pytest.raises(leaklab.RankError, match="start the processes with torchrun, and call"):
        leaklab.leakcheck(lambda: None, group=True)


@pytest.mark.parametrize(("seconds", "error"), [(0, ValueError), ("5", TypeError), (True, TypeError)])
def test_a_senseless_timeout_is_refused(seconds, error):
    with pytest.raises(error, match="group_timeout must be"):
        leaklab.leakcheck(lambda: None, group=True, group_timeout=seconds)


def with_wrong_group(_rank):
    with pytest.raises(TypeError, match=r"group must be True, for all processes, or a .*, not str"):
        leaklab.leakcheck(lambda: None, group="dp")
    return True


def test_what_is_no_group_is_refused():
    assert on_ranks(with_wrong_group, 1) == [True]
