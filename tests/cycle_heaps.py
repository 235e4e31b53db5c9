"""Heaps full of garbage of many kinds, and what leaklab says of each piece; for processes of their own."""

from __future__ import annotations

import ctypes
import gc
import warnings
import weakref

import numpy as np
import torch
from cycle_shapes import COLLECTED, FREED, IMMORTAL, leaf, sees, touch
from explain_builders import births_of
from torch.utils.checkpoint import checkpoint

from leaklab.explain.cycles.cycles import group_orphans
from leaklab.heap.borrow import heap_view


class Token:
    """What every program is given."""


class Made:
    """Tokens given to programs that have run and ended."""

    def __init__(self, programs):
        self.references = {}
        for name, make in programs.items():
            token = Token()
            self.references[name] = weakref.ref(token)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                make(token)
            del token

    def alive(self):
        return {name for name, reference in self.references.items() if reference() is not None}

    def orphans(self, variables=None):
        """Look at the whole heap once; return by name what keeps each token that no root reaches."""
        names = sorted(self.alive())
        tokens = [self.references[name]() for name in names]
        births = births_of([tokens, []])
        addresses = list(map(id, tokens))
        tokens.clear()
        objects = gc.get_objects()
        try:
            with heap_view(objects, births, variables or {}) as view:
                vertices = [view.index.vertex_of(address) for address in addresses]
                found = group_orphans(view, [vertex for vertex in vertices if not view.is_reached(vertex)])
                return {
                    name: orphans
                    for orphans in found
                    for name, vertex in zip(names, vertices, strict=True)
                    if vertex in orphans.members
                }, view.notes
        finally:
            objects.clear()


def collected_heap():
    """All programs ran, a collection ran: who is alive, and why."""
    gc.collect()
    made = Made(IMMORTAL | COLLECTED | FREED)
    gc.collect()
    alive = made.alive()
    found, notes = made.orphans()
    return alive, found, notes


def waiting_heap():
    """The programs whose garbage a collection frees ran while the collector is off."""
    gc.collect()
    gc.disable()
    try:
        made = Made(COLLECTED | FREED)
        alive = made.alive()
        found, _notes = made.orphans()
    finally:
        gc.enable()
    gc.collect()
    return alive, found, made.alive()


def live_node_hooked_over_another_graph(token):
    live, other = leaf() * 2, (leaf() * 3).sum()
    other.token = token
    live.grad_fn.register_hook(sees(other))
    return live.sum()


def live_tensor_hooked_over_another_graph(token):
    live, other = leaf() * 2, (leaf() * 3).sum()
    other.token = token
    live.register_hook(sees(other))
    return live.sum()


def checkpointed(token):
    return checkpoint(lambda x: (x * 2).exp() if token else x, leaf(), use_reentrant=False)


def held_by_a_c_array(token):
    array = np.empty(1, object)
    array[0] = token
    return torch.ones(1), array


def ring_held_from_c_alone(token):
    """Keep a ring of two lists with one reference that only C has; return how to let go of it."""
    ring = [token]
    ring.append([ring])
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(ring))
    address = id(ring)
    return lambda: ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(address))


def graph_held_from_c_alone(token):
    result = (leaf() * 2).sum()
    result.token = token
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(result))
    address = id(result)
    return lambda: ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(address))


def hooked(token):
    y = leaf() * 2
    y.register_hook(lambda _: touch(y, token))
    return y


def second_order(token):
    w = leaf()
    w.token = token
    (w * w).sum().backward(create_graph=True)
    return w


def suspended(token):
    return (value for value in [token])


def loss_kept(token):
    weight = leaf()
    weight.token = token
    return (weight * weight).sum()


def node_kept(token):
    y = leaf() * 2
    y.grad_fn.register_hook(sees(token))
    return y.grad_fn


def handle_kept(token):
    y = leaf() * 2
    return [y, y.register_hook(sees(token))]


def views_kept(token):
    whole = torch.ones(8)
    whole.token = token
    return [whole[:2], whole[2:]]


def packed_on_purpose(token):
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: (tensor.detach(), token), lambda pair: pair[0]):
        return leaf().exp()


def cached_by_a_live_module(token):
    module = torch.nn.Linear(3, 3)
    module.token = token
    module.last = module(torch.ones(1, 3))
    module.last.register_hook(lambda _: module and None)
    return module


def gradients_accumulated(token):
    p = leaf()
    p.register_post_accumulate_grad_hook(lambda _: touch(p, token))
    return p


def ring_of_a_variable(token):
    ring = [token]
    ring.append(ring)
    return ring


REACHED = {
    make.__name__: make
    for make in (
        live_node_hooked_over_another_graph,
        checkpointed,
        held_by_a_c_array,
        hooked,
        second_order,
        suspended,
        loss_kept,
        node_kept,
        handle_kept,
        views_kept,
        packed_on_purpose,
        cached_by_a_live_module,
        gradients_accumulated,
        ring_of_a_variable,
    )
}


def clean_heap():
    """Programs that leave something alive for a reason: what they return is a variable, or C holds it."""
    gc.collect()
    kept = {}

    def keeping(name, make):
        return lambda token: kept.__setitem__(name, make(token))

    made = Made({name: keeping(name, make) for name, make in REACHED.items()})
    unseen = Made({"tensor hook": keeping("tensor hook", live_tensor_hooked_over_another_graph)})
    c_held = {}
    held = Made(
        {
            "ring": lambda token: c_held.update(ring=ring_held_from_c_alone(token)),
            "graph": lambda token: c_held.update(graph=graph_held_from_c_alone(token)),
        }
    )
    gc.collect()
    made.references |= unseen.references | held.references
    found, _notes = made.orphans(kept)
    alive = made.alive()
    return alive, found
