"""What autograd graphs keep: nodes, saved tensors and bytes, on graphs small enough to be counted by hand."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from leaklab import autograd
from leaklab.model.autograd import Sharing
from leaklab.reports.autograd import AutogradReport
from leaklab.runtime.autograd_graph import MAX_WRAPPED_NODES

FLOAT = 4  # bytes


def look(obj, **variables):
    return autograd(obj, name="obj", namespace=variables).retention


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


def part(retention, name):
    return next(each for each in retention.operations if each.name == name)


def test_one_multiplication_saves_both_factors():
    a, b = leaf(10), leaf(10)
    retention = look(a * b, a=a, b=b)
    assert retention.n_nodes == 3  # the multiplication and two leaves
    assert retention.n_saved == 2
    assert retention.saved_bytes == 2 * 10 * FLOAT


def test_a_factor_that_needs_no_gradient_is_the_only_thing_saved_of_the_other():
    a, b = leaf(10), torch.ones(10)
    retention = look(a * b, a=a)
    assert retention.n_saved == 1  # b, to give a its gradient
    assert retention.saved_bytes == retention.graph_bytes == 10 * FLOAT
    assert retention.unsaved_leaf_bytes == 10 * FLOAT  # a
    assert retention.n_freed == 0


def test_a_tensor_saved_twice_is_counted_once_in_bytes():
    a = leaf(10)
    retention = look(a * a)
    assert retention.n_saved == 2
    assert retention.saved_bytes == 10 * FLOAT
    assert len(retention.tensors) == 1


def test_a_result_saved_by_two_operations_belongs_to_neither_alone():
    hidden = leaf(10).exp()  # saves its result, which the sine saves as its input
    retention = look(hidden.sin())
    del hidden
    assert retention.saved_bytes == 10 * FLOAT
    assert part(retention, "ExpBackward0").n_bytes == part(retention, "SinBackward0").n_bytes == 10 * FLOAT
    assert part(retention, "ExpBackward0").own_bytes == 0


def test_views_of_one_storage_are_one_storage():
    base = torch.ones(100)
    a = leaf(1)
    retention = look([a * base[:10], a * base[10:20]], a=a)
    assert [row.n_bytes for row in retention.tensors] == [100 * FLOAT]


def test_an_expanded_tensor_is_as_large_as_its_storage():
    retention = look(leaf(1000) * torch.ones(1).expand(1000))
    assert retention.saved_bytes == FLOAT


def test_memory_of_parameters_is_not_the_graphs():
    model, batch = nn.Linear(5, 3), torch.ones(2, 5, requires_grad=True)
    retention = look(model(batch).sum(), model=model)
    # The input (for the weight's gradient) and the weight (for the input's); the bias is saved by nobody.
    assert retention.saved_bytes == (2 * 5 + 5 * 3) * FLOAT
    assert retention.leaf_bytes == (2 * 5 + 5 * 3) * FLOAT
    assert retention.unsaved_leaf_bytes == 3 * FLOAT
    assert {row.shared_with for row in retention.tensors} == {"model.weight", ""}


def test_memory_that_a_variable_holds_is_named():
    batch, model = torch.ones(2, 5), nn.Linear(5, 3)
    (row,) = look(model(batch), model=model, batches=[batch]).tensors
    assert row.sharing is Sharing.VARIABLE
    assert row.shared_with == "batches[0]"
    assert row.n_bytes == 2 * 5 * FLOAT


def test_memory_that_only_the_graph_holds_is_called_so():
    (row,) = look(leaf(6).exp()[:3] * 1).tensors[:1]
    assert row.sharing is Sharing.GRAPH
    assert row.saved_by == ("ExpBackward0.result",)


def test_leaves_that_no_variable_holds_are_spoken_of():
    held = leaf(256)
    assert any("1.00 KiB belong to leaves" in note for note in look(leaf(256) * 2).notes)
    assert not any("belong to leaves" in note for note in look(held * 2, held=held).notes)


def test_a_backward_pass_leaves_a_skeleton():
    y = (leaf(10) * leaf(10)).exp().sum()
    y.backward()
    retention = look(y)
    assert retention.n_nodes == 5
    assert retention.n_freed == 3  # two factors and one result
    assert (retention.n_saved, retention.saved_bytes) == (0, 0)


def test_gradients_with_a_graph_are_found_from_their_leaf():
    w = leaf(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of the cycle once in a process, whoever made the first
        (w * w * w).sum().backward(create_graph=True)
    assert part(look(w), "MulBackward0").n_nodes > 2
    w.grad = None


def test_a_loss_list_is_alike_in_every_step():
    w = leaf(8)
    losses = [(w * torch.ones(8)).sum() for _ in range(5)]
    (row,) = look(losses, w=w).tensors
    assert (row.count, row.n_bytes) == (5, 5 * 8 * FLOAT)
    assert look(losses).roots == tuple(f"obj[{i}]" for i in range(5))


def test_custom_functions_tell_what_they_saved_and_what_hangs_on_ctx():
    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.extra = torch.ones(100)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    retention = look(Keeps.apply(leaf(10)))
    assert [row.saved_by for row in retention.tensors] == [
        ("KeepsBackward.ctx.extra",),
        ("KeepsBackward.tensors[0]",),
    ]


def test_no_checkpoint_is_computed_again():
    n_runs = []

    def block(x):
        n_runs.append(1)
        return x.exp().exp()

    y = checkpoint(block, leaf(10) * 2, use_reentrant=False)
    retention = look(y)
    assert len(n_runs) == 1
    assert (retention.n_packed, retention.n_opaque) == (2, 2)
    assert any("hooks packed" in note for note in retention.notes)


def test_no_unpack_hook_is_called_and_what_was_packed_is_measured():
    calls = []

    def unpack(packed):
        calls.append(packed)
        return packed[1].float()

    with torch.autograd.graph.saved_tensors_hooks(lambda t: ("half", t.detach().half()), unpack):
        y = leaf(10).exp()
    retention = look(y)
    assert calls == []
    assert retention.saved_bytes == 10 * 2
    assert retention.tensors[0].is_packed
    assert retention.n_opaque == 0


def test_forward_lines_are_told_where_anomaly_mode_recorded_them():
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        y = leaf(10).exp()
    retention = look(y)
    (line,) = retention.lines
    assert line.name.endswith("y = leaf(10).exp()")
    assert ", line " in line.name
    assert line.n_bytes == 10 * FLOAT
    assert retention.tensors[0].lines == (line.name,)
    assert [drawing.by.value for drawing in retention.drawings] == ["node", "line", "operation"]


def test_unknown_lines_come_with_the_way_to_know_them():
    assert any("set_detect_anomaly" in note for note in look(leaf(3) * 2).notes)


def test_nothing_is_kept_alive():
    y = (leaf(10) * leaf(10)).exp()
    died = weakref.ref(y)
    report = autograd(y, namespace={})
    del y
    assert died() is None
    assert report.retention.n_nodes == 4


def test_a_second_look_tells_the_same():
    y = (leaf(10) * leaf(10)).exp()
    assert look(y) == look(y)


def test_hooks_gradients_and_versions_are_untouched():
    w = leaf(4)
    y = w.exp()
    look([w, y])
    assert (w.grad, w._version, y._version, w._backward_hooks) == (None, 0, 0, None)
    y.sum().backward()
    assert torch.equal(w.grad, w.detach().exp())


def test_a_hostile_subclass_is_never_asked():
    class Hostile(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if hostile:
                raise AssertionError(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    hostile = False
    y = torch.ones(10).as_subclass(Hostile).requires_grad_().exp()
    hostile = True
    retention = look(y)
    hostile = False
    assert retention.saved_bytes == 10 * FLOAT


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (torch.ones(3), "nothing to show: obj does not require grad: it was detached, made under torch.no_grad"),
        (torch.ones(3, requires_grad=True), "nothing to show: obj is a leaf"),
        ([torch.ones(3), torch.ones(2)], "nothing to show: none of the 2 tensors in obj has a graph"),
        ([1, "two"], r"nothing to show: no tensor was found in obj \(of type list\)"),
        (None, r"nothing to show: no tensor was found in obj \(of type NoneType\)"),
    ],
)
def test_where_there_is_no_graph_one_sentence_says_why(obj, message):
    with pytest.raises(ValueError, match=message) as caught:
        autograd(obj, name="obj", namespace={})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"name": 3}, "name must be a str, not int"), ({"namespace": 3}, "namespace must be a dict of variables")],
)
def test_arguments_of_a_wrong_type_are_named(arguments, message):
    with pytest.raises(TypeError, match=message):
        autograd(leaf(3) * 2, **arguments)


def test_without_an_object_all_variables_are_examined():
    w = leaf(3)
    namespace = {"w": w, "_1": [w.exp()], "loss": w.sin(), "plain": torch.ones(2), "text": "x"}
    retention = autograd(namespace=namespace).retention
    assert retention.name == "all variables"
    assert retention.roots == ("loss", "_1[0]")


def test_an_object_is_called_by_its_variable():
    y = leaf(3).exp()
    assert autograd(y, namespace={"y": y}).retention.name == "y"


def test_tensors_are_found_inside_objects_closures_and_partials():
    class Holder:
        pass

    holder, y, z = Holder(), leaf(3).exp(), leaf(3).sin()
    holder.history = {"loss": [y]}
    holder.callback = lambda: z
    retention = look(holder)
    assert retention.n_roots == 2
    assert "obj.history['loss'][0]" in retention.roots


def test_a_module_is_never_entered():
    assert_message = "no tensor was found"
    with pytest.raises(ValueError, match=assert_message):
        look([sys, torch])


MODEL = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(20)])


@pytest.fixture(scope="module")
def many_steps():
    """A hundred steps of a network: more than 10,000 nodes."""
    losses = [MODEL(torch.ones(2, 4)).sum() for _ in range(180)]
    return autograd(losses, name="losses", namespace={"model": MODEL})


def test_a_large_graph_is_drawn_collapsed_by_module(many_steps):
    assert many_steps.retention.n_nodes > 10_000
    drawing = many_steps.graph().drawing
    assert drawing.by.value == "module"
    assert [box.name for box in drawing.boxes] == [f"model[{i}][0]" for i in range(19, -1, -1)]
    assert sum(box.n_nodes for box in drawing.boxes) == many_steps.retention.n_nodes
    assert all(end == start + 1 for start, end, _count in drawing.links)


def test_a_large_graph_has_no_drawing_of_its_nodes(many_steps):
    with pytest.raises(ValueError, match="by='node' is not possible for this graph; there are module, operation"):
        many_steps.graph("node")
    with pytest.raises(ValueError, match="by='colour' is none of node, module, line, operation"):
        many_steps.graph("colour")


def test_parts_add_up_to_the_whole(many_steps):
    retention = many_steps.retention
    assert sum(part.n_nodes for part in retention.operations) == retention.n_nodes
    assert sum(part.n_saved for part in retention.operations) == retention.n_saved
    assert sum(row.n_bytes for row in retention.tensors) == retention.saved_bytes
    linears = part(retention, "AddmmBackward0")
    # Of each step 20 inputs, of which no variable holds any; of the 19 inner weights one storage each.
    assert linears.n_nodes == 180 * 20
    assert linears.n_bytes == (180 * 20 * 2 * 4 + 19 * 4 * 4) * FLOAT


def test_a_report_survives_pickle_and_json(many_steps):
    assert pickle.loads(pickle.dumps(many_steps)) == many_steps  # noqa: S301 - our own bytes
    assert AutogradReport.from_json(many_steps.to_json()) == many_steps


def test_too_deep_a_graph_is_a_lower_bound_and_dies_without_harm():
    code = f"""
import torch
from leaklab import autograd
y = torch.ones(1, requires_grad=True)
for _ in range(45_000):
    y = y * 1.0
retention = autograd(y, name="y", namespace={{}}).retention
assert 0 < retention.n_nodes <= {MAX_WRAPPED_NODES}, retention.n_nodes
assert not retention.is_complete
assert any("lower bound" in note for note in retention.notes)
del y
print("alive")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "alive\n", done.stderr
