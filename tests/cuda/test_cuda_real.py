"""Real files of other people's programs, where a folder of them is at hand: LEAKLAB_SNAPSHOTS names it."""

import os
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import leaklab
from leaklab.cuda.along_trace import block_map
from leaklab.cuda.stacks import StackTable
from leaklab.cuda.trace import histories
from leaklab.model.cuda import StackChange

FOLDER = Path(os.environ.get("LEAKLAB_SNAPSHOTS", "/nonexistent"))
FILES = sorted(FOLDER.glob("*.pickle"))
PAIR = ("wed_medium_128_training.pickle", "wed_medium_256_training.pickle")
MOVED_PAIR = ("kk_ctx128_forward.pickle", "kk_ctx128_forward_mixed.pickle")
CONTRADICTS_ITSELF = "mosaic_synthetic_output.pickle"

pytestmark = pytest.mark.skipif(not FILES, reason="LEAKLAB_SNAPSHOTS names no folder with snapshots")


def plain(file):
    return pickle.loads(file.read_bytes())["segments"]  # noqa: S301 - files that leaklab has opened before


def naive(file):
    """Live bytes by stack, the plain way, for both schemas."""
    sums = Counter()
    for segment in plain(file):
        for block in segment["blocks"]:
            if block["state"] != "inactive":
                frames = block["frames"] if "frames" in block else block["history"][0]["frames"]
                sums[tuple((f["name"], f["filename"], f["line"]) for f in frames)] += block["size"]
    return sums


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file_opens_and_its_sums_equal_a_naive_loop(file):
    read = leaklab.load_cuda_snapshot(file)
    sums = naive(file)
    assert {tuple(map(tuple, s.frames)): s.active_bytes for s in read.stacks if s.frames} == {
        frames: size for frames, size in sums.items() if frames
    }
    assert sum(s.active_bytes for s in read.stacks if not s.frames) == sums[()]
    segments = plain(file)
    assert read.reserved_bytes == sum(segment["total_size"] for segment in segments)
    if file.name != CONTRADICTS_ITSELF:
        assert read.active_bytes == sum(segment["active_size"] for segment in segments)
    for stacks in (read.stacks, *(peak.stacks for peak in read.peaks)):
        assert len({(stack.device, stack.label) for stack in stacks}) == len(stacks)
    for peak in read.peaks:
        assert sum(stack.requested_bytes for stack in peak.stacks) == peak.live_bytes
    assert read.to_json()


@pytest.mark.parametrize("file", FILES[:2], ids=lambda file: file.stem)
def test_file_is_drawn(file):
    assert "data:image/png" in leaklab.load_cuda_snapshot(file).to_html()


def test_same_program_with_twice_the_context_grew_at_one_stack():
    series = leaklab.compare_cuda_snapshots([FOLDER / name for name in PAIR]).series
    framed = [stack for stack in series.stacks if stack.frames]
    assert {stack.change for stack in framed} == {StackChange.SAME, StackChange.GROWN}
    assert [stack.growth_bytes for stack in framed if stack.growth_bytes] == [20_480_000]
    assert series.key.value == "exact"


def test_same_model_at_other_lines_matches_by_function():
    series = leaklab.compare_cuda_snapshots([FOLDER / name for name in MOVED_PAIR]).series
    assert series.key.value == "project"
    assert all(min(stack.n_blocks) for stack in series.stacks if stack.frames)


def replayed(trace):
    """The live bytes before the first event and after each one, from 0 on, event by event the plain way."""
    live, level, levels = {}, 0, [0]
    for event in trace:
        if event["action"] == "alloc":
            level += event["size"] - live.pop(event["addr"], 0)
            live[event["addr"]] = event["size"]
        elif event["action"] == "free_completed":
            level -= event["size"]
            live.pop(event["addr"], None)
        levels.append(level)
    return levels


def drawn(one):
    """The levels that the script of a page works out of its blocks, or reads from it where not all are drawn."""
    levels = np.zeros(one.n_events + 2)
    if one.n_left_out:
        ends = [event for event, _level in one.peaks[1:]] + [one.n_events + 1]
        for (event, level), end in zip(one.peaks, ends, strict=True):
            levels[event:end] = level
        return levels[:-1]
    first, last, size = (
        np.frombuffer(getattr(one, name), kind) for name, kind in (("first", "<u4"), ("last", "<u4"), ("size", "<f8"))
    )
    np.add.at(levels, first, size)
    np.subtract.at(levels, last, size)
    return np.cumsum(levels)[:-1]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_spike_is_as_high_in_its_bin_as_in_a_replay(file):
    read = leaklab.load_cuda_snapshot(file)
    raw = pickle.loads(file.read_bytes())  # noqa: S301 - as above
    traces = {f"cuda:{number}": trace for number, trace in enumerate(raw["device_traces"]) if trace}
    timelines = {timeline.device: timeline for timeline in read.timelines}
    for history in histories(read.memory, StackTable()):
        one = block_map(history, read.memory.annotations)
        plain_levels = np.array(replayed(traces[history.events.device]))
        shift = history.levels[0]
        if one is not None:
            for n_bins in (1, 300, 868, 1468):
                edges = np.unique(np.linspace(0, one.n_events, n_bins, endpoint=False).astype(int))
                expected = np.maximum.reduceat(plain_levels, edges) + shift
                assert np.maximum.reduceat(drawn(one), edges).tolist() == expected.tolist()
        timeline = timelines[history.events.device]
        samples = np.array(timeline.at_events)
        assert (plain_levels[samples] + shift).tolist() == list(timeline.live_bytes)
        assert max(timeline.live_bytes) == plain_levels.max() + shift
