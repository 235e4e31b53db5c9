"""Leaks amid noise, and noise that is none: programs whose truth is known, in random draws."""

import random
from collections import Counter

import pytest
from snapshot_writer import KEPT, MODEL, Card, snapshot, stack

from leaklab.ask.cuda import compare_cuda_snapshots
from leaklab.cuda.schema import memory_of
from leaklab.model import Outcome
from leaklab.reports.cuda import CudaSnapshot

NOISY = [stack(f"/p/layer{number}.py:{number} f", "/p/train.py:41 step") for number in range(20)]
N_DRAWS = 12


class Program:
    """Twenty call stacks whose blocks are new in each snapshot, and what *leak* keeps beside them."""

    def __init__(self, seed, leak, *, noise="sizes", trace=True, max_events=1 << 40):
        self.rng, self.leak, self.noise, self.trace = random.Random(seed), leak, noise, trace
        self.card, self.passing, self.kept = Card(max_events=max_events), [], []
        self.card.alloc(12_000_000, MODEL)

    def keep(self, size, frames=KEPT):
        self.kept.append(self.card.alloc(size, frames))

    def drop_oldest(self):
        self.card.free(self.kept.pop(0))

    def snapshots(self, n):
        found = []
        for number in range(n):
            for address in self.passing:
                self.card.free(address)
            self.passing = [self.card.alloc(size, frames) for size, frames in self.made()]
            self.leak(self, number)
            taken = snapshot(self.card, trace=self.trace)
            found.append(CudaSnapshot(memory_of(taken, f"s_{number * 10}.pickle")))
        return found

    def made(self):
        for frames in self.rng.sample(NOISY, len(NOISY)):
            if self.noise == "sizes":
                yield self.rng.randrange(1, 2_000_000), frames
            else:
                yield from [(250_000, frames)] * self.rng.randrange(5)


def outcomes(leak, n, **program):
    programs = [Program(f"{n} {seed}", leak, **program) for seed in range(N_DRAWS)]
    return Counter(compare_cuda_snapshots(one.snapshots(n)).verdict.outcome for one in programs)


def nothing(_program, _number):
    pass


@pytest.mark.parametrize("trace", [True, False])
@pytest.mark.parametrize("noise", ["sizes", "counts"])
@pytest.mark.parametrize("n", [3, 4, 8])
def test_independent_noise_is_no_leak(n, noise, trace):
    assert Outcome.LEAK not in outcomes(nothing, n, noise=noise, trace=trace)


def steadily(program, _number):
    program.keep(300_000)
    program.keep(300_000)


def slowly(program, _number):
    program.keep(4096)


def of_many_sizes(program, _number):
    for _ in range(3):
        program.keep(program.rng.randrange(100_000, 500_000))


def late(program, number):
    if number >= 2:
        program.keep(500_000)


def under_a_noisy_stack(program, _number):
    program.keep(300_000, NOISY[0])
    program.keep(300_000, NOISY[0])


def every_second_time(program, number):
    if number % 2:
        program.keep(600_000)


@pytest.mark.parametrize(
    ("leak", "n"),
    [
        (steadily, 4), (steadily, 8), (slowly, 4), (slowly, 8), (of_many_sizes, 8), (late, 6),
        (under_a_noisy_stack, 6), (every_second_time, 8),
    ],
)  # fmt: skip
def test_what_stays_and_becomes_more_is_a_leak_amid_noise(leak, n):
    assert outcomes(leak, n)[Outcome.LEAK] >= 0.9 * N_DRAWS


@pytest.mark.parametrize("options", [{"trace": False}, {"max_events": 40}])
def test_a_leak_is_found_without_a_trace_and_with_a_short_one(options):
    assert outcomes(steadily, 4, **options)[Outcome.LEAK] == N_DRAWS


