"""One holder of every kind the collector hides something of: each makes a namespace entry that leads to a token."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook


class Token:
    """What each holder is to lead to."""


class Keeps(torch.autograd.Function):
    """Puts a token on its ctx."""

    @staticmethod
    def forward(ctx, tensor, token):
        ctx.extra = token
        return tensor * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


@dataclass
class Edge:
    """A holder that was made.

    Attributes:
        holder: Becomes a variable of the namespace; None where the interpreter or a library holds the token.
        release: Undo what the building did to the process.
    """

    holder: Any
    release: list[Any] = field(default_factory=list)


def leaf():
    return torch.ones(3, requires_grad=True)


def sees(token):
    """Make a hook that keeps *token* in its closure."""
    return lambda *_: token


def grad_fn(token):
    return Edge(Keeps.apply(leaf(), token))


def next_functions(token):
    return Edge((Keeps.apply(leaf(), token) * 3).sum())


def packed(token):
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: (tensor.detach(), token), lambda pair: pair[0]):
        return Edge(leaf().exp())


def unpack_hook(token):
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: tensor.detach(), lambda tensor: tensor if token else None
    ):
        return Edge(leaf().exp())


def saved_tensor(token):
    weight = leaf()
    weight.note = token
    return Edge((weight * weight).sum())


def saved_by_function(token):
    class Saves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor):
            ctx.save_for_backward(tensor)
            return tensor * 2

    weight = leaf() * 1
    weight.note = token
    return Edge(Saves.apply(weight))


def leaf_of_graph(token):
    weight = leaf()
    weight.note = token
    return Edge((weight + 1).sum())


def gradient(token):
    weight = leaf()
    weight.sum().backward()
    weight.grad.note = token
    return Edge(weight)


def base(token):
    whole = torch.ones(8)
    whole.note = token
    return Edge(whole[2:])


def leaf_hook(token):
    weight = leaf()
    weight.register_hook(sees(token))
    return Edge(weight)


def result_hook(token):
    result = leaf() * 2
    result.register_hook(sees(token))
    return Edge(result)


def post_accumulate_hook(token):
    weight = leaf()
    weight.register_post_accumulate_grad_hook(sees(token))
    return Edge(weight)


def node_hook(token):
    result = leaf() * 2
    result.grad_fn.register_hook(sees(token))
    return Edge(result.sum())


def node_prehook(token):
    result = leaf() * 2
    result.grad_fn.register_prehook(sees(token))
    return Edge(result.sum())


def hook_of_python_node(token):
    result = Keeps.apply(leaf(), None)
    result.grad_fn.register_hook(sees(token))
    return Edge(result)


def hook_of_accumulation(token):
    weight = leaf()
    accumulation = weight.expand_as(weight).grad_fn.next_functions[0][0]
    accumulation.register_hook(sees(token))
    return Edge([weight, accumulation])


def forward_hook(token):
    module = nn.Linear(2, 2)
    module.register_forward_hook(sees(token))
    return Edge(module)


def full_backward_hook(token):
    module = nn.Linear(2, 2)
    module.register_full_backward_hook(sees(token))
    return Edge(module)


def state_dict_hook(token):
    module = nn.Linear(2, 2)
    module.register_state_dict_pre_hook(sees(token))
    return Edge(module)


def step_hook(token):
    optimizer = torch.optim.SGD([leaf()])
    optimizer.register_step_post_hook(sees(token))
    return Edge(optimizer)


def hook_of_all_modules(token):
    handle = nn.modules.module.register_module_forward_hook(sees(token))
    return Edge(None, [handle.remove])


def hook_of_all_optimizers(token):
    handle = register_optimizer_step_pre_hook(sees(token))
    return Edge(None, [handle.remove])


def object_array(token):
    inner, outer = np.empty(1, object), np.empty((2, 2), object)
    inner[0], outer[1, 0] = token, inner
    return Edge(outer)


def object_column(token):
    return Edge(pd.DataFrame({"number": [1], "model": pd.Series([token], dtype=object)}))


def other_threads_local(token):
    started, stop = threading.Event(), threading.Event()

    def wait(kept):
        started.set()
        stop.wait(60)
        return kept

    thread = threading.Thread(target=wait, args=(token,), name="keeper")
    thread.start()
    started.wait(60)
    return Edge(None, [stop.set, thread.join])


def other_threads_thread_local(token):
    local, started, stop = threading.local(), threading.Event(), threading.Event()

    def wait(box):
        local.kept = box.pop()
        started.set()
        stop.wait(60)

    thread = threading.Thread(target=wait, args=([token],))
    thread.start()
    started.wait(60)
    return Edge(local, [stop.set, thread.join])


def thread_local(token):
    local = threading.local()
    local.kept = token
    return Edge(local)


def produce(token):
    yield
    yield token


def generator(token):
    made = produce(token)
    next(made)
    return Edge(made)


async def wait_for(future, token):
    await future
    return token


async def produce_later(token):
    yield
    yield token


def coroutine(token):
    loop = asyncio.new_event_loop()
    made = wait_for(loop.create_future(), token)
    made.send(None)
    return Edge(made, [made.close, loop.close])


def asynchronous_generator(token):
    made = produce_later(token)
    with_first = made.__anext__()
    with contextlib.suppress(StopIteration):
        with_first.send(None)
    return Edge(made)


def task(token):
    loop = asyncio.new_event_loop()
    made = loop.create_task(wait_for(loop.create_future(), token))
    loop.run_until_complete(asyncio.sleep(0))

    def end():
        made.cancel()
        loop.run_until_complete(asyncio.wait([made]))
        loop.close()

    return Edge(made, [end])


VARIABLE: contextvars.ContextVar[object] = contextvars.ContextVar("kept")


def context_variable(token):
    before = VARIABLE.set(token)
    return Edge(None, [lambda: VARIABLE.reset(before)])


def stored_context(token):
    context = contextvars.copy_context()
    context.run(VARIABLE.set, token)
    return Edge(context)


def weakref_callback(token):
    target = Token()
    return Edge([target, weakref.ref(target, sees(token))])


def finalizer(token):
    target = Token()
    ending = weakref.finalize(target, sees(token))
    return Edge(target, [ending.detach])


def cached_result(token):
    cached = functools.lru_cache(maxsize=None)(lambda number: token)
    cached(1)
    cached.__wrapped__ = None
    return Edge(cached)


def traceback(token):
    def fail(kept):
        raise ValueError(str(type(kept)))

    try:
        fail(token)
    except ValueError as error:
        return Edge(error)


# builder: words that the path to the token must contain
EDGES = {
    grad_fn: (".grad_fn", ".extra"),
    next_functions: (".next_functions[0][0]", ".extra"),
    packed: ("saved for backward as 'result'", "[1]"),
    unpack_hook: ("unpack hook of 'result'", "closure variable 'token'"),
    saved_tensor: (".note",),
    saved_by_function: ("saved for backward as tensors[0]", ".note"),
    leaf_of_graph: (".variable", ".note"),
    gradient: (".grad", ".note"),
    base: ("._base", ".note"),
    leaf_hook: ("._backward_hooks", "closure variable 'token'"),
    result_hook: ("._backward_hooks", "closure variable 'token'"),
    post_accumulate_hook: ("._post_accumulate_grad_hooks", "closure variable 'token'"),
    node_hook: (".grad_fn", "post_hooks of the node", "closure variable 'token'"),
    node_prehook: (".grad_fn", "pre_hooks of the node", "closure variable 'token'"),
    hook_of_python_node: ("post_hooks of the node",),
    hook_of_accumulation: ("post_hooks of the node",),
    forward_hook: ("._forward_hooks",),
    full_backward_hook: ("._backward_hooks",),
    state_dict_hook: ("._state_dict_pre_hooks",),
    step_hook: ("._optimizer_step_post_hooks",),
    hook_of_all_modules: ("torch.nn.modules.module._global_forward_hooks",),
    hook_of_all_optimizers: ("torch.optim.optimizer._global_optimizer_pre_hooks",),
    object_array: ("[1, 0]", "[0]"),
    object_column: ("[0, 0]",),
    other_threads_local: ("thread 'keeper'", "'kept' of wait()"),
    other_threads_thread_local: ("values of each thread", "['kept']"),
    thread_local: ("values of each thread", "['kept']"),
    generator: ("local 'token' of produce()",),
    coroutine: ("local 'token' of wait_for()",),
    asynchronous_generator: ("local 'token' of produce_later()",),
    task: ("local 'token' of wait_for()",),
    context_variable: ("context variable", "'kept'"),
    stored_context: ("'kept'",),
    weakref_callback: ("weakref callback",),
    finalizer: ("weakref.finalize",),
    cached_result: ("cached result",),
    traceback: (".__traceback__", "local "),
}
