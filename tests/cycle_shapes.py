"""Small programs that end with nothing but garbage: some of it immortal, some freed by a collection, some at once.

Each takes a token and leaves nothing behind but what it made. What becomes of the token is the truth about the program;
it was found by running it and collecting, and the tests find it that way again.
"""

from __future__ import annotations

import functools
import weakref

import numpy as np
import torch
from torch import nn
from torch.autograd.graph import register_multi_grad_hook, save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

IMMORTAL, COLLECTED, FREED = {}, {}, {}
"""Programs by name: what no collection frees, what a collection frees, what goes by itself."""


def immortal(make):
    return IMMORTAL.setdefault(make.__name__, make)


def collected(make):
    return COLLECTED.setdefault(make.__name__, make)


def freed(make):
    return FREED.setdefault(make.__name__, make)


def leaf(*shape):
    return torch.ones(shape or (3,), requires_grad=True)


def touch(*_things):
    """Use *things* where a hook is to keep them."""


def sees(*things):
    """Make a hook that keeps *things* in its closure."""
    return lambda *_: touch(*things)


class KeepsOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, token):
        ctx.output, ctx.token = tensor * 2, token
        return ctx.output

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class KeepsInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, token):
        ctx.input, ctx.token = tensor, token
        return tensor * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


@immortal
def hook_of_a_result_sees_the_result(token):
    y = leaf() * 2
    y.register_hook(lambda _: touch(y, token))


@immortal
def the_same_after_backward(token):
    y = leaf() * 2
    y.register_hook(lambda _: touch(y, token))
    y.sum().backward()


@immortal
def hook_of_a_node_sees_its_result(token):
    y = leaf() * 2
    y.grad_fn.register_hook(lambda *_: touch(y, token))


@immortal
def prehook_of_a_node_sees_its_result(token):
    y = leaf() * 2
    y.grad_fn.register_prehook(lambda *_: touch(y, token))


@immortal
def post_accumulate_hook_sees_its_parameter(token):
    p = leaf()
    p.register_post_accumulate_grad_hook(lambda _: touch(p, token))


@immortal
def optimizer_step_in_backward(token):
    p = leaf()
    optimizer = torch.optim.SGD([p])
    optimizer.token = token
    p.register_post_accumulate_grad_hook(lambda _: optimizer.step())


@immortal
def second_order_backward(token):
    w = leaf()
    w.token = token
    (w * w).sum().backward(create_graph=True)


@immortal
def pack_hook_returns_the_tensor_it_got(token):
    with saved_tensors_hooks(lambda tensor: (tensor, token), lambda pair: pair[0]):
        leaf().exp()


@immortal
def unpack_hook_sees_the_output(token):
    box = []
    with saved_tensors_hooks(lambda tensor: tensor.detach(), lambda tensor: touch(box, token) or tensor):
        box.append(leaf().exp())


@immortal
def leaf_has_its_result_as_attribute(token):
    w = leaf()
    w.token, w.result = token, (w + 1).sum()


@immortal
def leaf_has_a_dict_with_its_result(token):
    w = leaf()
    w.token, w.results = token, {"sum": w * 2}


@immortal
def module_caches_an_output_whose_hook_sees_it(token):
    module = nn.Linear(3, 3)
    module.token = token
    module.last = module(torch.ones(1, 3))
    module.last.register_hook(lambda _: module and None)


# Not in the table that the mechanism was made for:


@immortal
def hook_of_an_intermediate_result_sees_a_later_one(token):
    y = leaf() * 2
    z = y * 3
    y.register_hook(lambda _: touch(z, token))


@immortal
def hook_of_a_node_sees_a_later_result(token):
    y = leaf() * 2
    z = (y * 3).sum()
    y.grad_fn.register_hook(lambda *_: touch(z, token))


@immortal
def hook_of_many_gradients_sees_one_of_the_tensors(token):
    a, b = leaf() * 2, leaf() * 3
    register_multi_grad_hook((a, b), lambda _: touch(a, token))