@pytest.mark.parametrize(("trace", "is_shown"), [(True, True), (False, False)])
def test_a_leak_says_if_nothing_shows_that_the_files_come_from_one_run(trace, is_shown):
    comparison = compare_cuda_snapshots(Program(1, steadily, trace=trace).snapshots(4))
    assert comparison.leaked
    assert any("do not prove that all files come from one run" in note for note in comparison.notes) is not is_shown


def a_cache_that_fills(program, number):
    if number < 3:
        program.keep(800_000)


def the_newest_six(program, _number):
    steadily(program, _number)
    while len(program.kept) > 6:
        program.drop_oldest()


def a_tensor_that_is_appended_to(program, number):
    if program.kept:
        program.drop_oldest()
    program.keep(500_000 * (number + 1))


def a_warm_up(program, number):
    if number == 1:
        steadily(program, number)


@pytest.mark.parametrize("growth", [a_cache_that_fills, the_newest_six, a_tensor_that_is_appended_to, a_warm_up])
@pytest.mark.parametrize("n", [4, 6])
def test_what_does_not_stay_or_stops_is_no_leak(growth, n):
    assert Outcome.LEAK not in outcomes(growth, n)


def a_full_cache_that_replaces_less_and_less(program, number):
    n_old = 2 * number
    while len(program.kept) > n_old:
        program.card.free(program.kept.pop())
    while len(program.kept) < 16:
        program.keep(300_000)


def verdict_of(leak, n):
    program = Program(1, leak)
    program.made = lambda: ()
    return compare_cuda_snapshots(program.snapshots(n)).verdict


@pytest.mark.parametrize("n", [4, 5, 6])
def test_a_full_cache_that_replaces_less_and_less_is_clean(n):
    assert verdict_of(a_full_cache_that_replaces_less_and_less, n).outcome is Outcome.CLEAN


def test_three_snapshots_make_it_suspected_and_four_a_leak():
    assert verdict_of(steadily, 3).reason.startswith("a leak is suspected: every step leaves 58.6 KiB at metrics.py:17")
    assert verdict_of(steadily, 3).outcome is Outcome.INCONCLUSIVE
    assert verdict_of(steadily, 4).outcome is Outcome.LEAK


def test_a_tensor_that_is_appended_to_is_said_to_be_replaced():
    verdict = verdict_of(a_tensor_that_is_appended_to, 5)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "its blocks are replaced by larger ones" in verdict.reason


def test_a_block_that_is_freed_and_allocated_again_at_its_place_does_not_stay():
    """A step that holds one block more each time, all of them new."""

    def again(program, number):
        while program.kept:
            program.drop_oldest()
        for _ in range(number + 1):
            program.keep(300_000)

    assert verdict_of(again, 6).outcome is Outcome.INCONCLUSIVE


def runs(*kept, trace):
    """One snapshot of each of several runs of one program, on the same addresses, one after the other."""
    for number, n_kept in enumerate(kept):
        program = Program(7, nothing, trace=trace)
        program.card._now += number * 3_600_000_000
        program.card.events.clear()
        program.card.segments.clear()
        program.card.alloc(12_000_000, MODEL)
        for _ in range(n_kept):
            program.keep(300_000 * (number + 1))
        yield program.snapshots(1)[0]


@pytest.mark.parametrize("trace", [True, False])
def test_separate_runs_are_no_leak(trace):
    assert compare_cuda_snapshots(list(runs(1, 2, 3, 4, trace=trace))).verdict.outcome is Outcome.INCONCLUSIVE


def test_separate_runs_that_only_differ_by_how_much_they_keep_are_told_by_their_times():
    def once(number):
        card = Card()
        card._now += number * 3_600_000_000
        for size, frames in [(12_000_000, MODEL), *[(300_000, KEPT)] * (number + 1)]:
            card.alloc(size, frames)
        return CudaSnapshot(memory_of(snapshot(card), f"run_{number}.pickle"))

    verdict = compare_cuda_snapshots([once(number) for number in range(5)]).verdict
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "run_0.pickle and run_1.pickle may come from different runs" in verdict.reason
