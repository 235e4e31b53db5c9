"""The line that closes a cycle is named: the one after which references lead back to where they began."""

from __future__ import annotations

import copy
import gc
import inspect
import weakref
from itertools import pairwise

import pytest
import torch

from leaklab.lines.cycle import ClosingWatch, CycleShape, CycleStep, is_closed

pytestmark = pytest.mark.untraced

HERE = __name__
LINEAR = "torch.nn.modules.linear.Linear"
LOST: list[weakref.ref] = []


def whose(filename: str) -> bool:
    return filename == __file__


class Node:
    def __init__(self):
        self.child = self.parent = self.callback = None

    def greet(self):
        return 1


def ring(*kinds: str, born_at=frozenset()) -> CycleShape:
    return CycleShape("print", tuple(map(CycleStep, kinds)), is_ring=True, born_at=born_at)


NODE = f"{HERE}.Node"


def watched(function, *shapes: CycleShape, born_in: int, n_runs: int = 1) -> ClosingWatch:
    """Run *function* under a watch; objects are born in its line *born_in*, counted from its ``def``."""
    born_at = frozenset({(__file__, inspect.getsourcelines(function)[1] + born_in)})
    watch = ClosingWatch([CycleShape(s.fingerprint, s.stops, s.is_ring, born_at) for s in shapes], whose)
    gc.freeze()  # as while a baseline is: only what is younger is listed
    try:
        for _ in range(n_runs):
            with watch.installed():
                function()
    finally:
        gc.unfreeze()
        gc.collect()
    return watch


def closing_lines(function, *shapes: CycleShape, born_in: int, n_runs: int = 1) -> list[int]:
    first = inspect.getsourcelines(function)[1]
    found = watched(function, *shapes, born_in=born_in, n_runs=n_runs).lines.get("print", {})
    return sorted(number - first for _file, number, _name in found)


def by_an_attribute():
    top, leaf = Node(), Node()
    leaf.parent = top
    top.child = leaf
    top.callback = print


def by_a_dict_below_an_attribute():
    node = Node()
    node.child = {}
    node.child["me"] = node


def by_a_closure():
    node = Node()

    def tell():
        return node

    node.callback = tell


def by_a_method():
    node = Node()
    node.callback = node.greet


def by_a_hook_of_a_part():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    seen = []

    def spy(module, args, output):
        seen.append(model)

    model[0].register_forward_hook(spy)
    seen.clear()


def by_a_variable_of_a_frame():
    try:
        next(iter(()))
    except StopIteration as error:
        kept = error
    return kept is None


