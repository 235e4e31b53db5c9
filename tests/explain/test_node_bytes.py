"""What the nodes of one graph take is the same figure for everybody who tells it."""

from __future__ import annotations

import ctypes

import pytest
import torch

import leaklab
from leaklab.heap.saved.taking import take_heap
from leaklab.runtime.sizes import node_bytes

N_LOSSES = 50


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd u f uordblks g keep".split()]  # noqa: SIM905


def malloc_level() -> int:
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        pytest.skip("malloc of this system does not tell how much it has handed out")
    ask.restype = _Mallinfo2
    return ask().uordblks


def losses() -> tuple[torch.nn.Module, list[torch.Tensor]]:
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    kept = []
    for _ in range(N_LOSSES):
        loss = model(torch.rand(32, 256)).square().mean()
        loss.backward()
        kept.append(loss)
    return model, kept


def test_the_skeleton_of_a_graph_is_counted_after_its_backward_pass():
    _model, kept = losses()
    record = leaklab.autograd(kept).record
    assert record.n_nodes == 7 * N_LOSSES + 4
    assert record.saved_bytes == 0
    assert f"and take about {record.node_bytes / 1024:.0f} KiB themselves" in str(leaklab.autograd(kept))
    before = malloc_level()
    kept.clear()
    freed = before - malloc_level()
    # The losses themselves, a C++ tensor each, are in what malloc gets back, too.
    assert record.node_bytes == pytest.approx(freed - 515 * N_LOSSES, rel=0.15)


def test_a_file_of_the_heap_has_the_nodes_with_their_bytes():
    weight = torch.ones(3, requires_grad=True)
    namespace = {"kept": (weight * 2).sum()}
    namespace["kept"].grad_fn.name()  # the wrapper is made
    heap = take_heap("now", namespace)
    nodes = [row for row, kind in enumerate(heap.kinds) if kind.name == "SumBackward0"]
    sizes = heap.own_bytes[[place for place, row in enumerate(heap.kind_of) if row in nodes]]
    assert len(sizes) == 1
    assert sizes[0] >= node_bytes(1, 1)