@immortal
def hook_of_many_gradients_sees_their_sum(token):
    a, b = leaf() * 2, leaf() * 3
    total = a + b
    register_multi_grad_hook((a, b), lambda _: touch(total, token))


@immortal
def parameter_keeps_its_accumulation_node(token):
    p = leaf()
    p.token, p.accumulation = token, p.expand_as(p).grad_fn.next_functions[0][0]


@immortal
def gradient_has_its_parameter_as_attribute(token):
    p = leaf()
    p.token, p.grad = token, torch.zeros(3)
    p.grad.owner = p


@immortal
def two_tensors_are_each_others_gradient(token):
    p, q = leaf(), leaf()
    p.token, p.grad, q.grad = token, q, p


@immortal
def base_has_its_view_as_attribute(token):
    whole = torch.ones(8)
    whole.token, whole.part = token, whole[2:]


@immortal
def hook_of_a_base_sees_its_view(token):
    whole = leaf(8) * 1
    part = whole[2:]
    whole.register_hook(lambda _: touch(part, token))


@immortal
def module_caches_a_checkpointed_output(token):
    module = nn.Linear(3, 3)
    module.token = token
    module.last = checkpoint(lambda x: module(x).exp(), leaf(1, 3), use_reentrant=False)


@immortal
def output_saved_on_cpu_where_it_is_already(token):
    with save_on_cpu():
        leaf().exp().token = token


@immortal
def ctx_keeps_a_later_result(token):
    y = KeepsInput.apply(leaf() * 2, token)
    y.grad_fn.later = y * 3


@immortal
def leaf_has_its_second_order_gradient_as_attribute(token):
    p = leaf()
    p.token = token
    (p.second,) = torch.autograd.grad((p * p).sum(), p, create_graph=True)


@immortal
def hook_is_a_partial(token):
    y = leaf().exp()
    y.register_hook(functools.partial(lambda *_: None, y, token))


