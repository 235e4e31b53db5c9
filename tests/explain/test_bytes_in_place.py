"""What comes back of what grows in place: of containers, buffers, tensors and graphs whose sizes are known."""

from __future__ import annotations

import array
import collections
import gc
import io
import sys
import types

import numpy as np
import pytest
import torch
from explain_builders import Link, Node, view_of

from leaklab.check.growing_places import grown_graphs, grown_places
from leaklab.check.judging import Grown, Judgement
from leaklab.decide.growth import Growth, judge_checkpoints
from leaklab.explain.alive import retained as in_place
from leaklab.explain.leaks import holders as independent
from leaklab.explain.leaks.holders import RetainedBytes
from leaklab.measure.slots import GrownSlot
from leaklab.model import Outcome

AT_RUNS = (0, 8, 15, 24)
STEADY = Growth(Outcome.LEAK, 0.1, "steady")
NOTHING = Growth(Outcome.CLEAN, 0.0, "nothing")
N = 24
MB = 1_000_000
SIZES = (0, 800, 1500, 2400)


def grown(thing, per_run=1):
    """Say that *thing* got longer by so much in every run."""
    lengths = tuple(per_run * run for run in AT_RUNS)
    return Grown(id(thing), lengths, judge_checkpoints(lengths, AT_RUNS))


def slot_of(owner, thing, sizes, anchor=None):
    """Say that the slot of *owner* that holds *thing* grew; *anchor* refers to an owner the collector does not know."""
    slot = GrownSlot(id(anchor or owner), id(owner), id(thing), id(type(thing)), tuple(sizes))
    return Grown(slot, slot.sizes, judge_checkpoints(sizes, AT_RUNS))


def judgement(*containers, slots=(), graph=NOTHING):
    return Judgement(
        at_runs=AT_RUNS, kinds={}, remade={}, containers=containers, slots=tuple(slots), graph=graph,
        native=None, accelerator=None,
    )  # fmt: skip


def weigh(variables, *containers, slots=(), runs=((), ()), objects=None):
    """Return the retained bytes of each leak of a heap."""
    with view_of(variables, runs, objects=None if objects is None else [variables, *objects]) as view:
        found = grown_places(view, judgement(*containers, slots=slots))
        sizes = RetainedBytes(view)
        for one in found:
            sizes.note_growth(one.leak, one.address)
        return [
            sizes.with_retained_bytes(one.leak).retained_bytes for one in found if one.growth.outcome is Outcome.LEAK
        ]


def sizes_of(*things):
    """Return what ``sys.getsizeof`` says of all *things*, each counted once."""
    return sum(map(sys.getsizeof, {id(thing): thing for thing in things}.values()))


def floats(n=N):
    return [float(number) + 0.5 for number in range(n)]


def test_a_list_of_numbers_gives_back_its_places_and_its_numbers():
    losses = floats()
    assert weigh({"losses": losses}, grown(losses)) == [sys.getsizeof(losses) + N * sys.getsizeof(1.5)]


def test_small_numbers_that_all_code_shares_do_not_come_back():
    log = [number % 7 for number in range(N)]
    assert weigh({"log": log}, grown(log)) == [sys.getsizeof(log)]


def test_a_number_that_somebody_else_uses_does_not_come_back():
    losses = floats()
    best = losses[3]
    expected = sys.getsizeof(losses) + (N - 1) * sys.getsizeof(1.5)
    assert weigh({"losses": losses, "best": best}, grown(losses)) == [expected]


def test_a_list_with_two_names_gives_back_the_same_when_it_is_emptied():
    losses = floats()
    expected = [sys.getsizeof(losses) + N * sys.getsizeof(1.5)]
    assert weigh({"losses": losses, "also": {"losses": losses}}, grown(losses)) == expected


def test_a_set_and_a_deque_of_texts_give_back_the_texts():
    for make in (set, collections.deque):
        box = make(chr(65 + number) * 1000 for number in range(N))
        assert weigh({"box": box}, grown(box)) == [sys.getsizeof(box) + N * sys.getsizeof("A" * 1000)]


