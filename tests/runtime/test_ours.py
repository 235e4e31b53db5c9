"""leaklab's own objects, and what the shell puts among the variables, are nobody's holders and in no list."""

from __future__ import annotations

import gc

import numpy as np
import torch
from explain_builders import vertex_of, view_of

from leaklab.ask.heap_diff import snapshot
from leaklab.explain.alive.live_graph import overview
from leaklab.explorer.session import Session
from leaklab.explorer.widget import Explorer
from leaklab.heap.roots import find_starts
from leaklab.notebooks import Demo
from leaklab.reports.heap_diff import HeapSnapshot
from leaklab.runtime.addresses import addresses_of
from leaklab.runtime.ours import is_own_kind, own_addresses


def explored():
    """Return variables with two explorers in them, one of which somebody has looked into."""
    variables = {"data": [torch.zeros(3)]}
    for name in ("first", "second"):
        variables[name] = Explorer(Session(None, None, variables), "a title", None)
    vars(variables["first"])
    return variables


def test_classes_of_leaklab_are_known_but_not_its_examples_nor_the_users():
    assert is_own_kind(Explorer)
    assert is_own_kind(HeapSnapshot)
    assert not is_own_kind(Demo)
    assert not is_own_kind(torch.nn.Linear)
    assert not is_own_kind(type("Session", (Session,), {"__module__": "__main__"}))


def test_the_dict_of_an_explorer_is_its_own_and_its_namespace_is_not():
    variables = explored()
    objects = [variables["first"], vars(variables["first"]), variables, variables["second"]]
    assert set(own_addresses(objects).tolist()) == {id(objects[0]), id(objects[1]), id(objects[3])}


def test_an_explorer_is_no_holder_of_what_it_refers_to():
    held = [1, [2]]
    explorer = Explorer(held, "a title", None)
    vars(explorer)
    with view_of({"explorer": explorer}, more=[held]) as view:
        referrers = [view.objects[vertex] for vertex in view.index.referrers(vertex_of(view, held)).tolist()]
    assert not any(one is explorer or one is vars(explorer) for one in referrers)


def test_the_overview_lists_the_users_variables_only():
    variables = explored()
    with view_of(variables) as view:
        found = overview(view)
    assert [row.expression for row in found.variables] == ["data"]
    assert not [row for row in found.retainers if row.kind.startswith("leaklab.")]


def test_the_names_of_the_shell_are_no_variables_and_a_users_open_is_one(notebook):
    notebook.run("def open_door(): pass\nopen_it = open")
    shells = {start.expression for start in find_starts(notebook.user) if start.is_shells}
    assert {"get_ipython", "exit", "quit", "open"} <= shells
    assert "open_door" not in shells


def test_a_moment_is_not_counted_by_address_only():
    moment = snapshot("now")
    assert id(moment) in own_addresses([moment, []]).tolist()
    assert np.array_equal(own_addresses([[], {}]), addresses_of([]))
    gc.collect()
