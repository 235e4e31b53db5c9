"""References that the collector does not report."""

from __future__ import annotations

import gc
import sys
import weakref

import numpy as np
import pandas as pd
import pytest
import torch
from edge_builders import EDGES, Token
from explain_builders import real_view_of
from torch.utils.checkpoint import checkpoint

from leaklab.heap.hidden_references import ArraySearch, hidden_edges
from leaklab.heap.names import best_reference
from leaklab.runtime.autograd_graph import GraphWalk, has_graph

autograd = sys.modules[GraphWalk.__module__]  # leaklab.autograd is the public function of this name


class Thing:
    pass


def references(source, target, found):
    """Return how *source* refers to *target*, by the references that were *found*."""
    return [reference for a, b, reference in found.edges if a is source and b is target]


def of_heap():
    objects = gc.get_objects()
    found = hidden_edges(objects)
    objects.clear()
    return found


def of(*things):
    return hidden_edges(list(things))


def leaf(*shape):
    return torch.ones(shape, requires_grad=True)


def test_a_gradient_is_held_by_its_leaf():
    weight = leaf(2)
    weight.sum().backward()
    assert references(weight, weight.grad, of(weight)) == [".grad"]


def test_the_gradient_of_a_result_is_read_only_where_it_was_asked_for():
    result, kept = leaf(2) * 2, leaf(2) * 3
    kept.retain_grad()
    (result + kept).sum().backward()
    found = of(result, kept)  # a warning, if there were one, would fail this test
    assert references(kept, kept.grad, found) == [".grad"]
    assert [reference for source, _, reference in found.edges if source is result] == [".grad_fn"]


def test_a_view_holds_its_base():
    base = torch.ones(8)
    view = base[2:]
    assert references(view, base, of(view, base)) == ["._base"]
    assert references(base, view, of(view, base)) == []


def test_a_loss_holds_its_graph_down_to_the_leaf():
    weight = leaf(3)
    loss = (weight * weight).sum()
    found = of(loss, weight)
    add, multiply = loss.grad_fn, loss.grad_fn.next_functions[0][0]
    accumulate = multiply.next_functions[0][0]
    assert references(loss, add, found) == [".grad_fn"]
    assert references(add, multiply, found) == [".next_functions[0][0]"]
    assert sorted(references(multiply, weight, found)) == ["._saved_other", "._saved_self"]
    assert references(accumulate, weight, found) == [".variable"]
    assert {id(node) for node in (add, multiply, accumulate)} <= set(map(id, found.extra_objects))


def test_the_references_of_autograd_are_python():
    weight = leaf(3)
    loss = (weight * weight).sum()
    edges = [edge for edge in of(loss, weight).edges if edge[0] is loss or type(edge[0]).__name__.endswith("0")]
    assert len(edges) == 6
    for source, target, reference in edges:
        assert eval(f"source{reference}", {"source": source}) is target  # noqa: S307 - our own text


def test_a_result_that_its_operation_saved_becomes_a_vertex():
    result = leaf(3).exp()
    found = of(result)
    saved = [target for _, target, reference in found.edges if reference == "._saved_result"]
    assert [one.data_ptr() for one in saved] == [result.data_ptr()]
    assert saved[0] is not result
    assert any(extra is saved[0] for extra in found.extra_objects)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, factor):
        ctx.save_for_backward(tensor)
        return tensor * factor

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def test_a_function_written_in_python_holds_what_it_saved():
    weight = leaf(3)
    result = Double.apply(weight, 2)
    assert references(result.grad_fn, weight, of(result, weight)) == [".saved_tensors[0]"]


def test_the_graph_of_a_saved_tensor_is_followed_too():
    weight = leaf(3)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: [tensor], lambda packed: packed[0]):
        result = (weight * 2).exp()
    assert references(result.grad_fn.next_functions[0][0].next_functions[0][0], weight, of_heap()) == [".variable"]


