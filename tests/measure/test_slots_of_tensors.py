"""Tensors that are concatenated with themselves are followed in their slot; fresh ones are not."""

from __future__ import annotations

import contextvars

import numpy as np
import pytest
import torch

from leaklab.measure.checkpoint import take_checkpoint
from leaklab.measure.slots import find_slots, grown_slots
from leaklab.runtime.addresses import kinds_of


class Holder:
    """One reference, to be followed."""

    __slots__ = ("content",)

    def __init__(self, content):
        self.content = content


def sizes_while(holder, grow):
    moments = []
    for _ in range(3):
        objects: list[object] = [holder]
        moments.append(find_slots(objects, kinds_of(objects)))
        grow(holder)
    return [slot.sizes for slot in grown_slots(moments)]


def behind(holder):
    holder.content = torch.cat([holder.content, torch.ones(25)])


def before(holder):
    holder.content = torch.cat([torch.ones(25), holder.content])


def fresh(holder):
    holder.content = torch.rand(len(holder.content) + 25)


def shrinks(holder):
    holder.content = holder.content[:-25].clone()


def replaced_by_same_size(holder):
    holder.content = holder.content.clone()


def noise():
    return torch.rand(1024, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("grow", [behind, before])
def test_a_tensor_concatenated_with_itself_grows(grow):
    assert sizes_while(Holder(noise()), grow) == [(4096, 4196, 4296)]


@pytest.mark.parametrize("grow", [fresh, shrinks, replaced_by_same_size])
def test_a_tensor_made_afresh_or_smaller_does_not(grow):
    torch.manual_seed(3)
    assert sizes_while(Holder(torch.rand(1024)), grow) == []


def test_positions_counted_further_are_no_accumulation():
    def count_on(holder):
        holder.content = torch.arange(len(holder.content) + 25)

    assert sizes_while(Holder(torch.arange(1024)), count_on) == []


def test_a_tensor_whose_storage_grows_under_it_is_neither_read_nor_followed():
    def resize(holder):
        storage = holder.content.untyped_storage()
        storage.resize_(storage.nbytes() + 100)

    tensor = torch.ones(2048)
    tensor.untyped_storage().resize_(4096)
    assert sizes_while(Holder(tensor), resize) == []


@pytest.mark.parametrize(
    "tensor",
    [
        torch.eye(400).to_sparse(),
        torch.ones(50, 50).t(),
        torch.nn.Parameter(torch.ones(2000)),
        torch.ones(2000)[500:],
        torch.ones(1).expand(5000),
    ],
    ids=["sparse", "transposed", "parameter", "view", "expanded"],
)
def test_every_kind_of_tensor_can_be_looked_at(tensor):
    assert sizes_while(Holder(tensor), lambda _holder: None) == []


def test_a_checkpoint_counts_each_node_once():
    weight = torch.ones(100, requires_grad=True)
    loss = (weight * 2).sum()
    checkpoint, *_ = take_checkpoint(1, [weight, weight.detach(), loss])
    assert checkpoint.graph_nodes == 3  # sum, product, the leaf's own


def remember(number, memo={}, log=[]):  # noqa: B006 - as in many programs
    memo[number] = number


PAIR = ({}, 3)


@pytest.mark.parametrize(
    ("owner", "table"), [(remember.__defaults__, remember.__defaults__[0]), (PAIR, PAIR[0])], ids=["default", "tuple"]
)
def test_a_table_of_plain_data_in_a_tuple_is_followed_though_no_collector_lists_it(owner, table):
    moments = []
    for moment in range(3):
        objects: list[object] = [owner]
        table.update((10 * moment + step, 0.5) for step in range(10))
        moments.append(find_slots(objects, kinds_of(objects)))
    assert [slot.sizes for slot in grown_slots(moments)] == [(10, 20, 30)]


@pytest.mark.parametrize("n_others", [0, 40])  # one node of the mapping of a context, or several
@pytest.mark.parametrize(("start", "add", "sizes"), [
    ((1,) * 9, lambda value: (*value, 1), (9, 10, 11)),
    ("a long text " * 100, lambda value: value + "and so on " * 20, (1200, 1400, 1600)),
])  # fmt: skip
def test_the_value_of_a_context_variable_is_followed_though_each_change_makes_the_nodes_anew(
    start, add, sizes, n_others
):
    def grow(_holder):
        trail.set(add(trail.get()))

    def followed():
        trail.set(start)
        for number, other in enumerate(others):
            other.set((number,) * 9)
        return sizes_while(Holder(None), grow)

    trail = contextvars.ContextVar("trail")
    others = [contextvars.ContextVar(str(number)) for number in range(n_others)]
    assert contextvars.copy_context().run(followed) == [sizes]


class State:
    """Made anew by each run."""

    def __init__(self, history):
        self.history = history


@pytest.mark.parametrize(("add", "sizes"), [
    (lambda history, n: (*history, {"step": n}), (9, 10, 11)),
    (lambda history, n: (*history[1:], n), None),  # a window
    (lambda history, n: tuple(range(n, n + 9 + n)), None),  # computed afresh
])  # fmt: skip
def test_an_object_that_takes_the_place_of_the_like_before_has_its_slots_in_the_name_of_its_holder(add, sizes):
    variables = {"other": 1, "state": State(tuple({"step": n} for n in range(9)))}
    moments = []
    for number in range(3):
        objects: list[object] = [variables, variables["state"]]
        fresh = np.array([id(variables["state"])], np.int64)
        moments.append(find_slots(objects, kinds_of(objects), fresh=fresh))
        before = variables["state"]
        variables["state"] = State(add(before.history, number))
        old.append(before)
    assert [slot.sizes for slot in grown_slots(moments)] == ([] if sizes is None else [sizes])


old: list[State] = []  # what is gone would give its address to the next


def test_an_attribute_that_a_look_moves_into_the_dict_of_its_instance_stays_the_same_slot():
    owner = State("a long text " * 100)
    objects: list[object] = [owner]
    before = find_slots(objects, kinds_of(objects))
    own = vars(owner)  # from now on CPython 3.11 and 3.12 keep it there
    objects = [owner, own]
    after = find_slots(objects, kinds_of(objects))
    moved = before.moved(before, after)
    assert 1200 in moved.as_if_grown(after, after).sizes.tolist()
    (row,) = np.flatnonzero(moved.sizes == 1200).tolist()
    assert moved.keys[row] in after.keys
