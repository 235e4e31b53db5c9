"""Native memory that grows: when it does, what of it is explained, and no figure that was not measured."""

from __future__ import annotations

import ctypes
import functools
import gc
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from explain_builders import vertex_of, view_of
from samples import history_leak, leaky_check

import leaklab
from leaklab.check import native_caches
from leaklab.check.findings import Explained, Finding
from leaklab.check.judging import Judgement
from leaklab.check.memory import (
    DEVICE_MEMORY,
    NATIVE_MEMORY,
    device_rest,
    explain_native,
    explained_shares,
    malloc_rest,
    native_leak,
    remark,
    taken_by,
    with_replaced,
    with_rests,
)
from leaklab.check.session import CheckSession
from leaklab.decide.growth import NATIVE_FLOOR_BYTES, Growth
from leaklab.decide.per_run_level import judge_per_run_bytes
from leaklab.explain.leaks.groups import Group
from leaklab.explain.leaks.sizes import GRADIENT_BYTES, TENSOR_BYTES, GroupSizer, native_parts
from leaklab.model import Outcome, RootPath, Settings
from leaklab.model.check import MemoryShare, NativeParts
from leaklab.render.json import from_json, to_json
from leaklab.reports.check_html import render_html
from leaklab.reports.check_text import render_text
from leaklab.runtime.sizes import node_bytes

KIB, MIB = 1024, 1024 * 1024
NOTHING = Growth(Outcome.CLEAN, 0.0, "nothing")


def grows(rate, outcome=Outcome.LEAK):
    return Growth(outcome, float(rate), "24 steps in 24 runs")


def rest_of(rate, data=0, cpp=0):
    return malloc_rest(grows(rate), NativeParts(data, cpp), NATIVE_FLOOR_BYTES)


def judgement(native=None, accelerator=None):
    return Judgement(
        at_runs=(0, 24), kinds={}, remade={}, containers=(), slots=(), graph=NOTHING, native=native,
        accelerator=accelerator,
    )  # fmt: skip


def test_a_leak_that_gets_faster_is_explained_by_its_mean():
    levels = [1e6 + 500.0 * run * run for run in range(60)]
    growth = judge_per_run_bytes(levels, floor_per_run=NATIVE_FLOOR_BYTES)
    assert (growth.rate, growth.mean_rate) == (43_000, 33_500)
    assert malloc_rest(growth, NativeParts(30_000), NATIVE_FLOOR_BYTES).is_small


def test_what_instances_keep_their_attributes_in_is_a_doubt_of_a_tenth():
    parts = NativeParts(100_000)
    rest = malloc_rest(grows(125_000), parts, NATIVE_FLOOR_BYTES, leaked_bytes=400_000)
    assert not rest.is_leak
    assert not rest.is_small
    assert malloc_rest(grows(125_000), parts, NATIVE_FLOOR_BYTES, leaked_bytes=100_000).is_leak


@pytest.mark.parametrize(
    ("rate", "data", "cpp", "expected"),
    [
        (16 * KIB, 0, 0, True),  # the floor is kept, alone and beside something else
        (26 * KIB, 10 * KIB, 0, True),
        (14 * KIB, 0, 0, False),
        (64 * KIB, 0, 0, True),
        (34 * KIB, 0, 20 * KIB, False),  # 14 KiB left over
        (136 * KIB, 0, 100 * KIB, False),  # 36 KiB left over, 40 KiB of doubt
        (144 * KIB, 0, 100 * KIB, True),  # 44 KiB
        (1_020 * KIB, 980 * KIB, 0, False),  # 40 KiB left over, 49 KiB of doubt
        (1_040 * KIB, 980 * KIB, 0, True),  # 60 KiB
        (MIB + 100 * KIB, MIB - 30 * KIB, 30 * KIB, True),  # 100 KiB of C code beside a graph of 1 MiB
        (MIB, 0, 2 * MIB, False),
    ],
)
def test_native_memory_is_a_leak_of_its_own_beyond_the_floor_and_the_doubt(rate, data, cpp, expected):
    assert rest_of(rate, data, cpp).is_leak is expected


