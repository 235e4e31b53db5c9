"""The dict of an instance: told from a dict that is an attribute, and no step of a path."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from explain_builders import real_view_of, vertex_of
from graph_builders import heaps, index_of
from hypothesis import given
from hypothesis import strategies as st

from leaklab.heap import shortest_paths as search_module
from leaklab.heap.index import build_index, own_dicts
from leaklab.heap.shortest_paths import path_to, search
from leaklab.runtime.addresses import KindTable, kinds_of


class Plain:
    def __init__(self):
        self.cache = {"a": 1}


class Slotted:
    __slots__ = ("__dict__", "first")


class Text(str):  # noqa: SLOT000 - it is to have a dict
    """Its dict lies behind the characters."""


class Meta(type):
    pass


class OfMeta(metaclass=Meta):
    pass


def own_dict_in(objects, thing):
    found = own_dicts(build_index(objects), KindTable(kinds_of(objects)))
    position = found[[id(one) for one in objects].index(id(thing))]
    return None if position < 0 else objects[position]


def test_the_dict_of_an_instance_is_found_once_somebody_has_looked_at_it():
    thing = Plain()
    own = vars(thing)
    assert own_dict_in([thing.cache, thing, own], thing) is own


def test_a_dict_that_is_the_only_attribute_of_an_instance_is_not_its_own():
    thing = Plain()
    assert own_dict_in([thing, thing.cache], thing) is None


@pytest.mark.parametrize("kind", [Slotted, type("Exc", (Exception,), {}), type("Li", (list,), {})])
def test_the_dict_of_an_instance_with_another_layout_is_found(kind):
    thing, other = kind(), {}
    thing.other = other
    own = vars(thing)
    assert own_dict_in([other, thing, own], thing) is own


@pytest.mark.parametrize("thing", [OfMeta, Plain, gc, own_dict_in, Text("x")], ids=lambda thing: type(thing).__name__)
def test_classes_modules_functions_and_objects_of_varying_size_are_left_out(thing):
    referents = [one for one in gc.get_referents(thing) if type(one) is dict]
    assert own_dict_in([thing, *referents], thing) is None


def search_of(heap, own):
    n, edges, price, blocked, roots = heap
    return search(
        index_of(n, edges),
        roots,
        vertex_cost=np.array(price),
        blocked_into=np.array(blocked),
        own_dicts=None if own is None else np.array(own),
    )


@st.composite
def split_heaps(draw):
    """Draw a heap, and the same heap in which vertices refer to what they refer to through a dict of their own."""
    n, edges, price, blocked, roots = draw(heaps())
    price = [max(cost, 1) for cost in price]
    split = draw(st.sets(st.integers(0, n - 1)))
    dict_of = {owner: n + number for number, owner in enumerate(sorted(split))}
    moved = {(dict_of.get(source, source), target) for source, target in edges} | set(dict_of.items())
    own = [dict_of.get(vertex, -1) for vertex in range(n)] + [-1] * len(split)
    more = len(split)
    return (
        (n, edges, price, blocked, roots),
        (n + more, moved, price + [1] * more, blocked + [False] * more, roots),
        own,
    )


@given(split_heaps())
def test_paths_are_the_same_whether_instances_have_dicts_or_not(drawn):
    without, with_dicts, own = drawn
    n = without[0]
    plain, split = search_of(without, None), search_of(with_dicts, own)
    assert split.cost[:n].tolist() == plain.cost.tolist()
    assert split.root_of[:n].tolist() == plain.root_of.tolist()
    for vertex in range(n):
        assert [step for step in path_to(split, vertex) if step < n] == path_to(plain, vertex)


@given(split_heaps())
def test_one_by_one_and_all_at_once_enter_the_same_dicts(drawn):
    _without, with_dicts, own = drawn
    trees = []
    for few in (10**9, -1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(search_module, "_FEW_EDGES", few)
            trees.append(search_of(with_dicts, own))
    assert trees[0].parent.tolist() == trees[1].parent.tolist()
    assert trees[0].root_of.tolist() == trees[1].root_of.tolist()
    assert trees[0].cost.tolist() == trees[1].cost.tolist()


@pytest.mark.parametrize("looked_at", [False, True])
def test_the_holder_is_the_same_before_and_after_somebody_looked_at_the_dict(looked_at):
    shared = []
    trainer, also = Plain(), {"copy": shared}
    trainer.history = shared
    if looked_at:
        vars(trainer)
    with real_view_of({"trainer": trainer, "also": also}) as view:
        assert view.describe(vertex_of(view, shared)).expressions[-1] == "trainer.history"


def test_a_dict_made_by_looking_at_an_old_instance_is_no_survivor():
    thing = Plain()
    thing.kept = [[]]
    own = vars(thing)
    with real_view_of({"thing": thing}, runs=[[own], [], [], []]) as view:
        assert not view.leaked[vertex_of(view, own)]
