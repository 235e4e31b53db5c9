"""What tensors, graphs, modules and optimizers refer to has the names that people write."""

from __future__ import annotations

import gc
import re

import numpy as np
import pytest
import torch

import leaklab
from leaklab.heap.hidden_references import hidden_edges
from leaklab.heap.names import name_references
from leaklab.heap.names.reference import Reference
from leaklab.heap.saved.arrays import SavedNodes
from leaklab.heap.saved.taking import take_heap


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
    others = [source for source, _target, _ in hidden_edges(gc.get_objects()).edges]  # what other tests have left
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
        if any(source is other for other in others):
            continue
        if id(source) in mine or type(source).__name__ in ("StackBackward0", "ExpBackward0", "DoubleBackward"):
            assert [name for name in name_references(source, target) if name.suffix], (source, target)
            named += 1
    assert named >= 6


nn = torch.nn


class Network(nn.Module):
    """Every way in which a module has tensors."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 64)
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU())
        self.blocks = nn.ModuleDict({"a": nn.Linear(64, 64), "b": nn.Linear(64, 64)})
        self.more = nn.ModuleList([nn.Linear(64, 64)])
        self.scales = nn.ParameterList([nn.Parameter(torch.rand(64, 64))])
        self.register_buffer("table", torch.rand(64, 64))

    def forward(self, x):
        h = self.layers(self.embedding(x).mean(1))
        return self.more[0](self.blocks["b"](self.blocks["a"](h))) @ self.scales[0] @ self.table


class Trainer:
    """A model and its optimizers, a level below the variables."""

    def __init__(self):
        self.model = Network()
        self.adam = torch.optim.Adam(self.model.parameters())
        self.sgd = torch.optim.SGD(self.model.parameters(), momentum=0.9)
        self.losses = []


def trained():
    """Return a trainer after two steps."""
    trainer = Trainer()
    for _ in range(2):
        loss = trainer.model(torch.randint(0, 100, (8, 4))).square().mean()
        trainer.adam.zero_grad()
        loss.backward(retain_graph=True)
        trainer.adam.step()
        trainer.sgd.step()
        trainer.losses.append(loss)
    return trainer


def tensors_of(trainer):
    """Return what a network and its optimizers have, each under the way in which people write it."""
    named = {}
    for name, parameter in trainer.model.named_parameters():
        # an entry of a ModuleDict is found as its attribute as well: either is written
        code = re.sub(r"\.(\d+)", r"[\1]", f"trainer.model.{name}")
        named[code], named[f"{code}.grad"] = parameter, parameter.grad
        for optimizer in ("adam", "sgd"):
            state = getattr(trainer, optimizer).state[parameter]
            named |= {f"trainer.{optimizer}.state[{code}]['{key}']": value for key, value in state.items()}
    named["trainer.model.table"] = trainer.model.table
    named["trainer.model.layers[1].running_mean"] = trainer.model.layers[1].running_mean
    return named


def as_people_write(code):
    return re.sub(r"\.blocks\['(\w)'\]", r".blocks.\1", code)


@pytest.fixture(scope="module")
def trainer():
    return trained()


def test_find_names_all_of_them(trainer):
    wanted = {code for code, tensor in tensors_of(trainer).items() if tensor.nbytes > 8}
    found = leaklab.find("torch.*", "bytes > 8", limit=1_000, namespace={"trainer": trainer})
    written = {as_people_write(row.holder) for row in found.record.rows}
    assert wanted <= written


def test_a_saved_heap_names_all_of_them(trainer):
    wanted = {code: tensor for code, tensor in tensors_of(trainer).items() if tensor.nbytes > 8}
    heap = SavedNodes(take_heap("a moment", {"trainer": trainer}))
    for code, tensor in wanted.items():
        expression, _place = heap.name_of(heap.index.vertex_of(id(tensor)))
        assert as_people_write(expression) == code


@pytest.mark.parametrize("number", range(0, 80, 13))
def test_whyalive_begins_with_the_name_that_people_write(trainer, number):
    named = [(code, tensor) for code, tensor in tensors_of(trainer).items() if tensor.nbytes > 8]
    code, tensor = named[number % len(named)]
    report = leaklab.whyalive(tensor, namespace={"trainer": trainer})
    assert as_people_write(report.record.paths[0].expression) == code


def test_autograd_names_the_memory_of_parameters(trainer):
    report = str(leaklab.autograd(trainer.losses, name="trainer.losses", namespace={"trainer": trainer}))
    assert "trainer.model.more[0].weight" in report
