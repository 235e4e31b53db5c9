"""What an inspector is told of the live objects beside the path."""

from __future__ import annotations

import pytest
import torch
from explain_builders import vertex_of, view_of

from leaklab.explain.leaks.evidence import facts_of


def chain_of(*shapes):
    """Make tensors of *shapes*, each computed from the one before, which its graph saves."""
    tensors = [torch.ones(shapes[0], requires_grad=True) * 2]
    for shape in shapes[1:]:
        tensors.append((tensors[-1] * tensors[-1]).sum() * torch.ones(shape, requires_grad=True))
    return tensors


@pytest.mark.parametrize(
    ("shapes", "is_scalar"),
    [
        (((1, 8, 32), (1, 8, 32)), False),
        (((1, 8, 32), ()), False),
        (((), (1, 8, 32)), False),
        (((), ()), True),
        (((1,), (1, 1)), True),
    ],
)
def test_numbers_are_stored_only_where_every_stored_tensor_is_one(shapes, is_scalar):
    kept = chain_of(*shapes)
    with view_of({"kept": kept}, [[kept[0]], [kept[1]]]) as view:
        entries = [vertex_of(view, tensor) for tensor in kept]
        assert facts_of(view, None, entries, entries).is_scalar is is_scalar


def test_of_a_stored_dict_the_tensors_in_it_are_asked():
    rows = [{"loss": torch.ones((), requires_grad=True) * 2, "past": torch.ones(4, requires_grad=True) * 2}]
    with view_of({"rows": rows}, [[rows[0], *rows[0].values()]]) as view:
        row, loss, past = (vertex_of(view, thing) for thing in (rows[0], *rows[0].values()))
        assert not facts_of(view, None, [row, loss, past], [row]).is_scalar
        assert facts_of(view, None, [row, loss], [row]).is_scalar


def test_of_a_state_whose_graph_grows_the_tensor_at_its_head_is_asked():
    number = torch.ones((), requires_grad=True) * 2
    state = {"past": torch.ones(1, 8, 32, requires_grad=True) * 2}
    nodes = [state["past"].grad_fn, number.grad_fn]
    with view_of({"state": state, "number": number}, [[number, *nodes]], more=nodes) as view:
        past, number_of, node, other = (vertex_of(view, thing) for thing in (state["past"], number, *nodes))
        assert (int(view.tree.parent[node]), int(view.tree.parent[other])) == (past, number_of)
        assert not facts_of(view, None, [number_of, node], [node]).is_scalar
        assert facts_of(view, None, [number_of, other], [other]).is_scalar


def loss_of_a_batch():
    batch = torch.ones(4, 32, requires_grad=True) * 1
    return (batch**2).mean()


@pytest.mark.parametrize("is_in_dict", [False, True])
def test_what_only_the_graph_of_a_stored_number_keeps_was_not_stored(is_in_dict):
    loss = loss_of_a_batch()
    kept = {"loss": loss} if is_in_dict else loss
    with view_of({"history": [kept]}, [[loss]]) as view:
        saved = [v for v, thing in enumerate(view.objects) if view.is_tensor[v] and thing.shape == (4, 32)]
        assert saved
        entry = vertex_of(view, kept)
        assert facts_of(view, None, [entry, vertex_of(view, loss), *saved], [entry]).is_scalar


def test_where_no_tensor_is_stored_there_is_no_number():
    rows = [["a"]]
    with view_of({"rows": rows}, [[rows[0]]]) as view:
        assert not facts_of(view, None, [vertex_of(view, rows[0])]).is_scalar