def test_what_is_left_over_is_the_growth_without_what_is_explained():
    rest = rest_of(100_000, data=20_000, cpp=30_000)
    assert (rest.bytes_per_run, rest.explained_bytes, rest.doubt_bytes) == (
        50_000,
        50_000,
        0.05 * 20_000 + 0.4 * 30_000,
    )


@pytest.mark.parametrize("growth", [None, NOTHING, grows(1e6, Outcome.INCONCLUSIVE), grows(1e6, Outcome.BOUNDED)])
def test_nothing_is_left_over_where_the_heap_does_not_surely_leak(growth):
    assert malloc_rest(growth, NativeParts(), NATIVE_FLOOR_BYTES) is None


def test_a_series_of_sixteen_kib_per_run_is_found_and_one_of_twelve_is_a_remark():
    for step, is_leak in ((16 * KIB, True), (12 * KIB, False)):
        growth = judge_per_run_bytes([200_000_000 + step * run for run in range(25)], floor_per_run=NATIVE_FLOOR_BYTES)
        assert growth.outcome is Outcome.LEAK
        rest = malloc_rest(growth, NativeParts(), NATIVE_FLOOR_BYTES)
        assert rest.is_leak is is_leak
    assert remark(rest, "memory") == (
        "memory grows by 12.0 KiB per run without an explanation, but growth below 16.0 KiB cannot be distinguished "
        "from caches"
    )


@pytest.mark.parametrize(("rate", "expected"), [(35 * KIB, False), (500 * KIB, False), (600 * KIB, True)])
def test_what_c_keeps_for_every_new_thread_is_no_leak_of_its_own(rate, expected):
    every_second_run = NativeParts(n_threads=0.5)  # 512 KiB of doubt
    assert malloc_rest(grows(rate), every_second_run, NATIVE_FLOOR_BYTES).is_leak is expected


def test_accelerator_memory_is_a_leak_of_its_own_if_more_than_twice_what_is_explained():
    for rate, is_leak in ((1_000_000, True), (700_000, False)):
        rest = device_rest(grows(rate), NativeParts(data_bytes=9e9, device_bytes=400_000), 512)
        assert rest.is_leak is is_leak


def test_a_rest_within_the_doubt_is_a_remark_and_a_small_one_is_none():
    assert remark(rest_of(130 * KIB, cpp=100 * KIB), "memory") == (
        "memory grows by 30.0 KiB per run more than the estimate for the leaks (100 KiB, give or take 40.0 KiB): too "
        "uncertain to report as a separate leak"
    )
    assert remark(rest_of(119 * KIB, cpp=100 * KIB), "memory") is None
    assert remark(rest_of(7 * KIB), "memory") is None


def test_the_leak_says_what_is_explained_and_how_well():
    leak = native_leak(rest_of(300 * KIB, cpp=100 * KIB), NATIVE_MEMORY, "24 steps in 24 runs")
    assert (leak.what, leak.cause, leak.unit, leak.bytes_per_run) == (NATIVE_MEMORY, "native", "bytes", 200 * KIB)
    assert leak.reason == (
        "native memory (malloc): 24 steps in 24 runs; Python's objects explain 100 KiB per run, give or take 40.0 "
        "KiB. Growth below 16.0 KiB per run cannot be distinguished from caches"
    )


def test_what_grows_beyond_the_leaks_found_is_added_to_them():
    found = [history_leak()]
    both = judgement(grows(100 * KIB), grows(MIB))
    finding = explain_native(both, found, NativeParts())
    assert finding.leaks[0] == found[0]
    assert [leak.what for leak in finding.leaks[1:]] == [NATIVE_MEMORY, DEVICE_MEMORY]
    assert finding.notes == ()


