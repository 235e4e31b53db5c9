"""Cutting immortal cycles on request: what comes back, what stays, what is refused."""

from __future__ import annotations

import gc
import warnings
import weakref

import pytest
import torch
from explain_builders import births_of
from torch import nn

from leaklab import cut_cycles
from leaklab.errors import LeaklabError
from leaklab.explain.cycles.cycles import group_orphans
from leaklab.heap.borrow import heap_view


class Token:
    """Tells by its death that what held it is gone."""


class Outside:
    """Is referred to from a cycle, and from a variable."""


def hooked(outside):
    y = torch.ones(1000, requires_grad=True) * 2
    y.token, y.outside = Token(), outside
    y.register_hook(lambda _: y.cos_of_it and None)
    y.cos_of_it = y.detach().cos()
    return weakref.ref(y.token)


def second_order():
    model = nn.Sequential(nn.Linear(20, 20), nn.Softsign(), nn.Linear(20, 1))
    model[0].weight.token = Token()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model(torch.ones(5, 20)).sinh().sum().backward(create_graph=True)
    return weakref.ref(model[0].weight.token)


def fingerprints_of(tokens):
    """Return by the fingerprint of the cycle that keeps it, as a report would tell it."""
    things = [token() for token in tokens]
    births, addresses = births_of([things, []]), list(map(id, things))
    things.clear()
    objects = gc.get_objects()
    try:
        with heap_view(objects, births, {}) as view:
            vertices = [view.index.vertex_of(address) for address in addresses]
            groups = group_orphans(view, vertices)
            return [next(group.fingerprint for group in groups if vertex in group.members) for vertex in vertices]
    finally:
        objects.clear()


@pytest.fixture(scope="module")
def cut():
    """Cycles of two kinds, one of them many tangled ones; each kind is cut by its fingerprint."""
    gc.collect()
    outside = Outside()
    hooks, model = [hooked(outside) for _ in range(5)], second_order()
    gc.collect()
    before = [token() is not None for token in (*hooks, model)]
    of_hooks, of_model = fingerprints_of([hooks[0], model])
    first = cut_cycles(of_hooks)
    between = [token() is not None for token in (*hooks, model)]
    second = cut_cycles(of_model)
    after = [token() is not None for token in (*hooks, model)]
    return (before, between, after), (first, second), of_hooks, outside


def test_what_no_collection_frees_is_freed_and_only_the_kind_asked_for(cut):
    (before, between, after), _results, _fingerprint, _outside = cut
    assert before == [True] * 6
    assert between == [False] * 5 + [True]
    assert after == [False] * 6


def test_what_came_back_is_counted(cut):
    _alive, (hooks, model), _fingerprint, _outside = cut
    assert (hooks.n_cycles, hooks.n_references, hooks.n_left) == (5, 5, 0)
    # The leaf, the result and its cosine, 1,000 numbers of 4 bytes each; and the factor, which the node saved.
    assert hooks.n_bytes == 5 * (3 * 4000 + 8)
    assert hooks.n_objects >= 5 * 7  # three tensors, a dict of hooks, the hook, its cell, the token
    assert (model.n_cycles, model.n_references, model.n_left) == (1, 4, 0)  # a gradient for each of four parameters
    assert model.n_bytes >= 2 * 4 * (20 * 20 + 20 + 20 + 1)  # parameters and gradients


def test_what_is_outside_of_the_cycles_stays(cut):
    _alive, (hooks, model), _fingerprint, outside = cut
    assert hooks.is_outside_whole
    assert model.is_outside_whole
    assert vars(outside) == {}
    assert hooks.sentence.startswith("cut 5 immortal cycles open by removing 5 references: ")
    assert hooks.sentence.endswith("58.6 KiB of tensors came back, and nothing outside was touched")
    assert str(hooks) == hooks.sentence


def test_what_was_cut_is_not_found_again(cut):
    with pytest.raises(LeaklabError, match=f"there is no immortal cycle with the fingerprint '{cut[2]}' in the heap"):
        cut_cycles(cut[2])


def test_a_cycle_that_only_the_user_can_cut_is_refused():
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: (tensor,), lambda packed: packed[0]):
        output = torch.ones(3, requires_grad=True).sigmoid()
    output.token = Token()
    watch, again = weakref.ref(output.token), weakref.ref(output)
    del output
    (fingerprint,) = fingerprints_of([watch])
    with pytest.raises(LeaklabError, match="no hook, gradient, attribute or entry that could be removed"):
        cut_cycles(fingerprint)
    assert watch() is not None
    again().sum().backward()
    assert watch() is None


def test_a_fingerprint_that_is_no_text_is_refused():
    with pytest.raises(TypeError, match="cut_cycles needs the fingerprint of a leak, a str, not int"):
        cut_cycles(3)


def test_a_frozen_heap_is_refused():
    gc.freeze()
    try:
        with pytest.raises(LeaklabError, match=r"call gc\.unfreeze\(\) first"):
            cut_cycles()
    finally:
        gc.unfreeze()
