"""Levels and lengths over a loop of any length: a bounded table that costs microseconds and holds nothing."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
import types
import weakref
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leaklab.measure import level_history
from leaklab.measure.gauges import accelerator_levels
from leaklab.measure.level_history import DEAD, N_KEPT, HolderLengths, LevelHistory

DISTANCES = st.one_of(
    st.lists(st.integers(1, 5_000), min_size=1, max_size=1_500),
    st.builds(lambda cadence, n: [cadence] * n, st.integers(1, 300), st.integers(1, 3_000)),
)


@pytest.fixture(autouse=True, scope="module")
def quick_meters():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(level_history, "native_heap_bytes", lambda: 1_000)
        patch.setattr(level_history, "accelerator_levels", lambda: (70, 90))
        yield


def noted(steps):
    history = LevelHistory()
    for step in steps:
        history.note(step, step / 10)
    return history


@settings(max_examples=40)  # thousands of notes each
@given(DISTANCES)
def test_what_is_kept_is_bounded_ascending_and_evenly_spread(distances):
    steps = list(accumulate(distances))
    history = noted(steps)
    kept = history.levels().steps
    assert len(kept) == len(history) <= N_KEPT
    assert all(earlier < later for earlier, later in pairwise(kept))
    assert (kept[0], kept[-1]) == (steps[0], steps[-1])
    assert set(kept) <= set(steps)
    assert all(later - earlier >= history.spacing for earlier, later in pairwise(kept[:-1]))
    # No sample is missing where one was noted: each step has a kept one less than two spacings before it.
    latest_kept = [kept[bisect_right(kept, step) - 1] for step in steps]
    assert max(step - one for step, one in zip(steps, latest_kept, strict=True)) < 2 * history.spacing


@settings(max_examples=40)  # thousands of notes each
@given(st.integers(1, 300), st.integers(N_KEPT, 2_500))
def test_a_steady_cadence_is_kept_evenly_within_a_factor_of_two_and_half_of_the_room_is_used(cadence, n):
    kept = noted(range(cadence, cadence * (n + 1), cadence)).levels().steps
    gaps = [later - earlier for earlier, later in pairwise(kept[:-1])]
    assert max(gaps) <= 2 * min(gaps)
    assert len(kept) >= N_KEPT // 2


def test_a_step_noted_twice_is_one_sample_and_an_earlier_one_none():
    history = noted([5, 10, 10, 3])
    assert history.levels().steps == (5, 10)


def test_the_record_has_all_levels_and_minus_one_for_what_nobody_tells(monkeypatch):
    history = noted([1, 2])
    monkeypatch.setattr(level_history, "native_heap_bytes", lambda: None)
    monkeypatch.setattr(level_history, "accelerator_levels", lambda: None)
    history.note(3, 0.3)
    levels = history.levels()
    assert levels.seconds == (0.1, 0.2, 0.3)
    assert (levels.heap_bytes, levels.accelerator_bytes, levels.reserved_bytes) == (
        (1_000, 1_000, -1),
        (70, 70, -1),
        (90, 90, -1),
    )
    assert all(rss > 1_000_000 for rss in levels.rss_bytes)
    assert [column.tolist() for column in history.heap()] == [[1.0, 2.0], [1_000.0, 1_000.0]]
    assert [column.tolist() for column in history.accelerator()] == [[1.0, 2.0], [70.0, 70.0]]


def test_notes_leave_no_object_behind():
    history = noted(range(2 * N_KEPT))
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for step in range(2 * N_KEPT, 12 * N_KEPT):
        history.note(step, 0.5)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 2_000


def fake_cuda(monkeypatch, *, initialized):
    cuda = types.ModuleType("torch.cuda")
    cuda.is_initialized, cuda.device_count = lambda: initialized, lambda: 2
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    inner = types.ModuleType("torch._C")
    inner._cuda_memoryStats = lambda index: {
        "allocated_bytes": {"all": {"current": 100 + index}},
        "reserved_bytes": {"all": {"current": 1_000 + index}},
    }
    monkeypatch.setitem(sys.modules, "torch._C", inner)


def test_cards_in_use_are_added_up(monkeypatch):
    fake_cuda(monkeypatch, initialized=True)
    assert accelerator_levels() == (201, 2_001)


def test_cards_that_the_program_has_not_touched_are_not_asked(monkeypatch):
    fake_cuda(monkeypatch, initialized=False)
    assert accelerator_levels() is None


def test_any_other_accelerator_is_asked_once_its_allocator_is_there(monkeypatch):
    inner, accelerator = types.ModuleType("torch._C"), types.ModuleType("torch.accelerator")
    ready = []
    inner._accelerator_isAllocatorInitialized = lambda: bool(ready)
    inner._accelerator_getDeviceStats = lambda index: {
        "allocated_bytes": {"all": {"current": 7}},
        "reserved_bytes": {"all": {"current": 8}},
    }
    accelerator.is_available, accelerator.device_count = lambda: True, lambda: 1
    for name, module in (("torch._C", inner), ("torch.accelerator", accelerator), ("torch.cuda", None)):
        monkeypatch.setitem(sys.modules, name, module)
    assert accelerator_levels() is None
    ready.append(True)
    assert accelerator_levels() == (7, 8)


def test_without_torch_there_is_no_accelerator_and_none_is_loaded():
    code = "import sys; from leaklab.measure.level_history import LevelHistory as L; h = L(); h.note(1, 0.0); print('torch' in sys.modules, h.levels().accelerator_bytes)"  # noqa: E501
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split(maxsplit=1) == ["False", "(-1,)\n"]


@pytest.mark.cuda
def test_a_tensor_on_the_card_is_seen_and_reading_before_does_not_initialise_it():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no card")
    if not torch.cuda.is_initialized():
        assert accelerator_levels() is None
        assert not torch.cuda.is_initialized()
    kept = torch.ones(1_000_000, device="cuda")
    allocated, reserved = accelerator_levels()
    assert allocated >= 4_000_000
    assert reserved >= allocated
    del kept


@dataclass(frozen=True)
class At:
    fingerprint: str
    chain: tuple[int, ...]
    grows: bool


class Holder:
    def __init__(self):
        self.outputs = []


def test_lengths_of_a_list_and_of_an_entrys_container_are_read_again():
    things, entry = [[1]], {"loss": [0]}
    things.append(entry)
    lengths = HolderLengths()
    lengths.note([At("grows", (id(things),), True), At("entry", (id(things), id(entry)), False), At("none", (), True)])
    assert lengths.read() == {"grows": 2, "entry": 2}
    things.extend([[2], [3]])
    assert lengths.read() == {"grows": 4, "entry": 4}
    lengths.keep({"entry"})
    assert lengths.read() == {"entry": 4}


def test_a_dict_of_plain_data_is_found_by_what_has_it():
    seen = {"1": b"a"}
    owner = {"seen": seen, "more": []}
    lengths = HolderLengths()
    lengths.note([At("seen", (id(owner), id(seen)), True)])
    assert lengths.read() == {"seen": 1}
    seen["2"] = b"b"
    assert lengths.read() == {"seen": 2}


def test_what_a_check_has_seen_of_a_container_is_that_of_its_place():
    entry, things = [1], []
    things.append(entry)
    lengths, series = HolderLengths(), ((0, 1), (25, 4))
    places = [At("grows", (id(things),), True), At("entry", (id(things), id(entry)), False), At("none", (), True)]
    lengths.note(places, {id(things): series})
    assert lengths.seen == {"grows": series, "entry": series}
    lengths.note(places)
    assert lengths.seen == {}, "of the last check only"


def test_what_is_dead_is_gone_and_what_was_never_known_is_not():
    kept, dead = deque([[1]]), deque([[1]])
    lengths = HolderLengths()
    lengths.note([At("kept", (id(kept),), True), At("dead", (id(dead),), True), At("none", (), True)])
    assert lengths.gone(["kept", "dead", "none", "unknown"]) == set()
    del dead
    assert lengths.gone(["kept", "dead", "none", "unknown"]) == {"dead"}


def test_nothing_is_held_and_what_lasted_and_is_dead_has_no_length():
    holder = Holder()
    lengths = HolderLengths()
    holder.outputs.append([0])
    lengths.note([At("outputs", (id(holder), id(holder.outputs)), True)])
    assert lengths.read() == {"outputs": 1}
    assert lengths.read() == {"outputs": 1}
    known = weakref.ref(holder)
    del holder
    gc.collect()
    assert known() is None
    assert lengths.read() == {"outputs": DEAD}


def test_what_is_made_anew_at_every_step_is_not_taken_for_emptied():
    losses = [[1]]
    lengths = HolderLengths()
    lengths.note([At("losses", (id(losses),), True)])
    assert lengths.read() == {"losses": 1}
    kept = losses + [[2]]  # noqa: RUF005 - another list
    del losses
    gc.collect()
    assert lengths.read() == {}
    assert len(kept) == 2


def test_the_owner_of_what_is_replaced_is_not_read_in_its_place():
    holder = Holder()
    holder.outputs = bytes(100)
    lengths = HolderLengths()
    lengths.note([At("outputs", (id(holder), id(vars(holder)), id(holder.outputs)), True)])
    holder.outputs = bytes(200)
    assert lengths.read() == {}