def test_what_the_leaks_found_explain_is_not_added():
    finding = explain_native(judgement(grows(100 * KIB)), [history_leak()], NativeParts(cpp_bytes=95 * KIB))
    assert finding.leaks == (history_leak(),)
    assert finding.notes == ()


def test_what_a_graph_too_large_to_be_walked_keeps_is_charged_to_it():
    small = replace(history_leak(), cause="graph-kept", bytes_per_run=10.0, fingerprint="small")
    graph = replace(history_leak(), cause="graph-kept", bytes_per_run=500.0, reason="one per run")
    finding = explain_native(judgement(grows(640 * KIB)), [small, graph], NativeParts(), n_unwalked=5)
    assert finding.leaks[0] == small
    assert finding.leaks[1].bytes_per_run == 640 * KIB + 500
    assert finding.leaks[1].reason == (
        "one per run; the graphs are too large to be counted, so 640 KiB per run of native memory (malloc) that "
        "nothing else explains are attributed to these objects"
    )


def test_without_a_kept_graph_there_is_nothing_to_charge():
    other = replace(history_leak(), cause="container-growth")
    finding = explain_native(judgement(grows(640 * KIB)), [other], NativeParts(), n_unwalked=5)
    assert [leak.what for leak in finding.leaks] == [other.what, NATIVE_MEMORY]


def parts_of(*things):
    with view_of({"kept": list(things)}, [[*things], []]) as view:
        return GroupSizer(view).native_parts([vertex_of(view, thing) for thing in things], [])


def test_a_plain_tensor_is_its_storage_and_one_cpp_object():
    assert parts_of(torch.zeros(1000)) == NativeParts(data_bytes=4000, cpp_bytes=TENSOR_BYTES)


def test_a_view_shares_the_storage():
    base = torch.zeros(1000)
    assert parts_of(base, base[:5]).data_bytes == 4000


def test_nodes_and_edges_of_a_graph_are_counted_without_the_tensors_that_are_gone():
    weight = torch.ones(1, requires_grad=True)
    total = (weight + 1) + (weight + 2)
    with view_of({"weight": weight, "kept": total}, [[total], []]) as view:
        parts = GroupSizer(view).native_parts([vertex_of(view, total)], [])
    # Three additions and the leaf's accumulator; two edges to additions, two to the accumulator.
    assert parts.cpp_bytes == TENSOR_BYTES + GRADIENT_BYTES + node_bytes(4, 4)
    assert parts.data_bytes == 4


def test_a_parameter_with_a_gradient_keeps_a_node_that_it_does_not_show():
    parameter = torch.nn.Parameter(torch.zeros(4))
    parameter.grad = torch.zeros(4)
    with view_of({"kept": parameter}, [[parameter], []]) as view:
        parts = native_parts(view, [vertex_of(view, parameter)])
    assert parts.cpp_bytes == TENSOR_BYTES + GRADIENT_BYTES + node_bytes(1, 0)


def test_small_objects_lie_in_pythons_own_arenas_and_large_ones_do_not():
    assert parts_of([1.5] * 10).malloc_bytes == 0
    assert 8_000 < parts_of([None] * 1000).malloc_bytes < 8_200


def test_what_lies_on_a_device_is_not_in_the_heap():
    assert parts_of(torch.zeros(1000, device="meta")) == NativeParts(cpp_bytes=TENSOR_BYTES)


def test_the_shares_of_survivors_and_of_what_grows_in_place_add_up():
    survivors, grown = (replace(history_leak(), bytes_per_run=5_000.0, fingerprint=name) for name in ("s", "g"))
    tensors = [torch.zeros(1000) for _ in range(4)]
    looks = [SimpleNamespace(n_threads=2), SimpleNamespace(n_threads=9), SimpleNamespace(n_threads=14)]
    measurement = SimpleNamespace(checkpoints=looks, n_runs=24)
    with view_of({"kept": tensors}, [tensors, []]) as view:
        group = Group(-1, [], [vertex_of(view, tensor) for tensor in tensors])
        found = Finding(survivors, grows(1), None, group, share=2 / 4)  # of the four, two in every run
        full = Finding(survivors, grows(0, Outcome.BOUNDED), limited_bytes=300.0)
        parts = taken_by([found, Finding(grown, grows(1)), full], GroupSizer(view), measurement)
    assert parts == NativeParts(2 * 4000 + 5_300, 2 * TENSOR_BYTES, 5_300, n_threads=0.5, unplaced_bytes=5_300)


