"""The backward search from one object finds the same path as the graph of the whole heap, or says that it cannot."""

from __future__ import annotations

import collections
import ctypes
import functools
import gc
import random
import sys
import types
import weakref

import numpy as np
import pytest
import torch

from leaklab.heap.borrow import heap_view, view_for_path
from leaklab.heap.view import BASELINE, Births
from leaklab.runtime.gc_control import gc_paused

NOBODY = Births(np.empty(0, np.int64), np.empty(0, np.int64), 1)


class Thing:
    """Holds its things in attributes."""


class Slotted:
    __slots__ = ("__weakref__", "first", "second")


def closure_over(things):
    def function():
        return things

    return function


def graph_of(things):
    """Return a loss whose graph has saved every tensor of *things*, and calls hooks that hold the others."""
    weight = torch.ones(2, requires_grad=True)
    loss = weight.sum()
    for thing in things:
        if isinstance(thing, torch.Tensor):
            loss = loss + (weight * thing.detach()).sum() + (weight * thing).sum()
        else:
            loss.register_hook(lambda gradient, thing=thing: None)
    return loss


def as_instance(things, *, look):
    thing = Thing()
    for number, held in enumerate(things):
        setattr(thing, f"held_{number}", held)
    if look:
        vars(thing)
    return thing


def in_slots(things):
    thing = Slotted()
    thing.first, thing.second = things[0], things[-1]
    return thing


def as_array(things):
    array = np.empty(len(things), dtype=object)
    for number, held in enumerate(things):
        array[number] = held
    return array


def running_generator(things):
    def produce():
        held = list(things)
        yield 1
        yield held

    generator = produce()
    next(generator)
    return generator


def as_tensor(things):
    tensor = torch.ones(2)
    tensor.held = things[0]
    return tensor


HOLDERS = {
    "list": list,
    "dict": lambda things: {f"key {number}": held for number, held in enumerate(things)},
    "tuple": tuple,
    "deque": collections.deque,
    "instance": lambda things: as_instance(things, look=False),
    "looked at": lambda things: as_instance(things, look=True),
    "slots": in_slots,
    "closure": closure_over,
    "partial": lambda things: functools.partial(print, *things),
    "method": lambda things: types.MethodType(print, things[0]),
    "generator": running_generator,
    "array": as_array,
    "array in a dict": lambda things: {"array": as_array(things)},
    "graph": graph_of,
    "tensor": as_tensor,
    "weak": lambda things: [weakref.ref(held) for held in things if type(held) in (Thing, Slotted, torch.Tensor)],
}


def random_program(text):
    """Return variables that hold a random graph of twelve objects, made from *text*, and the addresses of these."""
    chance = random.Random(text)
    made = [torch.ones(2), Thing()]
    for _ in range(12):
        kind = chance.choice(list(HOLDERS))
        made.append(HOLDERS[kind](chance.sample(made, min(len(made), chance.choice((1, 1, 2, 3))))))
    for _ in range(chance.randrange(3)):
        thing = Thing()
        thing.back = chance.choice(made)
        if type(made[1]) is Thing:
            made[1].cycle = thing
        made.append(thing)
    variables = {
        f"variable_{number}": chance.choice(made[len(made) // 2 :]) for number in range(chance.choice((1, 2, 4)))
    }
    module = types.ModuleType("some_module_of_tests")
    module.kept = chance.choice(made)
    addresses = [id(thing) for thing in made if gc.is_tracked(thing)]
    return variables, module, addresses


def full_paths(variables, addresses):
    """Return for each address that a root reaches its best path in the graph of the whole heap."""
    objects = gc.get_objects()
    found = {}
    try:
        with heap_view(objects, NOBODY, variables, [objects, addresses]) as view:
            for address in addresses:
                vertex = view.index.vertex_of(address)
                if vertex >= 0 and view.is_reached(vertex):
                    found[address] = str(view.describe(vertex).path)
    finally:
        objects.clear()
    return found


def quick_path(variables, address, own):
    """Return the best path, and whether it was found without the graph of the whole heap."""
    objects = gc.get_objects()
    n_objects = len(objects)
    try:
        with view_for_path(objects, address, variables, [objects, own]) as view:
            assert view.birth_run.max() == BASELINE
            return str(view.describe(view.index.vertex_of(address)).path), view.n_heap < n_objects // 2
    finally:
        objects.clear()


@pytest.mark.parametrize("text", [f"graph {number}" for number in range(5)])
def test_the_path_is_that_of_the_whole_heap(text, monkeypatch):
    variables, module, addresses = random_program(text)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    gc.collect()
    with gc_paused():  # a collection may put the objects into another order, and ties go by that
        expected = full_paths(variables, addresses)
        assert expected
        for address, path in random.Random(text).sample(list(expected.items()), min(len(expected), 5)):
            assert quick_path(variables, address, addresses)[0] == path


@pytest.mark.untraced  # a tracer holds on to what running functions hold: references that the search cannot see
def test_containers_instances_closures_and_running_functions_need_no_graph_of_the_heap():
    def answers(target):
        box = as_instance([[{"key": (1, target)}]], look=False)
        variables = {"box": box, "call": closure_over(in_slots([box]))}
        del box
        return quick_path(variables, id(target), [])

    path, is_quickly_found = answers(torch.ones(2))
    assert "notebook variable: box" in path
    assert is_quickly_found


@pytest.mark.parametrize("kind", ["array", "array in a dict", "graph"])
def test_what_has_a_holder_that_the_collector_does_not_report_needs_it(kind):
    target = torch.ones(2)
    variables = {"held": HOLDERS[kind]([target])}
    path, is_quickly_found = quick_path(variables, id(target), [])
    assert path.startswith("notebook variable: held") or "target" in path
    assert not is_quickly_found


def test_an_object_that_c_code_holds_as_well_needs_it():
    target = Thing()
    variables = {"held": [target]}
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(target))
    try:
        assert not quick_path(variables, id(target), [])[1]
    finally:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(target))
    assert quick_path(variables, id(target), [])[1]
