"""What a check asks of a heap, also where it is the heap of the next run; which tensors carry a graph there."""

from __future__ import annotations

import sys
import types

import torch
from explain_builders import N_RUNS, Link, Node, real_view_of, vertex_of, view_of
from torch import nn

from leaklab.heap.borrow import carried_tensors
from leaklab.heap.roots import find_starts
from leaklab.heap.view import BASELINE
from leaklab.model import Status
from leaklab.runtime.autograd_graph import inputs_of
from leaklab.runtime.graph_marks import GraphMarks


def path_words(view, thing):
    return str(view.describe(vertex_of(view, thing)).path)


def in_module(name, **variables):
    module = types.ModuleType(name)
    vars(module).update(variables)
    sys.modules[name] = module
    return module


def held_by_module(name, make):
    """Let a new module, and nothing else, hold what *make* returns."""
    in_module(name, kept=make())


def test_a_users_variable_wins_over_a_module():
    thing = Node()
    in_module("leaky_module", kept=thing)
    try:
        with real_view_of({"kept": Node(inner=[[thing]])}) as view:
            assert path_words(view, thing).startswith("notebook variable: kept (explain_builders.Node) -> .inner")
    finally:
        del sys.modules["leaky_module"]


def test_a_module_wins_over_a_running_function():
    thing = Node()
    in_module("leaky_module", kept=[thing])
    try:
        with real_view_of({}) as view:
            assert path_words(view, thing).startswith("module 'leaky_module': leaky_module.kept (list 1 entry) -> [0]")
    finally:
        del sys.modules["leaky_module"]


def test_a_local_variable_is_named_by_its_function():
    thing = Node()
    with view_of({}, more=[thing]) as view:
        expected = "running function test_a_local_variable_is_named_by_its_function: "
        assert path_words(view, thing).startswith(expected)


def test_the_list_of_outputs_wins_over_a_numbered_output():
    box = [Node()]  # no vertex: nothing but the variables holds the object
    with view_of({"_7": box[0], "_oh": {7: box[0]}, "Out": {7: box[0]}, "_": box[0]}) as view:
        described = view.describe(vertex_of(view, box[0]))
        assert described.path.steps[0].reference == "Out"
        assert view.is_history(described)
        assert view.starts[view.tree.root_of[vertex_of(view, box[0])]].is_history


def test_a_users_variable_wins_over_the_notebooks_history():
    thing = Node()
    with view_of({"Out": {7: thing}, "mine": [[thing]]}) as view:
        described = view.describe(vertex_of(view, thing))
        assert described.path.steps[0].reference == "mine"
        assert not view.is_history(described)


def test_history_wins_over_the_inside_of_the_shell():
    box = [Node()]
    variables = {"_7": box[0], "get_ipython": Node(internals=[box[0]])}
    variables["exit"] = variables["get_ipython"]
    with view_of(variables) as view:
        assert view.describe(vertex_of(view, box[0])).path.steps[0].reference == "_7"


def test_a_variable_that_is_no_name_is_still_an_expression():
    thing = Node()
    variables = {"not a name": thing, 5: thing}
    with view_of(variables) as view:
        expression = view.describe(vertex_of(view, thing)).expressions[-1]
        assert expression == "globals()['not a name']"


def test_a_path_never_leads_through_a_survivor_where_there_is_another():
    thing = Node()
    survivor = Node(thing=thing)
    variables = {"history": [survivor], "long": [[[[thing]]]]}
    with view_of(variables, [[survivor], []]) as view:
        assert path_words(view, thing).startswith("notebook variable: long")


def test_birth_is_known_by_run_and_the_newest_is_not_leaked():
    runs = [[Node()] for _ in range(3)]
    variables = {"history": [born[0] for born in runs]}
    with view_of(variables, runs) as view:
        vertices = [vertex_of(view, born[0]) for born in runs]
        assert view.birth_run[vertices].tolist() == [0, 1, 2]
        assert view.leaked[vertices].tolist() == [True, True, False]
        assert view.birth_run[vertex_of(view, variables["history"])] == BASELINE


def test_what_the_last_run_made_is_the_leak_of_the_survivor_that_keeps_it():
    older = [Link(Link())]
    with view_of({"hooks": [*older]}, [older, [], [older[0].parent]]) as view:
        assert view.blamed_run[vertex_of(view, older[0].parent)] == 0
        assert view.leaked[vertex_of(view, older[0].parent)]


def test_status_says_whether_there_is_a_reason_to_live():
    runs = [[Node()], [Node()]]
    history = [born[0] for born in runs]
    with view_of({"history": history}, runs) as view:
        statuses = [view.status(vertex_of(view, thing)) for thing in (history, *history)]
        assert statuses == [Status.EXPECTED, Status.LEAKED, Status.EXPECTED]


def test_saved_tensors_and_nodes_are_parts_of_a_graph():
    weight = torch.ones(3, requires_grad=True)
    result = (weight * weight).exp()
    with view_of({"result": result, "weight": weight}) as view:
        kinds = {type(view.objects[v]).__name__ for v in range(len(view.objects)) if view.in_graph[v]}
        assert kinds >= {"ExpBackward0", "MulBackward0", "AccumulateGrad"}
        assert not view.in_graph[vertex_of(view, weight)]
        assert vertex_of(view, weight) in view.tensors


def test_paths_keep_shapes_to_themselves_where_they_are_told_to():
    thing = torch.ones(4, 4)
    with view_of({"kept": [thing]}, summaries=False) as view:
        assert path_words(view, thing) == "notebook variable: kept (list) -> [0] (torch.Tensor)"


def test_a_view_of_nothing_reaches_nothing():
    with view_of(None, n_runs=N_RUNS) as view:
        assert not view.leaked.any()
        assert view.tensors == []


def test_the_shells_own_names_are_the_dearest_of_the_variables():
    starts = {start.expression: start for start in find_starts({"mine": 1, "Out": {}, "_3": 1, "get_ipython": 2})}
    costs = [starts[name].cost for name in ("mine", "Out", "_3", "get_ipython")]
    assert costs == sorted(set(costs))
    assert [starts[name].is_history for name in ("mine", "Out", "_3", "get_ipython")] == [False, True, True, False]


def test_nothing_of_the_heap_stays_in_the_view():
    objects = [Node()]
    with view_of({}, objects=objects) as view:
        pass
    assert view.starts == []
    assert view._described == {}


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
