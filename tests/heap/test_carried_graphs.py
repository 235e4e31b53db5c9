"""Which tensors hand the graph of one run on to the next: those that the next run computes with."""

from __future__ import annotations

import torch
from torch import nn

from leaklab.heap.borrow import carried_tensors
from leaklab.runtime.autograd_graph import inputs_of
from leaklab.runtime.graph_marks import GraphMarks


def nodes_of(*tensors):
    """All autograd nodes behind *tensors*."""
    found, pending = {}, [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    while pending:
        node = pending.pop()
        if id(node) not in found:
            found[id(node)] = node
            pending.extend(before for before, _number in inputs_of(node) if before is not None)
    return list(found.values())


def carried(step, state, n_runs=4):
    """The names of the variables that *step*, which updates *state*, hands on."""
    marks = GraphMarks()
    for _ in range(n_runs):
        marks = marks.next_run()
        step(state)
    tensors = {name: value for name, value in state.items() if torch.is_tensor(value)}
    found = carried_tensors(tensors.values(), nodes_of(*tensors.values()), marks)
    return {name for name, tensor in tensors.items() if id(tensor) in found}


def test_of_what_a_recurrent_layer_returns_the_state_is_handed_on():
    layer, head = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 1)

    def step(s):
        s["out"], s["hidden"] = layer(torch.randn(2, 3, 4), s["hidden"])
        s["loss"] = head(s["out"][:, -1]).square().mean()

    assert carried(step, {"hidden": torch.zeros(1, 2, 8)}) == {"hidden"}


def test_both_states_of_a_layer_are_handed_on():
    layer = nn.LSTM(4, 8)

    def step(s):
        s["out"], (s["h"], s["c"]) = layer(torch.randn(3, 2, 4), (s["h"], s["c"]))

    assert carried(step, {"h": torch.zeros(1, 2, 8), "c": torch.zeros(1, 2, 8)}) == {"h", "c"}


def test_a_running_total_is_handed_on_and_not_what_is_computed_from_it():
    net = nn.Linear(4, 1)

    def step(s):
        s["loss"] = net(torch.randn(8, 4)).square().mean()
        s["total"] = s["total"] + s["loss"]
        s["mean"] = s["total"] / 2

    assert carried(step, {"total": torch.zeros(())}) == {"total"}


def test_what_looks_like_a_step_on_the_way_is_told_from_it():
    weights = torch.randn(8, 8, requires_grad=True)

    def step(s):
        s["h"] = torch.tanh((s["h"] - s["h"].mean()) @ weights)
        s["mean"] = s["h"].mean()

    assert carried(step, {"h": torch.ones(2, 8)}) == {"h"}


def test_a_run_may_compute_more_than_the_one_before():
    cell, lengths = nn.GRUCell(4, 8), iter((2, 5, 3, 7))

    def step(s):
        for _ in range(next(lengths)):
            s["h"] = cell(torch.randn(2, 4), s["h"])
        s["out"] = s["h"] * 2

    assert carried(step, {"h": torch.zeros(2, 8)}) == {"h"}


def test_the_state_is_told_from_a_copy_of_the_one_before():
    cell = nn.GRUCell(4, 8)

    def step(s):
        s["before"] = s["h"]
        s["h"] = cell(torch.randn(2, 4), s["before"])

    assert carried(step, {"h": torch.zeros(2, 8)}) == {"h"}


def test_what_the_runs_use_and_only_the_first_made_is_handed_on():
    cell, runs = nn.GRUCell(4, 8), iter((True, False, False, False))

    def step(s):
        new = cell(torch.randn(2, 4), s["h"])
        s["loss"] = new.sum()
        if next(runs):
            s["h"] = new

    assert carried(step, {"h": torch.zeros(2, 8)}) == {"h"}


def test_nothing_is_handed_on_where_each_run_begins_anew():
    net = nn.Linear(4, 1)
    fixed = net.weight * 2

    def step(s):
        s["out"] = net(torch.randn(2, 4)) * fixed.sum()

    assert carried(step, {}) == set()


def test_a_state_that_is_cut_off_is_not_handed_on():
    cell = nn.GRUCell(4, 8)

    def step(s):
        s["h"] = cell(torch.randn(2, 4), s["h"].detach())

    assert carried(step, {"h": torch.zeros(2, 8)}) == set()