def malloc_level():
    info = psutil.heap_info()
    return info.heap_used + info.mmap_used


@pytest.mark.skipif(not hasattr(psutil, "heap_info"), reason="this system does not tell the level of its heap")
def test_the_estimate_is_what_malloc_gives_for_the_graph_of_a_network():
    network = torch.nn.Sequential(
        *(layer for _ in range(10) for layer in (torch.nn.Linear(16, 16), torch.nn.LayerNorm(16), torch.nn.ReLU()))
    )

    def losses(count):
        return [network(torch.ones(4, 16)).mean() for _ in range(count)]

    losses(5)
    gc.collect()
    before = malloc_level()
    kept = losses(20)
    taken = malloc_level() - before
    with view_of({"network": network, "kept": kept}, [kept, []]) as view:
        parts = GroupSizer(view).native_parts([vertex_of(view, loss) for loss in kept], [])
    assert abs(taken - parts.malloc_bytes) < 0.25 * taken


@pytest.mark.untraced
@pytest.mark.skipif(not hasattr(psutil, "heap_info"), reason="this system does not tell the level of its heap")
def test_a_graph_is_one_leak_and_c_code_that_leaks_beside_it_is_another():
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    for n_bytes, expected in ((0, ["graph-kept"]), (100 * KIB, ["graph-kept", "native"])):
        layers = [layer for _ in range(8) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
        variables = {"history": [], "model": torch.nn.Sequential(*layers)}

        def run(n_bytes=n_bytes, variables=variables):
            variables["history"].append(variables["model"](torch.ones(64, 64)).mean())
            if n_bytes:
                libc.malloc(n_bytes)

        report = leaklab.leakcheck(run, namespace=variables, sites=False, runs=12)
        assert [leak.cause for leak in report.leaks] == expected


def explained_with(rest_bytes, native_bytes):
    leak = replace(
        history_leak(), what=NATIVE_MEMORY, path=RootPath("nothing", ()), bytes_per_run=float(rest_bytes), unit="bytes"
    )
    return Explained(leaks=(history_leak(), leak), native_bytes=native_bytes)


@pytest.mark.parametrize(("step", "is_cache"), [(25_000, True), (48_000, True), (52_000, False), (124_000, False)])
def test_a_cache_is_what_leaves_no_more_than_the_other_leaks_without_it(monkeypatch, step, is_cache):
    levels = iter([1_000_000 + step * run for run in range(native_caches.N_RUNS)])
    monkeypatch.setattr(native_caches, "native_heap_bytes", lambda: next(levels))
    session = CheckSession(Settings())
    session.measurement = SimpleNamespace(n_runs=0, collects=False)
    steps = native_caches.discount_caches(session, explained_with(100_000, 24_000.0))
    next(steps)
    for _ in range(native_caches.N_RUNS - 1):
        steps.send((0.0, ""))
    with pytest.raises(StopIteration) as stopped:
        steps.send((0.0, ""))
    explained = stopped.value.value
    assert (len(explained.leaks), len(explained.bounded)) == ((1, 1) if is_cache else (2, 0))


def grew(rate, mean=None):
    return Growth(Outcome.LEAK, float(rate), "24 steps in 24 runs", mean)


def judged(native=None, accelerator=None, creeping=None):
    return Judgement(
        at_runs=(0, 24), kinds={}, remade={}, containers=(), slots=(), graph=NOTHING, native=native,
        accelerator=accelerator, creeping=creeping,
    )  # fmt: skip


def no_holder(memory=NATIVE_MEMORY):
    return replace(history_leak(), what=memory, path=RootPath("nothing", ()))


def untold_of(share, *, leaks=(), bounded=(), charged=()):
    (told,) = with_rests([share], leaks, bounded, charged)
    return told.rest


def told(*shares):
    lines = render_text(replace(leaky_check(), shares=shares)).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("  explained"))
    return " ".join(line.strip() for line in lines[first : first + 3])