@immortal
def hook_is_a_method_of_the_module_that_caches(token):
    class Camera(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.token = nn.Linear(3, 3), token

        def forward(self, x):
            self.activation = self.layer(x)
            self.activation.register_hook(self.store)
            return self.activation.sum()

        def store(self, gradient):
            self.gradient = gradient

    Camera()(torch.ones(1, 3)).backward()


@immortal
def grad_cam_with_a_forward_hook(token):
    class Camera:
        def __init__(self, layer):
            self.token = token
            layer.register_forward_hook(self.forward)

        def forward(self, _module, _inputs, output):
            self.activation = output
            output.register_hook(self.backward)

        def backward(self, gradient):
            self.gradient = gradient

    layer = nn.Linear(3, 3)
    camera = Camera(layer)
    camera.layer = layer
    layer(torch.ones(1, 3)).sum().backward()


@immortal
def hook_of_a_result_that_is_changed_in_place(token):
    y = leaf() * 2
    y.register_hook(lambda _: touch(y, token))
    y.mul_(2)


@immortal
def stacked_losses_kept_by_the_leaf(token):
    w = leaf()
    w.token = token
    w.history = torch.stack([(w * 2).sum() for _ in range(3)])


@immortal
def array_of_objects_and_tensor_hold_each_other(token):
    array, tensor = np.empty(2, object), torch.ones(2)
    array[0], array[1], tensor.array = tensor, token, array


@immortal
def full_backward_hook_and_a_cached_output(token):
    module = nn.Linear(3, 3)
    module.token = token
    module.register_full_backward_hook(lambda *_: None)
    module.last = module(leaf(1, 3))


@collected
def hook_of_a_leaf_sees_the_leaf(token):
    x = leaf()
    x.register_hook(lambda _: touch(x, token))


@collected
def hook_of_a_used_leaf_sees_the_leaf(token):
    x = leaf()
    x.register_hook(lambda _: touch(x, token))
    (x * x).sum().backward()


@collected
def ctx_keeps_its_output(token):
    KeepsOutput.apply(leaf(), token)


@collected
def ctx_keeps_an_output_that_is_used(token):
    y = KeepsOutput.apply(leaf(), token)
    (y * y).sum().backward()


@collected
def full_backward_hook_sees_its_module(token):
    module = nn.Linear(3, 3)
    module.register_full_backward_hook(lambda *_: touch(module, token))
    module(leaf(1, 3)).sum().backward()


@collected
def tensor_has_itself_as_attribute(token):
    tensor = torch.ones(3)
    tensor.me, tensor.token = tensor, token


@collected
def result_has_itself_as_attribute(token):
    y = leaf().exp()
    y.me, y.token = y, token


@collected
def node_hook_sees_its_node(token):
    node = (leaf() * 2).grad_fn
    node.register_hook(lambda *_: touch(node, token))


@collected
def accumulation_hook_sees_the_parameter(token):
    p = leaf()
    accumulation = p.expand_as(p).grad_fn.next_functions[0][0]
    accumulation.register_hook(lambda *_: touch(accumulation, p, token))


@collected
def optimizer_and_parameter_know_each_other(token):
    p = leaf()
    p.optimizer = torch.optim.Adam([p])
    p.optimizer.token = token
    p.sum().backward()
    p.optimizer.step()


@collected
def step_hook_sees_its_optimizer(token):
    optimizer = torch.optim.SGD([leaf()])
    optimizer.register_step_post_hook(lambda *_: touch(optimizer, token))


@collected
def module_caches_a_reentrant_checkpoint(token):
    module = nn.Linear(3, 3)
    module.token = token
    module.last = checkpoint(lambda x: module(x).exp(), leaf(1, 3), use_reentrant=True)


@freed
def hook_of_a_later_result_sees_an_earlier_one(token):
    y = leaf() * 2
    z = y * 3
    z.register_hook(sees(y, token))


@freed
def hook_of_a_later_node_sees_an_earlier_result(token):
    y = leaf() * 2
    z = y * 3
    z.grad_fn.register_hook(sees(y, token))


@freed
def module_caches_its_output(token):
    module = nn.Linear(3, 3)
    module.token, module.last = token, module(torch.ones(1, 3))


@freed
def forward_hook_fills_a_list_of_the_module(token):
    module = nn.Linear(3, 3)
    module.outputs = outputs = [token]
    module.register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
    module(torch.ones(1, 3))


@freed
def ctx_keeps_its_input(token):
    KeepsInput.apply(leaf() * 2, token)


@freed
def retained_graph_and_gradient(token):
    y = leaf() * 2
    y.retain_grad()
    y.token = token
    (y * y).sum().backward(retain_graph=True)


@freed
def second_order_gradient_returned(token):
    p = leaf()
    p.token = token
    torch.autograd.grad((p * p).sum(), p, create_graph=True)


@freed
def leaf_has_a_detached_result(token):
    w = leaf()
    w.token, w.result = token, (w + 1).sum().detach()


@freed
def hook_sees_its_result_weakly(token):
    y = leaf() * 2
    reference = weakref.ref(y)
    y.register_hook(lambda _: touch(reference(), token))


@freed
def hook_was_removed(token):
    y = leaf() * 2
    y.register_hook(lambda _: touch(y, token)).remove()


@freed
def node_hook_was_removed(token):
    y = leaf() * 2
    y.grad_fn.register_hook(lambda *_: touch(y, token)).remove()


@freed
def pack_hook_returns_the_tensor_but_backward_ran(token):
    with saved_tensors_hooks(lambda tensor: (tensor, token), lambda pair: pair[0]):
        y = leaf().exp()
    y.sum().backward()


@freed
def hook_of_a_view_sees_its_base(token):
    whole = leaf(8) * 1
    whole[2:].register_hook(sees(whole, token))


@freed
def linear_loss_with_second_order_backward(token):
    w = leaf()
    w.token = token
    (w * 2).sum().backward(create_graph=True)


@freed
def gradient_was_taken_away(token):
    w = leaf()
    w.token = token
    (w * w).sum().backward(create_graph=True)
    w.grad = None
