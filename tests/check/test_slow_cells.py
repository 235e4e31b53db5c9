"""Cells of seconds: few runs, the first words after three of them, nothing withdrawn in silence. The clock is moved."""

from __future__ import annotations

import ctypes
import gc
import heapq
import itertools
import random
from types import SimpleNamespace

import pytest
import torch

import leaklab
from leaklab.model import Outcome

KEPT: list[object] = []
OTHER: list[object] = []
BY_TENSOR: dict[torch.Tensor, torch.Tensor] = {}


class Best:
    """Keeps the state of every run that beats all before it."""

    def __init__(self) -> None:
        self.loss = 1000.0
        self.states: list[torch.Tensor] = []

    def __call__(self, loss: float) -> None:
        if loss < self.loss:
            self.loss = loss
            self.states.append(torch.zeros(3000))


@pytest.fixture(autouse=True)
def nothing_is_kept():
    yield
    for kept in (KEPT, OTHER, BY_TENSOR):
        kept.clear()


def append():
    KEPT.append(torch.zeros(3000))


def test_counts_that_agree_in_five_runs_decide_and_one_more_names_the_line(slow):
    work = slow(append)
    report = leaklab.leakcheck(work, namespace=globals(), cure=False)
    assert report.leaked
    assert len(report.record.runs) == 5
    assert work.calls[0] == 7, "a warm-up, five runs, one that is traced"
    assert "KEPT.append" in report.leaks[0].sites[0]
    assert report.leaks[0].count_per_run == 1


def test_a_question_that_is_open_at_the_limit_of_time_gets_as_many_runs_as_it_needs(slow):
    """Of runs of 15 s six fit into the time that a verdict may take: a noisy level needs seven, and its place two."""
    cache = {"past": torch.zeros(0)}

    def grow():
        cache["past"] = torch.cat([cache["past"], torch.zeros(16_384)])

    work = slow(grow, 15.0)
    report = leaklab.leakcheck(work, namespace={"cache": cache}, cure=False)
    assert [leak.holder for leak in report.leaks] == ["cache['past']"], report
    assert len(report.record.runs) in (7, 8)
    assert work.calls[0] <= 13, "a warm-up, eight runs, two for the place, two that are traced"


def test_the_place_is_said_after_three_runs_then_the_verdict_then_the_line(slow):
    told: list[leaklab.Progress] = []
    report = leaklab.leakcheck(slow(append), namespace=globals(), cure=False, on_progress=told.append)
    assert [(one.stage, one.n_runs) for one in told] == [("runs", 3), ("runs", 5), ("lines", 5)]
    assert str(told[0]).startswith("growing so far, after 3 runs: `KEPT` grows by 1 tensor")
    assert str(told[2]).startswith("leak: `KEPT` grows by 1 tensor")
    assert report.leaked
    assert [leak.holder for leak in report.leaks] == ["KEPT"], "the list of what was told is not among what grows"


def test_what_was_shown_and_is_no_leak_is_taken_back_in_a_note(slow):
    def fill_then_empty():
        if len(KEPT) >= 4:
            KEPT.clear()
        KEPT.append(torch.zeros(3000))

    told: list[leaklab.Progress] = []
    report = leaklab.leakcheck(slow(fill_then_empty), namespace=globals(), on_progress=told.append)
    assert "`KEPT` grows" in str(told[0])
    assert not report.leaked
    known = (*report.record.bounded, *report.record.noted)
    assert any("did not go on" in note for note in report.record.notes) or any(one.holder == "KEPT" for one in known)


def test_what_every_run_makes_anew_is_no_early_word(slow):
    """A plot has more ticks in one run than in the next: none of the earlier ones is alive."""
    sizes, state, told = itertools.cycle((40, 44, 48, 50, 41)), SimpleNamespace(), []

    def plot():
        state.ticks = [Best() for _ in range(next(sizes))]

    report = leaklab.leakcheck(slow(plot), namespace={"state": state}, cure=False, on_progress=told.append)
    assert not report.leaked, report.verdict
    assert [leak.holder for progress in told for leak in progress.growing] == []


