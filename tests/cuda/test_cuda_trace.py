"""What is live now, at the peak, at an out-of-memory event: against an allocator written by hand and naive loops."""

import random
from collections import Counter
from itertools import groupby, pairwise

import pytest
from snapshot_writer import KEPT, MODEL, STEP, WARM, Card, Training, snapshot, stack

from leaklab.ask.cuda import compare_cuda_snapshots
from leaklab.cuda.along_trace import stacks_after, timeline_of
from leaklab.cuda.reserved import free_pieces
from leaklab.cuda.schema import memory_of
from leaklab.cuda.stacks import StackTable, base_name, is_project, label_of
from leaklab.cuda.trace import events_of, histories
from leaklab.model import Outcome
from leaklab.model.cuda import BEFORE, CallFrame
from leaklab.reports.cuda import CudaSnapshot


def opened(*cards, **more):
    return CudaSnapshot(memory_of(snapshot(*cards, **more), "a.pickle"))


def naive_by_stack(taken):
    """Live bytes by frames, the plain way."""
    sums = Counter()
    for segment in taken["segments"]:
        for block in segment["blocks"]:
            if block["state"] != "inactive":
                sums[tuple((f["name"], f["filename"], f["line"]) for f in block["frames"])] += block["size"]
    return sums


def churn(seed, n_operations, max_events=None):
    """A random program; returns its card and the live requested bytes by stack before and after each event kept."""
    rng = random.Random(seed)
    made, live, after = Card(), {}, [Counter()]
    stacks = [MODEL, STEP, KEPT, WARM, []]
    for _ in range(n_operations):
        if live and rng.random() < 0.45:
            address = rng.choice(list(live))
            made.free(address)
            del live[address]
        else:
            number, size = rng.randrange(len(stacks)), rng.randrange(1, 3_000_000)
            live[made.alloc(size, stacks[number], stream=rng.choice([0, 0, 77]))] = (number, size)
        state = Counter()
        for number, size in live.values():
            state[number] += size
        after += [after[-1]] * (len(made.events) - len(after)) + [state]
    if max_events:
        made.events, after = made.events[-max_events:], after[-max_events - 1 :]
    return made, after


NAMES = [label_of([CallFrame(f["name"], f["filename"], f["line"]) for f in s]) for s in (MODEL, STEP, KEPT, WARM)]


def test_sums_by_stack_equal_a_naive_loop():
    card, _ = churn(1, 400)
    read = opened(card)
    assert {tuple(s.frames): s.active_bytes for s in read.stacks if s.frames} == {
        frames: size for frames, size in naive_by_stack(snapshot(card)).items() if frames
    }
    frameless = sum(s.active_bytes for s in read.stacks if not s.frames)
    assert frameless == naive_by_stack(snapshot(card))[()]
    assert (
        read.by_stack()["active_bytes"].sum()
        == read.active_bytes
        == sum(s["active_size"] for s in snapshot(card)["segments"])
    )


@pytest.mark.parametrize("seed", range(4))
def test_live_stacks_after_every_event_equal_the_program_replayed(seed):
    card, after = churn(seed, 60)
    (history,) = histories(opened(card).memory, StackTable())
    for n_done, state in enumerate(after):
        found = stacks_after(history, n_done)
        framed = {s.label: s.requested_bytes for s in found if s.frames}
        assert framed == {NAMES[number]: size for number, size in state.items() if number < 4}
        assert sum(s.requested_bytes for s in found) == state.total() == history.levels[n_done]


@pytest.mark.parametrize("max_events", [10, 37, 80])
def test_ring_that_lost_its_beginning_still_tells_the_level_at_every_event(max_events):
    card, after = churn(5, 120, max_events=max_events)
    (history,) = histories(opened(card).memory, StackTable())
    assert history.levels.tolist() == [state.total() for state in after]
    assert all(
        sum(s.requested_bytes for s in stacks_after(history, n)) == state.total() for n, state in enumerate(after)
    )


def test_peak_is_the_largest_level_and_names_what_made_it():
    card = Card()
    card.alloc(1_000_000, MODEL)
    high = [card.alloc(2_000_000, STEP), card.alloc(5_000_000, KEPT)]
    for address in high:
        card.free(address)
    card.alloc(1_000, WARM)
    peak = opened(card).peak
    assert peak.live_bytes == 8_000_000
    assert [(s.label.split()[0], s.requested_bytes) for s in peak.stacks] == [
        ("metrics.py:17", 5_000_000),
        ("model.py:21", 2_000_000),
        ("model.py:8", 1_000_000),
    ]
    assert card.events[peak.event - 1]["size"] == 5_000_000


