"""What each run draws from a buffer is not the holder of it: replay memories, banks, windows, with few runs."""

from __future__ import annotations

import collections
import functools
import heapq
import itertools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

import leaklab

pytestmark = pytest.mark.untraced


class Step(NamedTuple):
    state: torch.Tensor
    action: int
    following: torch.Tensor


def replay_of(length: int | None) -> Callable[[SimpleNamespace], None]:
    def train(kept: SimpleNamespace) -> None:
        kept.memory = getattr(kept, "memory", [] if length is None else collections.deque(maxlen=length))
        for _ in range(4):
            kept.memory.append((torch.randn(8), 1, random.random()))
        kept.batch = random.sample(kept.memory, min(len(kept.memory), 32))
        kept.states = [step[0] for step in kept.batch]

    return train


def transposed_batch(kept: SimpleNamespace) -> None:
    kept.memory = getattr(kept, "memory", [])
    kept.memory += [Step(torch.randn(8), 1, torch.randn(8)) for _ in range(4)]
    kept.batch = Step(*zip(*random.sample(kept.memory, min(len(kept.memory), 16)), strict=True))


def parts_of_objects(kept: SimpleNamespace) -> None:
    kept.items = getattr(kept, "items", [])
    kept.items += [SimpleNamespace(picture=torch.randn(20), boxes=[torch.randn(4)]) for _ in range(2)]
    picked = random.choices(kept.items, k=8)
    kept.pictures, kept.boxes = [item.picture for item in picked], [item.boxes[0] for item in picked]


def negatives_of_a_bank(kept: SimpleNamespace) -> None:
    kept.bank = getattr(kept, "bank", None) or collections.OrderedDict()
    kept.bank[kept.number] = {"code": torch.randn(16)}
    if len(kept.bank) > 64:
        kept.bank.popitem(last=False)
    kept.negatives = [random.choice(list(kept.bank.values()))["code"] for _ in range(12)]


def best_of_all(kept: SimpleNamespace) -> None:
    kept.best = getattr(kept, "best", [])
    heapq.heappush(kept.best, (random.random(), kept.number, [torch.randn(25)]))
    del kept.best[40:]
    kept.top = [entry[2][0] for entry in kept.best[:10]]


def returns_after_five_steps(kept: SimpleNamespace) -> None:
    kept.recent = getattr(kept, "recent", collections.deque(maxlen=5))
    kept.memory = getattr(kept, "memory", collections.deque(maxlen=200))
    kept.recent.append((torch.randn(4), random.random()))
    if len(kept.recent) == 5:
        kept.memory.append((kept.recent[0][0], sum(reward for _, reward in kept.recent)))


def stacks_of_frames(kept: SimpleNamespace) -> None:
    kept.frames = getattr(kept, "frames", collections.deque(maxlen=4))
    kept.memory = getattr(kept, "memory", collections.deque(maxlen=40))
    kept.frames.append(torch.rand(6, 6))
    if len(kept.frames) == 4:
        kept.memory.append((list(kept.frames), random.random()))


def longer_lists_in_a_window(kept: SimpleNamespace) -> None:
    kept.window = getattr(kept, "window", None) or collections.deque([[]], maxlen=3)
    kept.window.append([*kept.window[-1], torch.randn(20)])


class Lazy:
    @functools.cached_property
    def table(self) -> torch.Tensor:
        return torch.randn(100)


def lazy_attributes_one_by_one(kept: SimpleNamespace) -> None:
    kept.things = getattr(kept, "things", None) or [Lazy() for _ in range(40)]
    kept.sum = kept.things[kept.number % 40].table.sum()


def first_pass_of_a_cycle(kept: SimpleNamespace) -> None:
    kept.batches = getattr(kept, "batches", None) or itertools.cycle(torch.randn(50) for _ in range(40))
    kept.sum = next(kept.batches).sum()


def checked(train: Callable[[SimpleNamespace], None], **options):
    """Return the report on *train*, which keeps what it keeps in a namespace."""
    random.seed(0)
    torch.manual_seed(0)
    kept, numbers = SimpleNamespace(), itertools.count()

    def run() -> None:
        kept.number = next(numbers)
        train(kept)

    return leaklab.leakcheck(run, cure=False, **options)


@pytest.mark.parametrize("n", [8, 10, 24])
@pytest.mark.parametrize(
    "train",
    [
        replay_of(300),
        negatives_of_a_bank,
        best_of_all,
        returns_after_five_steps,
        stacks_of_frames,
        lazy_attributes_one_by_one,
        first_pass_of_a_cycle,
    ],
    ids=["replay memory", "bank of negatives", "best of all", "returns", "frames", "lazy attributes", "cycle"],
)
def test_a_buffer_with_a_limit_is_no_leak_of_what_is_drawn_from_it(train, n):
    report = checked(train, runs=n)
    assert not report.leaked, report.verdict


@pytest.mark.parametrize("n", [8, 24])
@pytest.mark.parametrize(
    ("train", "holder"),
    [(replay_of(None), "memory"), (transposed_batch, "memory"), (parts_of_objects, "items")],
    ids=["states", "transposed", "parts of objects"],
)
def test_a_buffer_without_a_limit_is_the_only_leak(train, holder, n):
    report = checked(train, runs=n)
    assert report.leaked
    assert [leak.holder for leak in report.leaks] == [f"kept.{holder} in checked()"], report.verdict


def test_entries_that_get_longer_in_a_window_are_a_leak():
    report = checked(longer_lists_in_a_window, runs=10)
    assert report.leaked
    assert "window" in report.leaks[0].holder


@pytest.mark.parametrize(("length", "outcome"), [(10_000, "bounded"), (10**10, "leak")])
def test_a_chosen_length_is_a_limit_where_so_many_fit_into_memory(length, outcome):
    report = checked(replay_of(length), runs=8)
    assert report.verdict.outcome.value == outcome
    assert f"collections.deque(maxlen={length})" in (report.leaks[0].reason if report.leaked else str(report.verdict))
    if report.leaked:
        assert "would keep" in report.leaks[0].reason


def test_lines_of_a_protocol_are_a_log_though_half_of_their_words_are_numbers():
    log = []
    report = leaklab.leakcheck(lambda: log.append(f"step {len(log)} loss {random.random():.4f}"), runs=8)
    assert report.verdict.outcome.value == "clean", report.verdict
    assert "is a log: 1 message" in str(report.verdict)


def test_what_leaks_by_chance_is_followed_until_its_rate_is_known():
    random.seed(5)
    kept = []

    def run() -> None:
        if random.random() < 0.35:
            kept.append([0])

    report = leaklab.leakcheck(run, cure=False, sites=False)
    (leak,) = report.leaks
    assert len(report.record.runs) > 24
    assert leak.count_per_run == pytest.approx(0.35, rel=0.33)
