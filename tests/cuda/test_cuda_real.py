"""Real files of other people's programs, where a folder of them is at hand: LEAKLAB_SNAPSHOTS names it."""

import os
import pickle
from collections import Counter
from pathlib import Path

import pytest

import leaklab
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