@pytest.mark.parametrize("is_held_by_slot", [False, True])
def test_a_dict_of_texts_gives_back_keys_and_values(is_held_by_slot):
    texts = {f"text {number}": chr(65 + number) * 1000 for number in range(N)}
    expected = sizes_of(texts, *texts, *texts.values())
    assert not gc.is_tracked(texts) or sys.version_info >= (3, 14)
    if gc.is_tracked(texts):
        assert weigh({"texts": texts}, grown(texts)) == [expected]
        return
    owner = Link(texts) if is_held_by_slot else [texts]
    assert weigh({"owner": owner}, slots=[slot_of(owner, texts, AT_RUNS)]) == [expected]


def test_an_ordered_dict_and_a_counter_of_numbers_give_back_both():
    for kind in (collections.OrderedDict, collections.Counter):
        box = kind({number: number + 0.5 for number in range(1000, 1000 + N)})
        (found,) = weigh({"box": box, "more": [box]}, grown(box))
        # A `Counter` has a place for its `__dict__` before it, which only `getsizeof` counts.
        assert sizes_of(box, *box, *box.values()) - 16 <= found <= sizes_of(box, *box, *box.values())


def test_rows_of_a_log_give_back_tuples_and_what_is_in_them():
    rows = [(float(number) + 0.5, chr(65 + number) * 1000) for number in range(N)]
    gc.collect()  # from now on the collector does not know them
    expected = sys.getsizeof(rows)
    for row in rows:
        expected += sizes_of(row, *row)
    del row
    (found,) = weigh({"rows": rows}, grown(rows))
    assert found == expected


def test_arrays_give_back_their_memory_once():
    memory = np.ones(MB, np.int8)
    chunks = [memory[number:] for number in range(N)]
    del memory
    (found,) = weigh({"chunks": chunks}, grown(chunks))
    assert MB < found < MB + 10_000


def test_arrays_whose_memory_others_show_keep_it():
    memory = np.ones(MB, np.int8)
    chunks = [memory[number:] for number in range(N)]
    (found,) = weigh({"chunks": chunks, "memory": memory}, grown(chunks))
    assert found < 10_000


def test_arrays_of_objects_come_back_and_objects_that_others_hold_stay():
    thing = Node(data="x" * MB)
    boxes = []
    for _ in range(N):
        box = np.empty(1000, object)
        box[0] = thing
        boxes.append(box)
    del box
    (found,) = weigh({"thing": thing, "boxes": boxes}, grown(boxes))
    assert N * 8000 < found < N * 8000 + 10_000


def test_objects_that_were_there_before_are_not_counted_with_the_numbers_beside_them():
    state = {"model": Node(weights="x" * MB), **{f"loss {number}": number + 0.5 for number in range(N)}}
    (found,) = weigh({"state": state}, grown(state))
    numbers = [value for value in state.values() if type(value) is float]
    assert found == sizes_of(state, *numbers, *(name for name in state if name != "model"))


def test_survivors_beside_numbers_are_counted_in_their_own_leak_only():
    runs = [[Node(data="x" * MB)], [], []]
    log = [runs[0][0], *floats(240)]
    (found,) = weigh({"log": log}, grown(log, per_run=10), runs=runs)
    assert found == sys.getsizeof(log) + 240 * sys.getsizeof(1.5)


def test_places_of_one_leak_are_added_up():
    buckets = [floats() for _ in range(50)]
    found = weigh({"buckets": buckets}, *map(grown, buckets))
    assert found == [sum(map(sys.getsizeof, buckets)) + 50 * N * sys.getsizeof(1.5)]


@pytest.mark.parametrize("make", [bytearray, io.BytesIO, lambda data: array.array("b", data)])
def test_a_buffer_that_grows_gives_back_its_bytes(make):
    buffer = make(b"abcd" * 25_000)
    assert buffer.seek(0, 2) if type(buffer) is io.BytesIO else buffer
    if gc.is_tracked(buffer):
        (found,) = weigh({"buffer": buffer, "more": [buffer]}, grown(buffer))
    else:
        owner = Link(buffer)
        (found,) = weigh({"owner": owner}, slots=[slot_of(owner, buffer, SIZES)])
    assert sys.getsizeof(buffer) - 16 <= found <= sys.getsizeof(buffer)
    assert found > 100_000