def test_no_unpack_hook_runs():
    unpacked = []

    def unpack(packed):
        unpacked.append(packed)
        return packed[0]

    weight = leaf(3)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: [tensor.detach()], unpack):
        result = (weight * weight).exp()
    found = of_heap()
    assert unpacked == []
    packed = result.grad_fn._raw_saved_result.data
    assert references(result.grad_fn, packed, found) == ["._saved_result"]
    assert references(result.grad_fn, unpack, found) == ["._saved_result (unpack hook)"]


def test_no_checkpoint_is_computed_again():
    runs = []

    def forward(tensor):
        runs.append(1)
        return (tensor * 2).exp().sin()

    result = checkpoint(forward, leaf(3), use_reentrant=False)
    assert of_heap().n_unwalked == 0
    assert len(runs) == 1
    assert result.requires_grad


def test_a_graph_whose_buffers_are_freed_still_has_its_nodes():
    weight = leaf(3)
    loss = (weight * weight).sum()
    loss.backward()
    found = of(loss, weight)
    assert references(loss.grad_fn, loss.grad_fn.next_functions[0][0], found) == [".next_functions[0][0]"]
    assert not [reference for _, _, reference in found.edges if "saved" in reference]


class Loud(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *_args, **_kwargs):
        raise AssertionError

    grad_fn = grad = is_leaf = requires_grad = property(lambda self: 1 / 0)


def test_a_subclass_of_tensor_has_no_say():
    with torch._C.DisableTorchFunctionSubclass():
        loud = torch.ones(3).as_subclass(Loud)
        base = torch.ones(8)
        view = base[1:].as_subclass(Loud)
    found = of(loud, view, base)
    assert references(view, base, found) == ["._base"]


def test_an_object_array_holds_its_items():
    tensor, things = torch.ones(2), [1]
    array = np.array([[tensor, "text"], [None, things]], dtype=object)
    found = of([array], tensor, things)
    assert references(array, tensor, found) == ["[0, 0]"]
    assert references(array, things, found) == ["[1, 1]"]
    assert [extra for extra in found.extra_objects if type(extra) is np.ndarray] == [array]


def test_an_array_without_dimensions_holds_its_item():
    things = [1]
    array = np.empty((), dtype=object)
    array[()] = things
    assert references(array, things, of([array], things)) == ["[()]"]


def test_an_array_in_an_array_is_followed():
    things = [1]
    inner = np.empty(1, object)
    outer = np.empty(2, object)
    inner[0], outer[0], outer[1] = things, inner, outer
    found = of([outer], things)
    assert references(outer, inner, found) == ["[0]"]
    assert references(outer, outer, found) == ["[1]"]
    assert references(inner, things, found) == ["[0]"]
    outer[1] = None


def test_an_array_shows_the_memory_of_a_tensor():
    array = torch.ones(4).numpy()
    found = of_heap()
    assert references(array, array.base, found) == [".base"]
    assert type(array.base) is torch.Tensor


def test_arrays_of_numbers_are_no_vertices():
    numbers = np.arange(3.0)
    search = ArraySearch()
    search.through([[numbers, numbers[1:], np.array(["text"], dtype=object)]])
    assert (search.edges, search.vertices) == ([], {})


def test_an_array_is_found_in_a_dict_that_the_collector_does_not_track():
    things = [1]
    array = np.empty(1, dtype=object)
    array[0] = things
    inner, barren = {"losses": array}, {"losses": 0.5}
    holder = [inner, barren]
    found = of(holder, things)
    assert references(array, things, found) == ["[0]"]
    if not gc.is_tracked(inner):  # from 3.14 on every dict is tracked
        assert any(extra is inner for extra in found.extra_objects)
    assert not any(extra is barren for extra in found.extra_objects)


