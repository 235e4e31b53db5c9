"""Naming what tensors and autograd graphs refer to, most of it unseen by the garbage collector."""

from __future__ import annotations

import gc

import numpy as np
import torch

from leaklab.heap.hidden_references import hidden_edges
from leaklab.heap.names import name_references
from leaklab.heap.names.reference import Reference


def evaluate(holder, suffix):
    return eval(f"holder{suffix}", {"holder": holder})  # noqa: S307 - what leaklab itself has written


def only_name(holder, child):
    (name,) = name_references(holder, child)
    if name.suffix is not None:
        assert evaluate(holder, name.suffix) is child
    return name


def leaf(*shape):
    return torch.ones(shape or (3,), requires_grad=True)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor):
        ctx.save_for_backward(tensor)
        ctx.extra = [1]
        return tensor * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def test_a_result_leads_to_its_graph():
    result = leaf() * 3
    assert only_name(result, result.grad_fn) == Reference(".grad_fn", ".grad_fn", ".grad_fn", "hidden")


def test_a_gradient_and_a_base_are_attributes_the_collector_does_not_see():
    parameter = leaf()
    (parameter * 3).sum().backward()
    assert only_name(parameter, parameter.grad) == Reference(".grad", ".grad", ".grad", "hidden")
    base = torch.zeros(4)
    view = base[1:]
    assert only_name(view, base) == Reference("._base", "._base", "._base", "hidden")


def test_a_node_leads_to_the_next_nodes_and_a_leaf():
    parameter = leaf()
    result = parameter.exp() * parameter
    node = result.grad_fn
    following, accumulate = node.next_functions[0][0], node.next_functions[1][0]
    assert only_name(node, following) == Reference(
        ".next_functions[0][0]", ".next_functions[0][0]", ".next_functions[*][0]", "hidden"
    )
    assert only_name(accumulate, parameter) == Reference(".variable", ".variable", ".variable", "hidden")


def test_a_saved_tensor_is_named_by_what_it_was_saved_as():
    parameter = leaf()
    result = parameter.exp() * parameter
    saved = result.grad_fn._raw_saved_other.data
    assert saved is parameter
    assert name_references(result.grad_fn, parameter) == [
        Reference("saved for backward as 'other'", "._raw_saved_other.data", "saved for backward as 'other'", "hidden")
    ]
    exponent = result.grad_fn.next_functions[0][0]
    assert only_name(exponent, exponent._raw_saved_result.data).text == "saved for backward as 'result'"


def test_what_a_function_saved_is_named_by_position():
    parameter = leaf()
    node = Double.apply(parameter).grad_fn
    assert only_name(node, parameter) == Reference(
        "saved for backward as tensors[0]", "._raw_saved_tensors[0].data", "saved for backward as tensors[*]", "hidden"
    )
    assert only_name(node, node.extra).text == ".extra"


def test_naming_runs_no_unpack_hook_and_names_the_hook():
    calls = []

    def unpack(packed):
        calls.append(packed)
        return packed

    def pack(tensor):
        return ("packed", tensor.detach())

    parameter = leaf()
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        node = (parameter.exp() * 2).grad_fn.next_functions[0][0]
    packed = node._raw_saved_result.data
    assert only_name(node, packed).text == "saved for backward as 'result'"
    assert only_name(node, unpack).text == "unpack hook of 'result'"
    assert calls == []


def test_after_backward_nothing_is_saved_any_more():
    parameter = leaf()
    result = parameter.exp().sum()
    node = result.grad_fn.next_functions[0][0]
    result.backward()
    assert name_references(node, parameter) == []


def test_hooks_and_attributes_of_a_tensor_are_named():
    parameter = leaf()
    parameter.register_hook(lambda gradient: gradient)
    parameter.history = [1]
    assert only_name(parameter, parameter._backward_hooks).text == "._backward_hooks"
    assert only_name(parameter, parameter.history).text == ".history"


def test_asking_a_tensor_that_is_no_leaf_for_its_gradient_does_not_warn():
    result = leaf() * 2
    assert name_references(result, torch.zeros(3)) == []


def test_a_subclass_with_torch_function_is_not_asked():
    calls = []

    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            calls.append(func)
            return super().__torch_function__(func, types, args, kwargs)

    base = torch.zeros(4).as_subclass(Loud)
    view = base[1:]
    calls.clear()
    names = name_references(view, view._base)
    calls_while_reading = calls.copy()
    calls.clear()
    assert [name.text for name in names] == ["._base"]
    name_references(view, base)
    name_references(view, [])
    assert calls == []
    assert len(calls_while_reading) == 1  # the one in the line above


def test_a_module_leads_to_its_tables():
    module = torch.nn.Linear(2, 2)
    assert only_name(module, module._parameters).text == "._parameters"
    assert only_name(module._parameters, module.weight).text == "['weight']"


def test_every_hidden_reference_has_a_python_name():
    parameter = leaf()
    parameter.grad = torch.zeros(3)
    array = np.empty((2, 2), dtype=object)
    result = Double.apply(torch.stack([parameter.exp(), parameter * 2])[1:])
    array[1, 0] = result
    holder = [array, result, parameter]
    found = hidden_edges(gc.get_objects())
    mine = {id(holder[0]), id(result), id(parameter)}
    named = 0
    for source, target, _ in found.edges:
        if id(source) in mine or type(source).__name__ in ("StackBackward0", "ExpBackward0", "DoubleBackward"):
            assert [name for name in name_references(source, target) if name.suffix], (source, target)
            named += 1
    assert named >= 6