def test_of_what_nobody_was_shown_nothing_is_taken_back(slow):
    def fill_then_stop():
        if len(KEPT) < 20:
            KEPT.append(torch.zeros(3000))

    told: list[leaklab.Progress] = []
    report = leaklab.leakcheck(slow(fill_then_stop, 0.02), namespace={}, cure=False, on_progress=told.append)
    assert str(told[0]) == "growing so far, after 8 runs: 1 tensor more every run; what keeps that is not known yet"
    KEPT.clear()
    quiet = leaklab.leakcheck(slow(fill_then_stop, 0.02), namespace={}, cure=False)
    assert not report.leaked
    assert not quiet.leaked
    assert not any("it showed" in note for note in quiet.notes)


def test_a_clean_cell_of_seconds_is_run_no_more_than_eight_times(slow):
    report = leaklab.leakcheck(slow(lambda: torch.zeros(300)), namespace=globals())
    assert report.verdict.outcome is Outcome.CLEAN
    assert len(report.record.runs) <= 8


def test_the_runs_that_a_verdict_needs_may_take_half_as_long_again_as_the_limit(slow):
    report = leaklab.leakcheck(slow(append, 15.0), namespace=globals(), cure=False)
    assert report.leaked
    assert len(report.record.runs) == 5
    assert report.leaks[0].sites


def test_what_python_does_not_see_is_found_in_a_slow_cell_too(slow):
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]

    def work():
        libc.memset(libc.malloc(ctypes.c_size_t(1 << 18)), 1, 1 << 18)

    report = leaklab.leakcheck(slow(work), namespace=globals())
    assert report.leaked
    assert report.leaks[0].cause == "native"


def test_an_earlier_look_takes_nothing_from_what_a_graph_keeps(slow):
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
    model, batch = torch.nn.Sequential(*layers), torch.ones(64, 64)

    def forward():
        KEPT.append(model(batch).mean())

    report = leaklab.leakcheck(slow(forward), namespace={"model": model, "kept": KEPT}, sites=False, runs=12)
    assert [leak.cause for leak in report.leaks] == ["graph-kept"]  # beside it no native memory that nobody holds
    assert 1 <= report.leaks[0].bytes_per_run / (4 * 64 * 64 * 4) < 1.3  # four results are saved, in every run


class Listener:
    """Keeps the newest of what it is told, like a hook that notes a gradient."""

    def __init__(self) -> None:
        self.heard: torch.Tensor | None = None
        KEPT.append(self)


def test_what_earlier_runs_left_keeps_something_new_in_every_run(slow):
    def run():
        Listener()
        for listener in KEPT:
            listener.heard = torch.zeros(5000)

    report = leaklab.leakcheck(slow(run, 15.0), namespace={"kept": KEPT}, sites=False)
    assert [(leak.holder, round(leak.count_per_run, 2)) for leak in report.leaks] == [("kept", 1.0)]
    assert report.leaks[0].bytes_per_run == pytest.approx(20_000, rel=0.1)
    assert len(report.record.runs) == 5  # what a survivor has in its attributes is no growth of its own to wait for


def test_a_graph_that_two_lists_keep_is_counted_once(slow):
    model, batch = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()), torch.ones(64, 64)

    def run():
        KEPT.append(model(batch))
        OTHER.append(KEPT[-1].square().mean())

    variables = {"model": model, "outputs": KEPT, "losses": OTHER}
    report = leaklab.leakcheck(slow(run), namespace=variables, sites=False)
    assert {leak.holder for leak in report.leaks} == {"outputs", "losses"}
    assert 64 * 64 * 4 <= sum(leak.bytes_per_run for leak in report.leaks) < 24_000  # what Tanh saved, and C++ objects