def test_peak_names_what_was_freed_within_the_trace_but_allocated_before_it():
    card = Card(max_events=2)
    old = card.alloc(4_000_000, MODEL)
    card.free(old)  # the ring keeps free_requested and free_completed
    peak = opened(card).peak
    assert (peak.event, peak.live_bytes, peak.stacks[0].label) == (0, 4_000_000, BEFORE)


def test_out_of_memory_event_tells_the_request_and_what_was_live():
    card = Card()
    card.alloc(6_000_000, KEPT)
    card.oom(70_000_000, STEP, device_free=1_000_000)
    card.alloc(1_000, WARM)
    (oom,) = opened(card).ooms
    assert (oom.wanted_bytes, oom.free_bytes, oom.live_bytes) == (70_000_000, 1_000_000, 6_000_000)
    assert [s.requested_bytes for s in oom.stacks] == [6_000_000]
    assert label_of(oom.request).startswith("model.py:21 forward")


def test_allocation_whose_free_was_not_recorded_ends_at_the_next_one_there():
    card = Card()
    address = card.alloc(1000, MODEL)
    card.free(address)
    card.events = [event for event in card.events if event["action"] not in ("free_requested", "free_completed")]
    assert card.alloc(900, STEP) == address
    (history,) = histories(opened(card).memory, StackTable())
    assert history.levels.tolist() == [0, 0, 1000, 900]  # before, segment, first, second
    assert [s.requested_bytes for s in stacks_after(history, 2)] == [1000]


def test_frees_whose_allocations_were_not_recorded_are_older_than_the_trace():
    card = Card()
    for size in (1000, 500):
        card.free(card.alloc(size, MODEL))
    card.events = [event for event in card.events if event["action"] == "free_completed"]
    (history,) = histories(opened(card).memory, StackTable())
    assert history.levels.tolist() == [1500, 500, 0]
    assert [[(s.label, s.requested_bytes) for s in stacks_after(history, n)] for n in range(3)] == [
        [(BEFORE, 1500)],
        [(BEFORE, 500)],
        [],
    ]


def test_block_that_waits_for_another_stream_is_live_and_pending():
    card = Card()
    address = card.alloc(4096, MODEL)
    card.free(address, pending=True)
    read = opened(card)
    (only,) = read.stacks
    assert (only.active_bytes, only.pending_bytes, read.active_bytes) == (4096, 4096, 4096)


def test_timeline_bands_sum_up_to_the_level_at_every_sample():
    card, after = churn(9, 300, max_events=400)
    (history,) = histories(opened(card).memory, StackTable())
    line = timeline_of(history)
    sums = [sum(levels[i] for _label, levels in line.bands) for i in range(len(line.at_events))]
    assert list(line.live_bytes) == sums == [after[event].total() for event in line.at_events]
    assert line.live_bytes[line.at_events.index(line.peak_event)] == max(state.total() for state in after)


