"""Who holds the largest tensors: one row for each holder, whatever the number of tensors in it."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from leaklab.explain.heaps.largest_tensors import buffers_by_size, held_by, storages_by_path, storages_by_size
from leaklab.heap.borrow import borrow_heap
from leaklab.heap.view import NO_BIRTHS

KIB = 1 << 10


def rows_of(namespace):
    """Holder, number of tensors and KiB of what *namespace* holds."""
    with borrow_heap(NO_BIRTHS, namespace) as view:
        found = held_by(view, storages_by_path(view), 100)
    return {row.holder: (row.n_tensors, row.n_bytes // KIB) for row in found}


class Trainer:
    def __init__(self, **held):
        vars(self).update(held)


def kib(n_kib):
    return torch.ones(n_kib * KIB // 4)


@pytest.fixture
def large():
    """Larger than all that other tests hold: small holders are left out."""
    return 512


def test_items_of_a_container_are_one_row(large):
    namespace = {"trainer": Trainer(history=[{"loss": kib(large)} for _ in range(3)]), "batch": kib(large)}
    rows = rows_of(namespace)
    assert rows["trainer.history"] == (3, 3 * large)
    assert rows["batch"] == (1, large)


def test_very_many_are_all_added_up_and_each_to_its_own_holder():
    trainer = Trainer(
        history=[{"loss": kib(8 + number % 2)} for number in range(1000)], small=[kib(4) for _ in range(500)]
    )
    rows = rows_of({"trainer": trainer})
    assert rows["trainer.history"] == (1000, 8500)
    assert rows["trainer.small"] == (500, 2000)


class Slotted:
    __slots__ = ("loss",)

    def __init__(self):
        self.loss = kib(4)


class Episode(NamedTuple):
    states: torch.Tensor
    rewards: torch.Tensor


def reader_of(loss):
    return lambda: loss


MANY = {
    "a list of objects": lambda: [Trainer(loss=kib(4)) for _ in range(600)],
    "a dict of objects by number": lambda: {7 * number: Trainer(loss=kib(4)) for number in range(600)},
    "a dict of objects by word": lambda: {word: Trainer(loss=kib(4)) for word in map(chr, range(65, 665))},
    "objects in objects": lambda: [Trainer(inner=Trainer(loss=kib(4))) for _ in range(600)],
    "objects that have dicts": lambda: [Trainer(out={"loss": kib(2), "mask": kib(2)}) for _ in range(600)],
    "objects without a dict": lambda: deque(Slotted() for _ in range(600)),
    "named tuples": lambda: [Episode(kib(3), kib(1)) for _ in range(600)],
    "closures": lambda: [reader_of(kib(4)) for _ in range(600)],
    "two fields": lambda: [Trainer(states=kib(3), rewards=kib(1)) for _ in range(600)],
}


@pytest.mark.parametrize("make", MANY.values(), ids=MANY.keys())
def test_all_that_the_items_of_a_container_have_is_the_containers(make):
    trainer = Trainer(kept=make())
    n_tensors, n_kib = rows_of({"trainer": trainer})["trainer.kept"]
    assert n_tensors in (600, 1200)
    assert n_kib == 2400


def test_an_item_that_is_alone_is_named_by_its_place(large):
    rows = rows_of({"runs": [Trainer(), Trainer(weights=kib(large))], "by_word": {"old": Trainer(), "new": kib(large)}})
    assert rows["runs[1].weights"] == (1, large)
    assert rows["by_word"] == (1, large)


def test_models_in_a_list_are_the_lists_and_one_alone_is_named(large):
    side = int((large * KIB / 4) ** 0.5)
    nets = [nn.Linear(side, side, bias=False) for _ in range(3)]
    rows = rows_of({"ensemble": nets[:2], "best": [nn.Sequential(nets[2])]})
    assert rows["ensemble"][0] == 2
    assert rows["best[0]"][0] == 1


def test_parameters_and_gradients_are_the_models_and_moments_the_optimizers():
    model = nn.Sequential(nn.Linear(512, 512, bias=False))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 512)).sum().backward()
    optimizer.step()
    rows = rows_of({"optimizer": optimizer, "model": model})
    assert rows["model"] == (2, 2 * KIB)
    assert rows["optimizer"] == (3, 2 * KIB)  # two moments, and a step of four bytes


def test_what_a_graph_saved_is_the_graphs(large):
    weight = torch.ones(large * KIB // 4, requires_grad=True)
    losses = [(weight * kib(large)).sum() for _ in range(2)]
    rows = rows_of({"losses": losses, "weight": weight})
    assert rows["weight"] == (1, large)
    assert rows["the graph of losses"] == (2, 2 * large)


def test_storage_is_counted_once(large):
    whole = kib(large)
    assert rows_of({"whole": whole, "views": [whole[:4], whole[4:8]]})["whole"] == (1, large)
    assert [storage.n_bytes for storage in storages_by_size([whole, whole[:1]], [0, 1])] == [large * KIB]


def test_local_variable_of_a_running_function_is_named(large):
    outputs = [kib(large)]
    name = "outputs in test_local_variable_of_a_running_function_is_named()"
    assert rows_of({})[name] == (1, large)
    del outputs


def test_path_to_a_tensor_judges_nothing(large):
    namespace = {"held": [kib(large)]}
    with borrow_heap(NO_BIRTHS, namespace) as view:
        row = next(row for row in held_by(view, storages_by_path(view), 100) if row.holder == "held")
    assert {step.status.value for step in row.path.steps} == {"unknown"}
    assert row.what == f"torch.Tensor ({large * KIB // 4},) float32 cpu"


def test_arrays_and_bytes_are_their_containers():
    class Dataset:
        def __init__(self):
            self.cache = {number: np.ones(512 * KIB // 8) for number in range(3)}
            self.raw = [bytes(600 * KIB), bytearray(500 * KIB)]
            self.view = np.ones(700 * KIB // 8)[:10]  # keeps all of what it shows a part of

    namespace = {"dataset": Dataset(), "shared": torch.ones(900 * KIB // 4), "scale": np.ones(800 * KIB // 8)}
    namespace["of_tensor"] = namespace["shared"].numpy()
    local = np.ones(650 * KIB // 8)
    with borrow_heap(NO_BIRTHS, namespace) as view:
        buffers, is_complete = buffers_by_size(view)
        rows = {row.holder: row for row in held_by(view, buffers, 100)}
    assert is_complete
    assert (rows["dataset.cache"].n_tensors, rows["dataset.cache"].n_bytes) == (3, 3 * 512 * KIB)
    assert (rows["dataset.cache"].unit, rows["dataset.cache"].what) == ("arrays", "numpy.ndarray (65536,) float64")
    assert (rows["dataset.raw"].n_tensors, rows["dataset.raw"].n_bytes // KIB) == (2, 1100)
    assert rows["dataset.view"].n_bytes == 700 * KIB
    assert (rows["scale"].n_bytes, rows["scale"].what) == (800 * KIB, "numpy.ndarray (102400,) float64")
    assert rows["local in test_arrays_and_bytes_are_their_containers()"].n_bytes == 650 * KIB
    del local
    assert not any("of_tensor" in holder for holder in rows)  # its memory is the tensor's
