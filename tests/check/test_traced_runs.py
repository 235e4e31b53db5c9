"""Of the cycles that the traced runs left, the shape is known and the leak that they belong to."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from leaklab.check.traced_runs import _name_as_before, _visible_parts
from leaklab.explain.cycles.cycles import CYCLE_ROOT, Orphans
from leaklab.model import RootPath
from leaklab.model.paths import CycleCertainty


def parts_of(*things: object) -> list[list[int]]:
    """Return the visible parts as places among *things*."""
    places = {id(thing): place for place, thing in enumerate(things)}
    return sorted([places[id(thing)] for thing in part] for part in _visible_parts(list(things)))


def test_a_cycle_that_python_shows_is_one_part():
    first, second = [], {}
    first.append(second)
    second["back"] = first
    assert parts_of(first, second) == [[0, 1]]


def test_a_cycle_through_a_graph_is_cut_where_nodes_begin_and_end():
    center = torch.ones(2, requires_grad=True)
    center.distance = (center * 2).sum()
    attributes, total = center.__dict__, center.distance.grad_fn
    product = total.next_functions[0][0]
    leaf = product.next_functions[0][0]
    whole = parts_of(center, attributes, center.distance, total, product, leaf)
    turned = parts_of(attributes, center.distance, total, product, leaf, center)
    del center.distance
    assert whole == [[0, 1, 2], [3], [4], [5]]
    assert turned == [[2], [3], [4], [5, 0, 1]]


def test_the_gradient_of_a_leaf_is_shown():
    weight = torch.ones(2, requires_grad=True)
    (gradient,) = torch.autograd.grad(weight.pow(3).sum(), [weight], create_graph=True)
    weight.grad = gradient
    found = parts_of(weight, gradient, gradient.grad_fn)
    weight.grad = None
    assert found == [[0, 1], [2]]


MODEL, GRADIENT = 7, 8
"""Addresses of types."""


def cycle(fingerprint: str, members: list[int], stage: CycleCertainty = CycleCertainty.PROVED) -> Orphans:
    return Orphans([], RootPath(CYCLE_ROOT, ()), stage, members=members, fingerprint=fingerprint)


def renamed(*cycles: Orphans) -> list[str]:
    """Vertices 0 and 1 are a counted run's model and gradient, 2 and 3 those of a traced run, 4 is another model."""
    kinds = np.array([MODEL, GRADIENT, MODEL, GRADIENT, MODEL])
    view = SimpleNamespace(kinds=kinds, birth_run=np.array([0, 0, 5, 5, 5]))
    _name_as_before(view, cycles, 5, {"leak"})
    return [one.fingerprint for one in cycles]


def test_objects_of_the_same_types_that_another_cycle_keeps_in_the_traced_runs_are_the_same_leak():
    assert renamed(cycle("leak", [0, 1]), cycle("other", [2, 3])) == ["", "leak"]


def test_a_leak_that_is_found_again_keeps_its_own_cycles():
    assert renamed(cycle("leak", [0, 1, 2, 3]), cycle("other", [4])) == ["leak", "other"]


def test_other_types_or_another_stage_are_another_leak():
    others = (cycle("other", [4]), cycle("garbage", [2, 3], CycleCertainty.GARBAGE))
    assert renamed(cycle("leak", [0, 1]), *others)[1:] == ["other", "garbage"]