@pytest.mark.parametrize("seed", range(3))
def test_timeline_shows_the_maximum_of_every_stretch(seed):
    card, after = churn(seed, 1500)
    levels = [state.total() for state in after]
    (line,) = opened(card).timelines
    drawn = dict(zip(line.at_events, line.live_bytes, strict=True))
    n_stretches = 600
    edges = [len(levels) * i // n_stretches for i in range(n_stretches + 1)]
    for start, end in pairwise(edges):
        assert max(drawn.get(event, -1) for event in range(start, end)) == max(levels[start:end])


def test_a_spike_of_one_event_is_drawn_at_its_full_height():
    card = Card()
    for number in range(20_000):
        if number == 12_345:
            card.free(card.alloc(4 << 30, MODEL))
        card.free(card.alloc(1 << 20, STEP))
    (line,) = opened(card).timelines
    assert max(line.live_bytes) == 4 << 30
    assert sum(level > 1 << 20 for level in line.live_bytes) == 1


def pieces_of(card):
    """Reserved bytes, free bytes, and the largest free piece, from the blocks of the allocator itself."""
    pieces = [0]
    for segment in card.segments:
        for is_free, blocks in groupby(segment["blocks"], key=lambda block: block["state"] == "inactive"):
            pieces += [sum(block["size"] for block in blocks)] * is_free
    return sum(segment["total_size"] for segment in card.segments), sum(pieces), max(pieces)


@pytest.mark.parametrize("max_events", [1 << 40, 150])
@pytest.mark.parametrize("seed", range(4))
def test_free_pieces_at_every_event_are_those_of_the_allocator(seed, max_events):
    rng = random.Random(seed)
    card, live, after = Card(), [], {}
    for _ in range(250):
        action = rng.random()
        if live and action < 0.45:
            card.free(live.pop(rng.randrange(len(live))))
        elif action < 0.5:
            card.empty_cache()
        else:
            live.append(card.alloc(rng.randrange(1, 6_000_000), MODEL, stream=rng.choice([0, 0, 7])))
        after[len(card.events)] = pieces_of(card)
    dropped = max(0, len(card.events) - max_events)
    memory = memory_of(snapshot(card), "a.pickle")
    events = events_of("cuda:0", card.events[dropped:])
    found = {event: free_pieces(events, memory.segments, event - dropped) for event in after if dropped <= event}
    assert len(found) > 60
    for event, pieces in found.items():
        assert (pieces.reserved_bytes, pieces.free_bytes, pieces.largest_bytes) == after[event]


def test_pages_of_expandable_segments_that_lie_side_by_side_are_one_piece():
    card = Card(expandable=True)
    for address in [card.alloc(20 << 20, MODEL) for _ in range(3)]:
        card.free(address)
    card.oom(1 << 40, STEP, device_free=0)
    (oom,) = opened(card).ooms
    assert (oom.reserved_bytes, oom.reserved_free_bytes, oom.largest_free_bytes) == (60 << 20, 60 << 20, 60 << 20)


def test_without_addresses_nothing_is_said_of_pieces():
    card = Card()
    card.alloc(1 << 20, MODEL)
    card.oom(1 << 40, STEP, device_free=0)
    taken = snapshot(card)
    for segment in taken["segments"]:
        del segment["address"]
    (oom,) = CudaSnapshot(memory_of(taken, "a.pickle")).ooms
    assert (oom.reserved_bytes, oom.largest_free_bytes) == (None, None)


@pytest.mark.parametrize("expandable", [False, True])
def test_reserved_bytes_follow_segments_that_come_and_go(expandable):
    card = Card(expandable=expandable)
    address = card.alloc(30_000_000, MODEL)
    card.free(address)
    card.empty_cache()
    card.alloc(1000, STEP)
    (line,) = opened(card).timelines
    # before; 30 MB segment; alloc; free x2; gone; 2 MiB segment; alloc
    assert line.reserved_bytes == (0, 31457280, 31457280, 31457280, 31457280, 0, 2097152, 2097152)


def test_free_memory_beside_live_blocks_is_split_and_the_rest_can_be_released():
    card = Card()
    addresses = [card.alloc(5 << 20, MODEL) for _ in range(4)]  # one segment of 20 MiB
    alone = card.alloc(20 << 20, STEP)
    card.free(addresses[1])
    card.free(alone)
    (pool,) = opened(card).pool_uses
    assert pool.reserved_bytes == 40 << 20
    assert (pool.active_bytes, pool.inactive_split_bytes, pool.releasable_bytes) == (15 << 20, 5 << 20, 20 << 20)
    assert (pool.largest_free_bytes, pool.fragmentation) == (20 << 20, 0.125)


def test_pools_are_told_apart_by_size_privacy_and_stream():
    card = Card()
    for stream, pool in ((0, (0, 0)), (0, (0, 1)), (55, (0, 0))):
        card.alloc(1000, MODEL, stream=stream, pool=pool)
    card.alloc(30 << 20, MODEL)
    assert [use.pool for use in opened(card).pool_uses] == [
        "large",
        "small",
        "small, private pool 0.1",
        "small, stream 1",
    ]


def test_trace_without_frames_and_events_without_time_are_read():
    card = Card()
    card.alloc(1000, [])
    taken = snapshot(card)
    taken["device_traces"][0] = [
        {k: v for k, v in event.items() if k not in ("frames", "time_us", "stream")} for event in card.events
    ]
    read = CudaSnapshot(memory_of(taken, "a.pickle"))
    assert read.peak.live_bytes == 1000
    assert read.timelines[0].seconds is None


def test_tree_holds_every_live_byte_once_on_each_level():
    card = Training().run(6).card
    read = opened(card)

    def check(node):
        if node.children:
            assert sum(child.active_bytes for child in node.children) == node.active_bytes
            assert sum(child.n_blocks for child in node.children) == node.n_blocks
        for child in node.children:
            check(child)

    check(read.tree)
    assert read.tree.active_bytes == read.active_bytes
    (device,) = read.tree.children
    assert {child.label for child in device.children} == {"train.py:30 main", "train.py:35 main"}


PROJECT = (
    "/home/me/project/train.py", "C:\\work\\train.py", "<stdin>", "/var/ipykernel_12/3456.py", "/content/run.py",
)  # fmt: skip
FOREIGN = (
    "/usr/lib/python3.11/threading.py", "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py",
    "/usr/lib/python3/dist-packages/numpy/core.py", "C:\\Python311\\Lib\\runpy.py", "<frozen runpy>",
    "<eval_with_key>.3", "/var/torchinductor_me/ab/cab.py", "/opt/pytorch/torch/optim/adam.py",
    "??", "CUDACachingAllocator.cpp", "",
)  # fmt: skip


@pytest.mark.parametrize("filename", PROJECT)
def test_own_code_is_project(filename):
    assert is_project(filename)


@pytest.mark.parametrize("filename", FOREIGN)
def test_installed_generated_and_compiled_code_is_not_project(filename):
    assert not is_project(filename)


def test_cell_of_a_notebook_has_one_name_however_often_it_is_edited():
    assert base_name("/var/ipykernel_12/3456.py") == base_name("<ipython-input-7-abcdef>") == "cell"


@pytest.mark.parametrize(
    ("frames", "label"),
    [
        (stack("/p/model.py:8 forward", "/venv/lib/python3.11/site-packages/torch/x.py:1 call", "/p/train.py:9 step"),
         "model.py:8 forward <- train.py:9 step"),
        (stack("/venv/lib/python3.11/site-packages/torch/x.py:1 call"), "x.py:1 call"),
        ([{"name": "at::detail::empty_cuda(int)", "filename": "??", "line": 0},
          {"name": "torch::autograd::MmBackward0::apply(std::vector<T>&&)", "filename": "??", "line": 0}],
         "torch::autograd::MmBackward0::apply"),
    ],
)  # fmt: skip
def test_label_names_the_innermost_frames_that_tell_something(frames, label):
    assert label_of([CallFrame(f["name"], f["filename"], f["line"]) for f in frames]) == label


def damaged(change):
    card = Training().run(3).card
    taken = snapshot(card)
    change(taken["device_traces"][0])
    return CudaSnapshot(memory_of(taken, "a.pickle"))


@pytest.mark.parametrize(
    ("position", "event"),
    [
        (6, 7), (6, None), (0, {}), (6, {"action": "alloc", "addr": float("nan"), "size": 1}),
        (6, {"action": "alloc", "addr": 1, "size": "12"}), (6, {"action": ["alloc"], "addr": 1, "size": 1}),
        (6, {"action": "alloc", "addr": 1, "size": -5}), (6, {"action": "alloc", "addr": 1, "size": 1 << 70}),
        (6, {"action": "free_completed", "addr": 1, "size": float("inf")}),
        (6, {"action": "alloc", "addr": 1, "size": 1, "frames": "main"}),
    ],
)  # fmt: skip
def test_damaged_trace_leaves_the_live_bytes_and_one_sentence(position, event):
    read = damaged(lambda trace: trace.__setitem__(position, event))
    whole = opened(Training().run(3).card)
    assert (read.stacks, read.pool_uses, read.tree) == (whole.stacks, whole.pool_uses, whole.tree)
    assert (read.peak, read.ooms, read.timelines) == (None, (), ())
    (note,) = read.notes
    assert note.startswith(f"the trace of cuda:0 is damaged: event {position + 1} of ")
    assert f"note: {note}" in str(read)
    assert "damaged" in read.to_html()
    comparison = compare_cuda_snapshots([read, whole, read, whole])
    assert comparison.verdict.outcome is Outcome.CLEAN


@pytest.mark.parametrize("time", ["soon", float("nan"), None, -3, 1 << 80])
def test_times_that_are_none_cost_the_seconds_only(time):
    read = damaged(lambda trace: [event.update(time_us=time) for event in trace])
    peak = opened(Training().run(3).card).peak
    assert (read.peak.live_bytes, read.timelines[0].seconds, read.notes) == (peak.live_bytes, None, ())


@pytest.mark.parametrize(
    "bad", [7, None, {"name": 7, "filename": "a.py", "line": 1}, {"name": "f", "filename": "a.py", "line": "x"}]
)
def test_frame_that_is_none_is_shown_as_unreadable_and_counted(bad):
    card = Card()
    card.alloc(3000, [bad, *KEPT])
    card.alloc(2000, [bad])
    read = opened(card)
    assert [(s.label, s.requested_bytes) for s in read.stacks] == [
        ("metrics.py:17 update <- train.py:44 step", 3000),
        ("unreadable frame", 2000),
    ]
    assert [moment.live_bytes for moment in read.peaks] == [5000]
    assert read.notes == ("1 frame of the call stacks could not be read",)
