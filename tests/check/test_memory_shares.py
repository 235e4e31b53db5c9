"""How much of the growth of memory is explained: no figure that was not measured, and the rest by name."""

from __future__ import annotations

import ctypes
import gc
from dataclasses import replace

import pytest
import torch
from samples import history_leak, leaky_check

import leaklab
from leaklab.check.judging import Judgement
from leaklab.check.memory import DEVICE_MEMORY, NATIVE_MEMORY, explained_shares, with_replaced, with_rests
from leaklab.decide.growth import Growth
from leaklab.model import Outcome, RootPath
from leaklab.model.check import MemoryShare, NativeParts
from leaklab.render.json import from_json, to_json
from leaklab.reports.check_html import render_html
from leaklab.reports.check_text import render_text

KIB, MIB = 1024, 1024 * 1024
NOTHING = Growth(Outcome.CLEAN, 0.0, "nothing")


def grows(rate, mean=None):
    return Growth(Outcome.LEAK, float(rate), "24 steps in 24 runs", mean)


def judgement(native=None, accelerator=None, creeping=None):
    return Judgement(
        at_runs=(0, 24), kinds={}, remade={}, containers=(), slots=(), graph=NOTHING, native=native,
        accelerator=accelerator, creeping=creeping,
    )  # fmt: skip


def no_holder(memory=NATIVE_MEMORY):
    return replace(history_leak(), what=memory, path=RootPath("nothing", ()))


def rest_of(share, *, leaks=(), bounded=(), charged=()):
    (told,) = with_rests([share], leaks, bounded, charged)
    return told.rest


def told(*shares):
    lines = render_text(replace(leaky_check(), shares=shares)).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("  explained"))
    return " ".join(line.strip() for line in lines[first : first + 3])


def test_what_is_known_estimated_and_possible_stands_apart():
    parts = NativeParts(data_bytes=300_000, cpp_bytes=20_000, device_bytes=150_000, unplaced_bytes=50_000)
    host, device = explained_shares(judgement(grows(400_000), grows(100_000)), parts)
    assert host == MemoryShare(NATIVE_MEMORY, 400_000, 250_000, 20_000, 50_000)
    assert (host.explained_bytes, host.rest_bytes) == (320_000, 80_000)
    assert device == MemoryShare(DEVICE_MEMORY, 100_000, 100_000)


def test_memory_that_does_not_grow_for_certain_has_no_share():
    unsure = Growth(Outcome.INCONCLUSIVE, 9_000.0, "")
    assert explained_shares(judgement(NOTHING, None, unsure), NativeParts(1_000)) == ()


def test_growth_below_the_floor_of_a_leak_has_no_share():
    assert explained_shares(judgement(NOTHING, None, grows(2_000)), NativeParts(1_800)) == ()


def test_what_gets_faster_is_measured_by_its_mean():
    (share,) = explained_shares(judgement(grows(40_000, 30_000)), NativeParts())
    assert share.grown_bytes == 30_000


def test_more_than_all_of_it_is_not_explained():
    share = MemoryShare(NATIVE_MEMORY, 100, 300)
    assert (share.explained_bytes, share.rest_bytes) == (100, 0)


def test_what_is_replaced_by_something_larger_is_known():
    host, device = MemoryShare(NATIVE_MEMORY, 100, 0), MemoryShare(DEVICE_MEMORY, 100, 0)
    assert with_replaced((host, device), 90.0) == (replace(host, known_bytes=90.0), device)


def test_the_rest_is_called_by_what_is_known_of_it():
    share = MemoryShare(NATIVE_MEMORY, 100, 50)
    assert "separate leak" in rest_of(share, leaks=[no_holder()])
    assert "cache" in rest_of(share, bounded=[no_holder()])
    assert "attributed to these leaks" in rest_of(share, charged=[NATIVE_MEMORY])
    assert "is unexplained" in rest_of(share, leaks=[no_holder(DEVICE_MEMORY)])


def test_no_word_is_lost_on_a_rest_of_half_a_percent():
    assert rest_of(MemoryShare(NATIVE_MEMORY, 1000, 995)) == ""


def test_the_text_says_how_much_of_what():
    assert "256 of 513 KiB (50 %) that native memory (malloc) grows by every run" in told(
        MemoryShare(NATIVE_MEMORY, 513 * KIB, 256 * KIB)
    )
    assert "512 KiB of 1.00 MiB (50 %)" in told(MemoryShare(NATIVE_MEMORY, MIB, 512 * KIB))


def test_an_upper_limit_is_told_as_one():
    words = told(MemoryShare(NATIVE_MEMORY, 70 * KIB, 0, 0, 250 * KIB))
    assert "up to 70.0 of 70.0 KiB" in words
    assert "Python's own memory" in words


def test_an_estimate_is_told_as_one():
    assert "60.0 KiB of it by an estimate" in told(MemoryShare(NATIVE_MEMORY, 100 * KIB, 30 * KIB, 60 * KIB))


def test_leaks_that_come_to_more_than_was_measured_are_not_hidden():
    assert "the leaked objects add up to 300 KiB" in told(MemoryShare(NATIVE_MEMORY, 100 * KIB, 300 * KIB))


def test_each_kind_of_memory_has_a_bar_in_html():
    share = MemoryShare(NATIVE_MEMORY, 100, 40, 10, 25)
    markup = render_html(replace(leaky_check(), shares=(share, replace(share, memory=DEVICE_MEMORY))))
    assert markup.count("width:40.00%") == 2  # what is known
    assert markup.count("width:35.00%") == 2  # what is estimated or possible


def test_a_record_keeps_its_shares_and_older_files_have_none():
    check = replace(leaky_check(), shares=(MemoryShare(NATIVE_MEMORY, 100, 40, rest="is a cache"),))
    assert from_json(to_json(check)) == check
    assert "shares" not in to_json(leaky_check())


@pytest.mark.untraced
def test_a_leak_in_c_beside_one_of_the_same_size_leaves_half():
    kept, libc = [], ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]

    def leak():
        kept.append(torch.ones(64 * KIB))
        ctypes.memset(libc.malloc(256 * KIB), 1, 256 * KIB)

    (share,) = leaklab.leakcheck(leak, runs=12, sites=False, cure=False).record.shares
    assert share.explained_bytes / share.grown_bytes == pytest.approx(0.5, abs=0.03)
    assert "separate leak" in share.rest
    del kept[:]
    gc.collect()
