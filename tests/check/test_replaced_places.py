"""What is replaced by something larger in every run is named, where only native memory shows that anything grows."""

from __future__ import annotations

import ctypes
import itertools
import types

import numpy as np
import pytest
import torch

import leaklab

pytestmark = pytest.mark.untraced


RANDOM = np.random.default_rng(0)
STATE = types.SimpleNamespace()


def test_tensors_in_tuples_that_are_made_anew_are_one_place():
    STATE.past = tuple((torch.randn(1, 4, 2, 64), torch.randn(1, 4, 2, 64)) for _ in range(2))

    def step():
        STATE.past = tuple(tuple(torch.cat([old, torch.randn(1, 4, 16, 64)], 2) for old in pair) for pair in STATE.past)

    report = leaklab.leakcheck(step, sites=False)
    (leak,) = report.leaks
    assert (leak.holder, leak.unit, leak.cause) == ("STATE.past", "bytes", "container-growth")
    assert leak.bytes_per_run == pytest.approx(2 * 2 * 4 * 16 * 64 * 4, rel=0.05)
    assert "Every run puts something larger into `STATE.past`" in leak.advice


def test_what_c_code_leaks_is_charged_to_no_variable_that_only_changes():
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    sizes = iter(range(1, 1000))

    def step():
        ctypes.memset(libc.malloc(50_000), 1, 50_000)
        STATE.batch = np.ones(1000 + 5000 * (next(sizes) % 3))

    (leak,) = leaklab.leakcheck(step, sites=False).leaks
    assert (leak.holder, leak.cause) == ("nothing that Python can see", "native")
    assert leak.bytes_per_run == pytest.approx(50_000, rel=0.2)


def joined_array():
    STATE.scores = np.zeros(0)

    def step():
        STATE.scores = np.append(STATE.scores, RANDOM.random(100))

    return step, "STATE.scores", 800


def joined_tensor_in_a_dict():
    STATE.stats = {"val": torch.zeros(0, 4)}

    def step():
        STATE.stats["val"] = torch.cat([STATE.stats["val"], torch.rand(32, 4)])

    return step, "STATE.stats['val']", 512


def bytes_with_more_added():
    STATE.raw = b""

    def step():
        STATE.raw += RANDOM.bytes(900)

    return step, "STATE.raw", 900


def joined_in_every_third_run():
    STATE.scores, runs = np.zeros(0), itertools.count()

    def step():
        if next(runs) % 3 == 0:
            STATE.scores = np.append(STATE.scores, RANDOM.random(300))

    return step, "STATE.scores", 800


@pytest.mark.parametrize(("n_bytes", "is_told"), [(4_000, True), (400, False)])
def test_a_small_steady_growth_that_nothing_explains_is_told_and_no_leak(n_bytes, is_told):
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    report = leaklab.leakcheck(lambda: ctypes.memset(libc.malloc(n_bytes), 1, n_bytes), sites=False)
    assert report.leaks == ()
    told = [note for note in report.record.notes if "without an explanation" in note]
    assert len(told) == is_told


@pytest.mark.parametrize(
    "make", [joined_array, joined_tensor_in_a_dict, bytes_with_more_added, joined_in_every_third_run]
)
def test_what_gets_a_little_larger_by_every_run_is_named_with_its_amount(make):
    step, holder, n_bytes = make()
    (leak,) = leaklab.leakcheck(step, sites=False).leaks
    assert (leak.holder, leak.bytes_per_run) == (holder, pytest.approx(n_bytes, rel=0.05))


def test_what_gets_larger_and_is_cut_or_emptied_is_no_leak():
    STATE.tail, STATE.epoch, runs = np.zeros(0), np.zeros(0), itertools.count(1)

    def step():
        STATE.tail = np.append(STATE.tail, np.ones(100))[-3000:].copy()
        STATE.epoch = np.append(STATE.epoch, np.ones(100)) if next(runs) % 17 else np.zeros(0)

    assert leaklab.leakcheck(step, sites=False).verdict.outcome in ("clean", "bounded")


def test_what_is_longer_in_every_run_by_design_is_no_leak():
    lengths = itertools.count(64, 64)

    def step():
        n = next(lengths)
        STATE.batch, STATE.positions, STATE.padding = torch.rand(n, 4), torch.arange(n), torch.zeros(n)

    assert not leaklab.leakcheck(step, sites=False).leaked


def check(cell, **namespace):
    return leaklab.leakcheck(cell, namespace=namespace, sites=False, cure=False, runs=24)


class Trainer:
    """A class of the user's with two lists."""

    def __init__(self):
        self.losses, self.records = [], []


def test_two_lists_of_the_users_own_are_two_leaks():
    trainer = Trainer()

    def step():
        tensors = [torch.ones(100) for _ in range(3)]
        trainer.losses.append({"tensors": tensors})
        trainer.records.append({"tensors": tensors, "more": torch.ones(400)})

    leaks = check(step, trainer=trainer).leaks
    assert {leak.holder for leak in leaks} == {"trainer.losses", "trainer.records"}


def test_a_sparse_gradient_that_nobody_clears_is_named():
    STATE.users = users = torch.nn.Embedding(100_000, 16, sparse=True)

    def step():
        users(torch.randint(0, 100_000, (64,))).pow(2).sum().backward()

    (leak,) = leaklab.leakcheck(step, sites=False, cure=False).leaks
    assert (leak.holder, leak.unit, leak.cause) == ("STATE.users.weight.grad", "bytes", "container-growth")
    assert leak.bytes_per_run == pytest.approx(64 * (16 * 4 + 8), rel=0.05)
    assert "Every backward() adds its entries to the sparse gradient" in leak.advice


@pytest.mark.parametrize(
    ("n_rows", "n_between", "outcome"), [(100_000, 1, "clean"), (100_000, 8, "clean"), (200, 10_000, "bounded")]
)
def test_a_sparse_gradient_is_no_leak_where_it_is_cleared_or_torch_joins_its_entries(n_rows, n_between, outcome):
    STATE.rows = rows = torch.nn.Embedding(n_rows, 4, sparse=True)
    runs = itertools.count(1)

    def step():
        rows(torch.randint(0, n_rows, (40,))).pow(2).sum().backward()
        if next(runs) % n_between == 0:
            rows.zero_grad()

    report = leaklab.leakcheck(step, sites=False, cure=False)
    assert (report.leaks, report.verdict.outcome.value) == ((), outcome)


def test_a_sparse_gradient_that_counts_no_changes_is_left_alone():
    STATE.weight = weight = torch.nn.Parameter(torch.zeros(2000, 4))
    with torch.inference_mode():
        places, values = torch.arange(300)[None], torch.ones(300, 4)
        weight.grad = torch.sparse_coo_tensor(places, values, (2000, 4), check_invariants=True)
    assert weight.grad.is_inference()
    report = leaklab.leakcheck(lambda: None, sites=False, cure=False)
    assert report.verdict.outcome.value == "clean"
