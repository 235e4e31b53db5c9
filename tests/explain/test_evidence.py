"""What an inspector is told of the live objects, and the reason that each deciding step of a path carries."""

from __future__ import annotations

import pytest
import torch
from explain_builders import N_RUNS, Node, vertex_of, view_of

from leaklab.explain.leaks.evidence import facts_of, with_reasons


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


def notes_of(variables, runs, pick):
    """Explain what *pick* takes out of *runs*: as a local variable it would have another holder, this function."""
    with view_of(variables, runs) as view:
        vertex = vertex_of(view, pick(runs))
        path = with_reasons(view, vertex, view.describe(vertex), len(runs))
        return [(step.reference, step.note) for step in path.steps]


def test_the_holder_and_the_leaked_object_say_when_they_were_born():
    runs = [[Node()] for _ in range(N_RUNS)]
    trainer = Node(history=[born[0] for born in runs])
    assert notes_of({"trainer": trainer}, runs, lambda runs: runs[2][0]) == [
        ("trainer", ""),
        (".history", "was there before the first run"),
        ("[2]", "made in run 3 of 5, still here"),
    ]


def test_objects_of_the_same_run_are_not_told_twice():
    runs = [[Node(), []] for _ in range(N_RUNS)]
    for node, inner in runs:
        node.inner = inner
    del node, inner
    notes = notes_of({"kept": [node for node, _ in runs]}, runs, lambda runs: runs[1][1])
    assert [note for _, note in notes] == ["was there before the first run", "made in run 2 of 5, still here", ""]


def test_a_model_is_called_one():
    net = torch.nn.Linear(2, 2)
    runs = [[Node()] for _ in range(2)]
    net.extra = runs[0][0]
    notes = notes_of({"net": net}, runs, lambda runs: runs[0][0])
    assert notes[0] == ("net", "a model that was there before the first run")


def test_what_the_last_run_made_is_the_newest():
    runs = [[Node()] for _ in range(3)]
    notes = notes_of({"history": [born[0] for born in runs]}, runs, lambda runs: runs[2][0])
    assert notes == [("history", ""), ("[2]", "the newest: made in run 3")]


def test_a_known_holder_keeps_its_own_note():
    runs = [[Node()] for _ in range(3)]
    notes = notes_of({"Out": {7: runs[0][0]}}, runs, lambda runs: runs[0][0])
    assert notes[0][1].startswith("known holder: the notebook's list of outputs")