def test_what_is_older_than_the_runs_is_no_part_of_a_graph_that_each_hands_on(slow):
    cell, state = torch.nn.GRUCell(32, 32), {"h": torch.zeros(64, 32)}

    def run():
        state["h"] = cell(torch.ones(64, 32), state["h"])

    (in_few,) = leaklab.leakcheck(slow(run), namespace={"cell": cell, "state": state}, sites=False, runs=5).leaks
    state["h"] = torch.zeros(64, 32)
    (in_many,) = leaklab.leakcheck(slow(run), namespace={"cell": cell, "state": state}, sites=False, runs=30).leaks
    assert in_few.bytes_per_run == pytest.approx(in_many.bytes_per_run, rel=0.05)


def test_code_that_no_run_has_reached_keeps_a_few_runs_from_being_called_clean():
    turns = [0]

    def work():
        turns[0] += 1
        if turns[0] % 50 == 0:
            OTHER.append(torch.zeros(300))

    few, more = (leaklab.leakcheck(work, runs=n, namespace=globals()) for n in (6, 24))
    assert few.verdict.outcome is Outcome.INCONCLUSIVE
    assert "`OTHER.append(torch.zeros(300))` in line" in str(few.verdict)
    assert "has not run yet" in str(few.verdict)
    assert more.verdict.outcome is Outcome.CLEAN


def test_a_key_that_equals_itself_only_is_met_in_no_later_run(slow):
    def work():
        key = torch.zeros(300)
        if key not in BY_TENSOR:
            BY_TENSOR[key] = key * 2

    assert leaklab.leakcheck(slow(work), namespace=globals(), cure=False).leaked


def test_what_is_kept_of_each_record_is_bounded_by_no_branch(slow):
    best, loss = Best(), [1.0]

    def work():
        loss[0] *= 0.99
        best(loss[0])

    report = leaklab.leakcheck(slow(work), namespace={"best": best}, cure=False)
    assert report.leaked
    assert report.leaks[0].holder == "best.states"


def test_where_nobody_collects_no_early_look_frees_what_piles_up(slow):
    def work():
        ring = [torch.zeros(300)]
        ring.append(ring)

    gc.disable()
    try:
        report = leaklab.leakcheck(slow(work, 0.02), namespace=globals(), cure=False)
    finally:
        gc.enable()
    assert report.leaked
    assert report.leaks[0].cause == "cycle-garbage"


class Fills:
    """Harmless things that grow for a while, one method each, in the ways people write them."""

    def __init__(self) -> None:
        self.n, self.random = 0, random.Random(4)
        self.recent: list[torch.Tensor] = []
        self.newest: list[torch.Tensor] = []
        self.cut: list[torch.Tensor] = []
        self.samples: dict[int, torch.Tensor] = {}
        self.by_turn: dict[int, torch.Tensor] = {}
        self.by_name: dict[str, torch.Tensor] = {}
        self.caught: dict[int, torch.Tensor] = {}
        self.best: list[tuple[float, int, torch.Tensor]] = []
        self.world = [torch.zeros(300) for _ in range(30)]
        self.plain: dict[str, bytes] = {}  # the collector does not list it before CPython 3.14

    def keep_a_slice(self):
        self.recent = self.recent[-11:] + [torch.zeros(3000)]  # noqa: RUF005 - as people write it

    def add_and_cut_behind(self):
        self.newest = (self.newest + [torch.zeros(3000)])[-12:]  # noqa: RUF005 - as people write it

    def delete_the_oldest(self):
        self.cut.append(torch.zeros(3000))
        del self.cut[:-12]

    def sample(self, index):
        if index not in self.samples:
            self.samples[index] = torch.zeros(3000)
        return self.samples[index]

    def draw_two_of_sixteen_samples(self):
        return [self.sample(self.random.randrange(16)) for _ in range(2)]

    def return_early_where_it_is_known(self):
        name = f"sample {self.random.randrange(10)}"
        if name in self.by_name:
            return self.by_name[name]
        self.by_name[name] = torch.zeros(3000)
        return self.by_name[name]

    def take_turns(self):
        self.n += 1
        self.by_turn[self.n % 30] = torch.zeros(3000)

    def catch_the_key_error(self):
        key = self.random.randrange(30)
        try:
            return self.caught[key]
        except KeyError:
            self.caught[key] = torch.zeros(3000)
            return self.caught[key]

    def keep_the_best(self):
        self.n += 1
        self.best = heapq.nlargest(12, [*self.best, (self.random.random(), self.n, torch.zeros(3000))])

    def cache_bytes(self):
        self.n += 1
        key = f"sample-{self.n % 25}"
        if key not in self.plain:
            self.plain[key] = bytes(3000)

    def drop_the_oldest_bytes(self):
        self.n += 1
        self.plain[f"batch-{self.n}"] = bytes(3000)
        while len(self.plain) > 45:
            self.plain.pop(next(iter(self.plain)))

    def drop_five_of_more_than_twenty(self):
        self.cut += [torch.zeros(3000) for _ in range(3)]
        if len(self.cut) > 20:
            del self.cut[:5]

    def trim_at_thirty_eight(self):
        self.cut.append(torch.zeros(3000))
        if len(self.cut) > 38:
            self.cut.pop(0)

    def keep_those_that_live(self):
        self.world = [agent for agent in self.world if self.random.random() > 0.1]
        while len(self.world) < 30:
            self.world.append(torch.zeros(300))

    def keep_the_best_in_a_heap(self):
        for _ in range(3):
            self.n += 1
            one = (self.random.random(), self.n, torch.zeros(300))
            if len(self.best) < 26:
                heapq.heappush(self.best, one)
            else:
                heapq.heappushpop(self.best, one)


