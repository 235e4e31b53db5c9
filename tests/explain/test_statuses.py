"""Steps that decide carry their reason: who was there before, who was left by which run."""

from __future__ import annotations

import torch
from explain_builders import N_RUNS, Node, vertex_of, view_of

from leaklab.explain.leaks.evidence import with_reasons


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