CLOSED = {
    by_an_attribute: (1, 3, ring(NODE, NODE)),
    by_a_dict_below_an_attribute: (1, 3, ring(NODE, "dict")),
    by_a_closure: (1, 6, ring(NODE, "function", "tuple", "cell")),
    by_a_method: (1, 2, ring(NODE, "method")),
    by_a_hook_of_a_part: (
        1,
        7,
        ring(
            "torch.nn.modules.container.Sequential", "dict", LINEAR, "collections.OrderedDict", "function", "tuple",
            "cell",
        ),
    ),
    by_a_variable_of_a_frame: (
        2,
        4,
        CycleShape(
            "print", (CycleStep("StopIteration"), CycleStep("traceback"), CycleStep("frame", frozenset({"kept"}))),
            is_ring=True, born_at=frozenset(),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("function", CLOSED, ids=lambda function: function.__name__)
def test_the_line_that_closes_the_cycle_is_named(function):
    born_in, closed_in, shape = CLOSED[function]
    assert closing_lines(function, shape, born_in=born_in) == [closed_in]


def test_where_the_line_that_makes_is_another_one_the_second_run_looks_after_every_line():
    shape = ring(NODE, NODE)
    assert closing_lines(by_an_attribute, shape, born_in=90) == []
    assert closing_lines(by_an_attribute, shape, born_in=90, n_runs=2) == [3]


class Copied:
    """Makes its own copies, each of which refers to itself."""

    def __init__(self):
        self.me = self

    def __deepcopy__(self, memo):
        return Copied()


def has_one_copied():
    original = Copied()
    original.me = None
    copy.deepcopy(original)


def test_a_cycle_closed_within_a_copy_has_the_line_that_asked_for_it_beside_the_one_that_closed_it():
    made = inspect.getsourcelines(Copied.__deepcopy__)[1] + 1
    shape = ring(f"{HERE}.Copied", born_at=frozenset({(__file__, made)}))
    watch = ClosingWatch([shape], whose)
    with watch.installed():
        has_one_copied()
    assert [line[1] for line in watch.lines["print"]] == [inspect.getsourcelines(Copied.__init__)[1] + 1]
    assert [line[1] for line in watch.asked["print"]] == [inspect.getsourcelines(has_one_copied)[1] + 3]


def open_chain():
    weight, loss = torch.ones(2, requires_grad=True), torch.ones(1)
    weight.name_of_it = 1
    weight.loss = loss


def test_of_a_cycle_that_goes_on_in_autograd_the_part_that_python_shows_is_watched():
    tensors = CycleShape(
        "print", (CycleStep("torch.Tensor"), CycleStep("torch.Tensor")), is_ring=False, born_at=frozenset()
    )
    assert closing_lines(open_chain, tensors, born_in=1) == [3]


def second_order():
    weight = torch.nn.Parameter(torch.ones(2))
    loss = weight.pow(3).sum()
    (gradient,) = torch.autograd.grad(loss, [weight], create_graph=True)
    weight.grad = gradient
    weight.grad = None


def test_a_gradient_that_is_stored_closes_its_cycle():
    chain = CycleShape(
        "print",
        (CycleStep("torch.nn.parameter.Parameter"), CycleStep("torch.Tensor")),
        is_ring=False,
        born_at=frozenset(),
    )
    assert closing_lines(second_order, chain, born_in=1) == [4]


class Loud(list):
    """Takes no weak references from outside, as lists do not; its content does."""

    __slots__ = ()


def loses_what_it_made():
    things = Loud([Node()])
    LOST.append(weakref.ref(things[0]))
    things = None
    LOST.append(LOST[-1]())
    assert things is None


def test_what_takes_no_weak_reference_is_held_for_one_line_at_most():
    LOST.clear()
    watched(loses_what_it_made, ring(f"{HERE}.Loud", NODE), born_in=1)
    assert LOST[1] is None
    assert LOST[0]() is None


def test_nothing_is_held_once_the_watch_is_over():
    n_before = n_nodes()
    watch = watched(by_an_attribute, ring(NODE, LINEAR), born_in=1)
    assert watch.lines == {}
    assert n_nodes() == n_before


def n_nodes() -> int:
    return sum(type(thing) is Node for thing in gc.get_objects())


ONWARD = CycleShape("print", (CycleStep(NODE), CycleStep(NODE)), is_ring=False, born_at=frozenset())


def links(*nodes: Node) -> Node:
    for one, other in pairwise((*nodes, nodes[0])):
        one.child = other
    return nodes[0]


CHAINS = {
    "a ring of two": (links(Node(), Node()), ring(NODE, NODE), True),
    "a ring of three is none of two": (links(Node(), Node(), Node()), ring(NODE, NODE), False),
    "a ring of three": (links(Node(), Node(), Node()), ring(NODE, NODE, NODE), True),
    "a type that is missing": (links(Node()), ring(NODE, "list"), False),
    "references that only lead on": (links(Node(), Node(), Node()), ONWARD, True),
}


@pytest.mark.parametrize("name", CHAINS)
def test_whether_a_cycle_of_a_shape_begins_at_an_object(name):
    first, shape, expected = CHAINS[name]
    assert is_closed(shape, first) is expected


def test_functions_do_not_lead_on_through_their_global_variables():
    assert not is_closed(ring("function", "dict"), links)