HARMLESS = [name for name, kind in vars(Fills).items() if callable(kind) and name not in ("__init__", "sample")]


@pytest.mark.by_day(5)
@pytest.mark.parametrize("name", HARMLESS)
def test_what_fills_later_is_no_leak_of_a_slow_cell(slow, name):
    fills = Fills()
    report = leaklab.leakcheck(slow(getattr(fills, name)), namespace={"fills": fills}, cure=False)
    assert not report.leaked, report.verdict


@pytest.mark.by_day(5)
@pytest.mark.parametrize("name", HARMLESS)
@pytest.mark.parametrize("seconds", [0.3, 0.02])
def test_what_fills_later_is_no_leak_of_a_cell_that_takes_less(slow, name, seconds):
    fills = Fills()
    report = leaklab.leakcheck(slow(getattr(fills, name), seconds), namespace={"fills": fills}, cure=False)
    assert not report.leaked, report.verdict


def beside_a_leak(found):
    append()
    if (key := len(KEPT)) not in found:
        found[key] = torch.zeros(9000)


def test_a_place_that_is_not_decided_is_told_beside_a_leak(slow):
    found = {}
    work = slow(lambda: beside_a_leak(found))
    report = leaklab.leakcheck(work, namespace={"found": found, "KEPT": KEPT}, cure=False)
    assert [leak.holder for leak in report.leaks] == ["KEPT"]
    assert [place.holder for place in report.record.undecided] == ["found"]
    said = " ".join(str(report).split())
    assert "not decided: `found` grows by 1 tensor (35.6 KiB) every run so far; each of 7 runs left" in said
    assert "`(key := len(KEPT)) not in found`" in said


def test_a_cache_in_doubt_gets_more_runs_than_it_is_likely_to_have_entries_where_these_are_cheap(slow):
    found = {}
    work = slow(lambda: beside_a_leak(found), 0.1)
    report = leaklab.leakcheck(work, namespace={"found": found, "KEPT": KEPT}, cure=False)
    assert [leak.holder for leak in report.leaks] == ["found", "KEPT"]
    assert report.verdict.n_runs == 65


class Linked:
    """A state that keeps the one before it."""

    def __init__(self, batch: torch.Tensor, before: Linked | None) -> None:
        self.doubled, self.before = batch * 2, before


