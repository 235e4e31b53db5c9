"""The map of blocks: rectangles of events and addresses, against the levels and the blocks of the allocator."""

import random

import numpy as np
import pytest
from snapshot_writer import MODEL, STEP, Card, snapshot, stack

from leaklab.cuda.along_trace import block_map
from leaklab.cuda.schema import memory_of
from leaklab.cuda.stacks import StackTable
from leaklab.cuda.trace import histories


def program(seed, *, expandable=False, n_operations=300):
    """A random program, with a request that fails at its end; returns its card."""
    rng = random.Random(seed)
    card, live = Card(expandable=expandable), []
    for _ in range(n_operations):
        action = rng.random()
        if live and action < 0.45:
            card.free(live.pop(rng.randrange(len(live))))
        elif action < 0.5:
            card.empty_cache()
        else:
            live.append(card.alloc(rng.randrange(1, 6_000_000), rng.choice([MODEL, STEP, []])))
    card.oom(1 << 40, STEP, device_free=0)
    return card


def mapped(card):
    (history,) = histories(memory_of(snapshot(card), "a.pickle"), StackTable())
    return history, block_map(history)


def columns(map_, *names):
    kinds = {"first": "<u4", "last": "<u4", "stack": "<u4", "bottom": "<f8", "size": "<f8"}
    return [np.frombuffer(getattr(map_, name), kinds[name.removeprefix("segment_")]) for name in names]


@pytest.mark.parametrize("max_events", [1 << 40, 120])
@pytest.mark.parametrize("expandable", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_on_the_map_at_each_event_sums_up_to_the_level(seed, expandable, max_events):
    card = program(seed, expandable=expandable)
    card.events = card.events[-max_events:]
    history, map_ = mapped(card)
    first, last, size = columns(map_, "first", "last", "size")
    states = np.arange(map_.n_events + 1)
    sums = [size[(first <= state) & (state < last)].sum() for state in states]
    assert sums == history.levels.tolist()
    assert map_.n_left_out == 0


@pytest.mark.parametrize("seed", range(3))
def test_no_two_blocks_lie_on_each_other_and_each_lies_in_a_segment(seed):
    _history, map_ = mapped(program(seed))
    first, last, bottom, size = columns(map_, "first", "last", "bottom", "size")
    since, until, floor, room = columns(map_, "segment_first", "segment_last", "segment_bottom", "segment_size")
    assert float((bottom + size).max()) <= map_.height
    for state in range(0, map_.n_events + 1, 5):
        there = np.flatnonzero((first <= state) & (state < last))
        there = there[np.argsort(bottom[there])]
        tops = bottom[there] + size[there]
        assert (bottom[there][1:] >= tops[:-1]).all()
        reserved = (since <= state) & (state < until)
        for low, high in zip(bottom[there], tops, strict=True):
            assert ((floor[reserved] <= low) & (high <= (floor + room)[reserved])).any()


def test_reserved_memory_on_the_map_is_that_of_the_segments():
    card = program(4)
    _history, map_ = mapped(card)
    since, until, room = columns(map_, "segment_first", "segment_last", "segment_size")
    at_end = (since <= map_.n_events) & (map_.n_events < until)
    assert room[at_end].sum() == sum(segment["total_size"] for segment in card.segments)


def test_marks_and_stacks_say_what_they_are():
    _history, map_ = mapped(program(0))
    assert map_.marks == ((map_.n_events, "out of memory: no room for 1.00 TiB"),)
    assert {stack.group for stack in map_.stacks} == {"model.py:8 __init__", "model.py:21 forward", "(no stack)"}
    assert any(stack.frames[1] == "/home/me/project/model.py:8 __init__" for stack in map_.stacks if stack.frames)


def test_peaks_hold_the_highest_event():
    history, map_ = mapped(program(1))
    assert max(map_.peaks, key=lambda peak: peak[1])[1] == history.levels.max()


def test_of_very_many_blocks_the_largest_are_on_the_map(monkeypatch):
    monkeypatch.setattr("leaklab.cuda.along_trace.MOST_BLOCKS", 20)
    card = Card()
    sizes = random.Random(5).sample(range(1, 3_000_000), 100)
    for size in sizes:
        card.alloc(size, MODEL)
    _history, map_ = mapped(card)
    (size,) = columns(map_, "size")
    assert sorted(size.astype(int)) == sorted(sizes)[-20:]
    assert map_.n_left_out == 80


def test_a_file_without_addresses_has_no_map():
    card = Card()
    card.alloc(1 << 20, stack("train.py:1 step"))
    for event in card.events:
        event.pop("addr")
    assert mapped(card)[1] is None