def test_the_tuples_around_such_a_dict_are_kept_as_well():
    array = np.empty(1, dtype=object)
    array[0] = [1]
    inner = (array,)
    outer = (inner, "text")
    holder = [outer]
    for _ in range(3):
        gc.collect()  # which finds out that a tuple need not be tracked
    assert not gc.is_tracked(outer)
    search = ArraySearch()
    search.through([holder])
    assert {id(array), id(inner), id(outer)} <= set(search.vertices)


def test_a_column_of_objects_holds_them():
    thing = Thing()
    frame = pd.DataFrame({"model": pd.Series([thing], dtype=object)})
    found = of_heap()
    assert len(frame) == 1
    assert [type(source) for source, target, _ in found.edges if target is thing and type(source) is np.ndarray] == [
        np.ndarray
    ]


def test_a_running_function_holds_its_variables():
    thing = Thing()
    found = of_heap()
    name = "test_a_running_function_holds_its_variables"
    assert references(sys._getframe(), thing, found) == [f"local 'thing' of {name}()"]
    assert id(sys._getframe()) in list(map(id, found.extra_objects))


def test_what_is_added_was_not_listed_and_is_added_once():
    weight = leaf(3)
    losses = [(weight * number).exp() for number in range(3)]
    objects = gc.get_objects()
    listed = set(map(id, objects))
    found = hidden_edges(objects)
    extra = list(map(id, found.extra_objects))
    objects.clear()
    assert len(losses) == 3
    assert len(set(extra)) == len(extra)
    assert not listed & set(extra)
    vertices = listed | set(extra)
    assert all(id(source) in vertices and id(target) in vertices for source, target, _ in found.edges)


class HostileMeta(type):
    __hash__ = None

    def __eq__(cls, other):
        raise AssertionError


class Hostile(metaclass=HostileMeta):
    __hash__ = None

    def refuse(self, *_):
        raise AssertionError

    __eq__ = __len__ = __bool__ = __getattribute__ = __sizeof__ = refuse
    __class__ = property(refuse)


def test_no_method_of_an_object_is_called():
    hostile = Hostile()
    array = np.empty(1, dtype=object)
    array[0] = hostile
    assert references(array, hostile, of(hostile, [array], Hostile)) == ["[0]"]


def test_the_walk_stops_at_its_budget(monkeypatch):
    monkeypatch.setattr(autograd, "MAX_WRAPPED_NODES", 100)
    loss = leaf()
    for _ in range(500):
        loss = loss * 1.5
    walk = GraphWalk([], n_leaves=1)
    walk.from_tensors([loss])
    assert 60 <= len(walk.nodes) <= 100
    assert walk.n_unwalked == 1


def test_nodes_that_had_a_wrapper_before_count_too(monkeypatch):
    monkeypatch.setattr(autograd, "MAX_WRAPPED_NODES", 3)
    weight = leaf()
    wrapped = [weight * number for number in range(3)]
    walk = GraphWalk([one.grad_fn for one in wrapped], n_leaves=1)
    walk.from_tensors([weight * 7])
    assert len(walk.nodes) == 3
    assert walk.n_unwalked == 4  # three nodes whose inputs were left alone, and the graph of the tensor


@pytest.mark.parametrize(("join", "dim"), [(torch.stack, 0), (torch.stack, -1), (torch.cat, 0), (torch.cat, -1)])
def test_the_inputs_of_a_wide_node_are_left_alone(monkeypatch, join, dim):
    monkeypatch.setattr(autograd, "MAX_WRAPPED_NODES", 50)
    weight = leaf(2, 2, 2)
    narrow = join([weight * number for number in range(5)], dim)
    wide = join([weight * number for number in range(60)], dim)
    walk = GraphWalk([], n_leaves=1)
    walk.from_tensors([wide])
    assert (len(walk.nodes), walk.n_unwalked) == (1, 1)
    walk = GraphWalk([], n_leaves=1)
    walk.from_tensors([narrow])
    assert (len(walk.nodes), walk.n_unwalked) == (7, 0)


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, *tensors):
        return sum(tensors)

    @staticmethod
    def backward(_ctx, gradient):
        return (gradient,) * 60