class Leaks:
    """Leaks whose code looks like that of harmless things."""

    def __init__(self) -> None:
        self.n, self.log = 0, []
        self.runs: dict[str, torch.Tensor] = {}
        self.history: list[torch.Tensor] = []
        self.layer = torch.nn.Linear(50, 60)
        self.waiting: list[torch.Tensor] = []
        self.plain: dict[str, bytearray] = {}
        self.batches = [torch.zeros(300) for _ in range(1000)]
        self.newest: Linked | None = None

    def link_while_as_many_batches_go(self):
        self.newest = Linked(self.batches.pop(), self.newest)

    def name_each_run(self):
        self.n += 1
        name = f"trial-{self.n}"
        self.runs[name] = torch.zeros(3000)

    def keep_bytes_by_name(self):
        self.n += 1
        self.plain[f"trial-{self.n}"] = bytearray(3000)

    def keep_all_beside_a_window(self):
        self.log = [*self.log, self.n][-5:]
        self.history += [torch.zeros(3000)]

    def register_a_hook(self):
        seen = torch.zeros(3000)
        self.layer.register_forward_hook(lambda *_: seen.sum() and None)

    def do_less_than_comes(self):
        self.waiting += [torch.zeros(3000) for _ in range(3)]
        self.waiting.pop()

    def drop_one_of_two(self):
        self.waiting += [torch.zeros(3000), torch.zeros(3000)]
        del self.waiting[:1]

    def take_three_of_five_off_a_new_list(self):
        self.waiting = [*self.waiting, *(torch.zeros(3000) for _ in range(5))][3:]


def test_what_grew_in_every_run_but_the_last_is_a_doubt():
    kept, n_runs = [], [0]

    def work():
        n_runs[0] += 1
        if n_runs[0] <= 12:  # as many as are measured, but one before them
            kept.append(torch.zeros(3000))

    report = leaklab.leakcheck(work, runs=12, cure=False)
    assert report.verdict.outcome is Outcome.INCONCLUSIVE, report.verdict
    assert "but not the last one" in report.verdict.reason


def test_what_is_made_anew_in_any_number_is_no_leak_because_it_rose_three_times():
    made, sizes = {}, iter([15, *([48] * 4), *([52] * 4), *([74] * 4)])

    def work():
        made["batch"] = [[n] for n in range(next(sizes))]

    assert not leaklab.leakcheck(work, runs=12, cure=False).leaked


@pytest.mark.parametrize("seconds", [0.0, 0.02])
def test_what_is_in_doubt_after_the_first_look_is_followed_where_runs_are_cheap(slow, seconds):
    cache = {}

    def step():
        weight = torch.zeros(500)
        key = (id(weight), tuple(weight.shape))
        if key not in cache:
            cache[key] = (weight, weight * 2)

    report = leaklab.leakcheck(slow(step, seconds), cure=False)
    assert report.leaked
    assert report.verdict.n_runs > 24


@pytest.mark.by_day(6)
@pytest.mark.parametrize(
    ("name", "holder"),
    [
        ("link_while_as_many_batches_go", "leaks.newest"),
        ("name_each_run", "leaks.runs"),
        ("keep_bytes_by_name", "leaks.plain"),
        ("keep_all_beside_a_window", "leaks.history"),
        ("register_a_hook", "leaks.layer._forward_hooks"),
        ("do_less_than_comes", "leaks.waiting"),
        ("drop_one_of_two", "leaks.waiting"),
        ("take_three_of_five_off_a_new_list", "leaks.waiting"),
    ],
)
@pytest.mark.parametrize("seconds", [4.0, 0.2, 0.02])
def test_a_leak_beside_code_that_looks_like_a_limit_is_one(slow, name, holder, seconds):
    leaks = Leaks()
    report = leaklab.leakcheck(slow(getattr(leaks, name), seconds), namespace={"leaks": leaks}, cure=False)
    assert report.leaked, report.verdict
    assert report.leaks[0].holder.startswith(holder)