def test_a_text_that_a_longer_one_replaces_gives_back_its_characters():
    owner = Link("".join(map(str, range(100_000, 100_400))))
    (found,) = weigh({"owner": owner}, slots=[slot_of(owner, owner.parent, SIZES)])
    assert found == sys.getsizeof(owner.parent)


def test_nothing_comes_back_of_a_text_that_has_another_name():
    text = "".join(map(str, range(100_000, 100_400)))
    owner = Link(text)
    assert weigh({"owner": owner}, slots=[slot_of(owner, text, SIZES)]) == [0]


def test_an_array_in_a_dict_that_the_collector_does_not_know_gives_back_its_memory():
    state = {"total": np.ones(MB, np.int8)}
    owner = Link(state)
    if gc.is_tracked(state):
        pytest.skip("this Python tracks every dict")
    slot = slot_of(state, state["total"], SIZES, anchor=owner)
    del state
    (found,) = weigh({"owner": owner}, slots=[slot])
    assert MB < found < MB + 1000


def test_a_tensor_that_a_longer_one_replaces_gives_back_its_storage():
    owner = Link(torch.zeros(MB // 4))
    slot = slot_of(owner, owner.parent, SIZES)
    heap = [owner, owner.parent]
    (alone,) = weigh({"owner": owner}, slots=[slot], objects=heap)
    assert MB <= alone < MB + 1000
    assert weigh({"owner": owner, "same": owner.parent}, slots=[slot], objects=heap) == [0]
    part = owner.parent.detach()
    (shared,) = weigh({"owner": owner, "part": part}, slots=[slot], objects=[*heap, part])
    assert 0 < shared < 1000


def test_a_graph_gives_back_what_only_it_saved():
    weight = torch.ones(MB // 4, requires_grad=True)
    total = (weight * 2).exp().sum()  # saves the result of exp
    with view_of({"total": total, "weight": weight}, ((), ())) as view:
        (found,) = grown_graphs(view, judgement(graph=STEADY))
        sizes = RetainedBytes(view)
        sizes.note_growth(found.leak, found.address)
        retained_bytes = sizes.with_retained_bytes(found.leak).retained_bytes
    assert MB <= retained_bytes < MB + 10_000


def test_attributes_of_an_object_are_not_weighed():
    thing = Node(box=[], **{f"value{number}": number + 0.5 for number in range(N)})
    assert weigh({"thing": thing}, grown(vars(thing))) == [None]


def test_attributes_of_plain_data_only_are_not_weighed_either():
    thing = Node(**{f"value{number}": number + 0.5 for number in range(N)})
    if gc.is_tracked(vars(thing)):
        pytest.skip("this Python tracks every dict")
    assert weigh({"thing": thing}, slots=[slot_of(thing, vars(thing), AT_RUNS)]) == [None]


def test_the_users_variables_and_modules_are_not_weighed():
    variables = {"box": [], **{f"value{number}": number + 0.5 for number in range(N)}}
    assert weigh(variables, grown(variables)) == [None]
    module = types.ModuleType("registry")
    vars(module).update(variables)
    assert weigh({"module": module}, grown(vars(module)), objects=[module, vars(module)]) == [None]


def test_a_stream_of_text_is_weighed_by_its_characters():
    stream = io.StringIO()
    stream.write("x" * MB)
    (weight,) = weigh({"stream": stream, "box": []}, grown(stream))
    assert MB <= weight < MB + 1_000


def test_more_entries_than_are_worth_the_time_are_not_weighed(monkeypatch):
    monkeypatch.setattr(in_place, "MAX_ENTRIES", N - 1)
    losses = floats()
    assert weigh({"losses": losses}, grown(losses)) == [None]


def test_no_more_leaks_are_weighed_than_are_worth_the_time(monkeypatch):
    monkeypatch.setattr(independent, "MAX_MEASURED", 1)
    variables = {"first": floats(), "second": floats()}
    found = weigh(variables, *map(grown, variables.values()))
    assert sorted(found, key=str)[1:] == [None]
    assert found.count(None) == 1