def test_what_is_known_estimated_and_possible_stands_apart():
    parts = NativeParts(data_bytes=300_000, cpp_bytes=20_000, device_bytes=150_000, unplaced_bytes=50_000)
    host, device = explained_shares(judged(grew(400_000), grew(100_000)), parts)
    assert host == MemoryShare(NATIVE_MEMORY, 400_000, 250_000, 20_000, 50_000)
    assert (host.explained_bytes, host.rest_bytes) == (320_000, 80_000)
    assert device == MemoryShare(DEVICE_MEMORY, 100_000, 100_000)


def test_memory_that_does_not_grow_for_certain_has_no_share():
    unsure = Growth(Outcome.INCONCLUSIVE, 9_000.0, "")
    assert explained_shares(judged(NOTHING, None, unsure), NativeParts(1_000)) == ()


def test_growth_below_the_floor_of_a_leak_has_no_share():
    assert explained_shares(judged(NOTHING, None, grew(2_000)), NativeParts(1_800)) == ()


def test_what_gets_faster_is_measured_by_its_mean():
    (share,) = explained_shares(judged(grew(40_000, 30_000)), NativeParts())
    assert share.grown_bytes == 30_000


def test_more_than_all_of_it_is_not_explained():
    share = MemoryShare(NATIVE_MEMORY, 100, 300)
    assert (share.explained_bytes, share.rest_bytes) == (100, 0)


def test_what_is_replaced_by_something_larger_is_known():
    host, device = MemoryShare(NATIVE_MEMORY, 100, 0), MemoryShare(DEVICE_MEMORY, 100, 0)
    known = with_replaced((host, device), {NATIVE_MEMORY: 90.0, DEVICE_MEMORY: 40.0})
    assert known == (replace(host, known_bytes=90.0), replace(device, known_bytes=40.0))


def test_the_rest_is_called_by_what_is_known_of_it():
    share = MemoryShare(NATIVE_MEMORY, 100, 50)
    assert "separate leak" in untold_of(share, leaks=[no_holder()])
    assert "cache" in untold_of(share, bounded=[no_holder()])
    assert "attributed to these leaks" in untold_of(share, charged=[NATIVE_MEMORY])
    assert "is unexplained" in untold_of(share, leaks=[no_holder(DEVICE_MEMORY)])


def test_no_word_is_lost_on_a_rest_of_half_a_percent():
    assert untold_of(MemoryShare(NATIVE_MEMORY, 1000, 995)) == ""


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


class Key:
    """What a table is about."""


def in_a_dict(kept: SimpleNamespace) -> None:
    kept.table[Key()] = np.ones(8192)


def in_a_cache_of_results(kept: SimpleNamespace) -> None:
    kept.ones_of(Key())


@pytest.mark.untraced
@pytest.mark.parametrize(("run", "holder"), [(in_a_dict, "kept.table"), (in_a_cache_of_results, "kept.ones_of")])
def test_an_array_under_a_key_that_is_an_object_is_held_by_the_table(run, holder):
    """The collector follows the key, not the array: it was native memory that nothing holds."""
    kept = SimpleNamespace(table={}, ones_of=functools.lru_cache(maxsize=None)(lambda _key: np.ones(8192)))
    report = leaklab.leakcheck(lambda: run(kept), namespace={"kept": kept}, runs=24, sites=False, cure=False)
    assert [leak.holder for leak in report.leaks] == [holder], str(report)
    (leak,) = report.leaks
    assert leak.bytes_per_run == pytest.approx(65_536, rel=0.02)
    assert leak.retained_bytes is not None
    assert leak.retained_bytes > 22 * 65_536