def test_the_inputs_of_a_wide_function_written_in_python_are_left_alone(monkeypatch):
    monkeypatch.setattr(autograd, "MAX_WRAPPED_NODES", 50)
    weight = leaf()
    walk = GraphWalk([], n_leaves=1)
    walk.from_tensors([Sum.apply(*(weight * number for number in range(60)))])
    assert (len(walk.nodes), walk.n_unwalked) == (1, 1)


def test_an_operation_on_lists_is_followed_while_nothing_can_be_wide():
    first, second = torch._foreach_mul([leaf(2) * 3, leaf(2) * 3], 2.0)
    walk = GraphWalk([], n_leaves=10)
    walk.from_tensors([first, second])
    assert walk.n_unwalked in (0, 1)  # it depends on how many operations the process has made before
    assert len(walk.nodes) >= 1


@pytest.mark.untraced  # a debugger writes the variables of a frame back: under one they are left alone
def test_looking_leaves_nothing_behind_for_the_collector():
    class Held:
        pass

    thing = Held()
    array = np.empty(1, object)
    array[0] = thing
    watch = weakref.ref(thing)
    gc.collect()
    gc.disable()
    try:
        found = of([array], thing)
        assert references(array, thing, found) == ["[0]"]
        found = array = thing = None
        assert watch() is None
    finally:
        gc.enable()


@pytest.fixture(scope="module")
def paths():
    """The path to the token of every builder, as text; empty where no root reaches it."""
    tokens, edges = {}, {}
    for build in EDGES:
        token = Token()
        tokens[build] = id(token)
        edges[build] = build(token)
        del token
    names = {f"holder_{build.__name__}": edge.holder for build, edge in edges.items() if edge.holder is not None}
    try:
        with real_view_of(names) as view:
            found = {}
            for build, address in tokens.items():
                vertex = view.index.vertex_of(address)
                found[build] = str(view.describe(vertex).path) if vertex >= 0 and view.is_reached(vertex) else ""
        yield found
    finally:
        for edge in edges.values():
            for release in edge.release:
                release()


@pytest.mark.parametrize("build", EDGES, ids=lambda build: build.__name__)
def test_a_hidden_reference_is_followed_and_named(paths, build):
    assert paths[build]
    assert all(words in paths[build] for words in EDGES[build]), paths[build]


def test_a_pack_hook_that_nothing_in_python_holds_belongs_to_the_graph():
    weight = leaf(3)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: [tensor], lambda packed: packed[0]):
        result = (weight * 2).exp()
    node = result.grad_fn
    packs = [held for source, held, name in of_heap().edges if source is node and name.endswith("(pack hook)")]
    assert [pack(1) for pack in packs] == [[1]]
    assert best_reference(node, packs[0]).text == "pack hook of 'result'"


def test_another_function_made_there_is_taken_for_no_pack_hook():
    registered = [lambda tensor: tensor]  # made where the unpack hook is made, and held by what Python shows
    with torch.autograd.graph.saved_tensors_hooks(print, lambda packed: packed[0]):
        result = (leaf(3) * 2).exp()
    assert references(result.grad_fn, registered[0], of_heap()) == []


def test_whether_a_tensor_has_a_graph_is_known_without_wrapping_a_node_of_it():
    """A tensor's `grad_fn` would: of thousands of tensors too much of a graph would be wrapped for it to be freed."""
    result = torch.ones(2, requires_grad=True) * 2

    def n_wrapped() -> int:
        return sum(type(thing).__name__ == "MulBackward0" for thing in gc.get_objects())

    before = n_wrapped()
    assert has_graph(result)
    assert not has_graph(result.detach())
    assert n_wrapped() == before
    assert result.grad_fn is not None
    assert n_wrapped() == before + 1
