"""References to buffers that grow in place or are replaced by bigger ones are found; fresh values are not."""

from __future__ import annotations

import array
import collections
import random
import sys

import numpy as np
import pytest

from leaklab.measure.slots import find_slots, grown_slots
from leaklab.runtime.addresses import kinds_of

RANDOM = random.Random(5)
BIG = 4096


class Holder:
    """One reference, to be followed."""

    __slots__ = ("content",)  # on 3.10 a ``__dict__`` of plain data would be unknown to the collector

    def __init__(self, content: object) -> None:
        self.content = content


def slots_of(*things: object):
    objects = list(things)
    return find_slots(objects, kinds_of(objects))


def sizes_while(holder: Holder, grow, n_moments: int = 3) -> list[tuple[int, ...]]:
    """Return the sizes of every slot that grew while *grow* was called between the moments."""
    moments = [slots_of(holder)]
    for _ in range(n_moments - 1):
        grow(holder)
        moments.append(slots_of(holder))
    found = grown_slots(moments)
    assert all(slot.owner == id(holder) for slot in found)
    return [slot.sizes for slot in found]


def in_place(holder: Holder) -> None:
    holder.content.extend(bytes(100))


def longer_text(holder: Holder) -> None:
    holder.content += "x" * 100


def longer_bytes(holder: Holder) -> None:
    holder.content += b"x" * 100


def behind(holder: Holder) -> None:
    holder.content = np.concatenate([holder.content, np.ones(25, np.float32)])


def before(holder: Holder) -> None:
    holder.content = np.concatenate([np.ones(25, np.float32), holder.content])


def more_machine_numbers(holder: Holder) -> None:
    holder.content.extend(range(25))


def longer_list(holder: Holder) -> None:
    holder.content = [*holder.content, object()]


def longer_tuple(holder: Holder) -> None:
    holder.content = (*holder.content, object())


def pushed_front(holder: Holder) -> None:
    holder.content = [object(), *holder.content]


def longer_queue(holder: Holder) -> None:
    holder.content = collections.deque([*holder.content, object()])


def more_numbers(holder: Holder) -> None:
    holder.content[len(holder.content)] = 0.5


def numbers(n: int):
    return np.random.default_rng(7).random(n, dtype=np.float32)


@pytest.mark.parametrize(
    ("content", "grow", "sizes"),
    [
        pytest.param(bytearray(BIG), in_place, (4096, 4196, 4296), id="bytearray in place"),
        pytest.param("a" * BIG, longer_text, (4096, 4196, 4296), id="text added to"),
        pytest.param(random.Random(3).randbytes(BIG), longer_bytes, (4096, 4196, 4296), id="bytes added to"),
        pytest.param(numbers(1024), behind, (4096, 4196, 4296), id="array concatenated behind"),
        pytest.param(numbers(1024), before, (4096, 4196, 4296), id="array concatenated in front"),
        pytest.param(array.array("i", range(1024)), more_machine_numbers, (4096, 4196, 4296), id="machine array"),
        pytest.param([object() for _ in range(8)], longer_list, (8, 9, 10), id="list replaced by a longer one"),
        pytest.param([object() for _ in range(8)], pushed_front, (8, 9, 10), id="list replaced, new in front"),
        pytest.param(tuple(object() for _ in range(8)), longer_tuple, (8, 9, 10), id="tuple replaced"),
        pytest.param(collections.deque(object() for _ in range(8)), longer_queue, (8, 9, 10), id="deque replaced"),
    ],
)
def test_what_accumulates_is_followed(content, grow, sizes):
    assert sizes_while(Holder(content), grow) == [sizes]


@pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="there the collector knows every dict, and lengths are measured"
)
def test_a_dict_of_plain_numbers_that_the_collector_does_not_know_is_followed():
    content = {}
    content.update(dict.fromkeys(range(8), 0.5))
    assert sizes_while(Holder(content), more_numbers) == [(8, 9, 10)]


def fresh_array(holder: Holder) -> None:
    holder.content = np.array([RANDOM.random() for _ in range(len(holder.content) + 25)], np.float32)


def fresh_text(holder: Holder) -> None:
    holder.content = "".join(RANDOM.choice("abcdef") for _ in range(len(holder.content) + 100))


def fresh_list(holder: Holder) -> None:
    holder.content = [object() for _ in range(len(holder.content) + 1)]


def shorter(holder: Holder) -> None:
    holder.content = holder.content[:-10]


def same_size(holder: Holder) -> None:
    holder.content = holder.content[:]


@pytest.mark.parametrize(
    ("content", "grow"),
    [
        pytest.param(np.array([RANDOM.random() for _ in range(1024)]), fresh_array, id="fresh array of growing shape"),
        pytest.param("".join(RANDOM.choice("abcdef") for _ in range(BIG)), fresh_text, id="fresh text"),
        pytest.param([object() for _ in range(8)], fresh_list, id="fresh list"),
        pytest.param(numbers(4096), shorter, id="shrinking array"),
        pytest.param("a" * BIG, shorter, id="shrinking text"),
        pytest.param(numbers(1024), same_size, id="copy of the same size"),
    ],
)
def test_what_is_computed_afresh_or_shrinks_is_not_followed(content, grow):
    assert sizes_while(Holder(content), grow) == []


def test_another_type_in_the_same_place_is_another_content():
    holder = Holder(b"a" * BIG)
    assert sizes_while(holder, lambda held: setattr(held, "content", bytearray(held.content) + b"x"), 2) == []


def test_small_buffers_are_not_followed():
    assert sizes_while(Holder(bytearray(10)), in_place) == []


def test_a_buffer_that_was_let_go_in_between_is_not_followed():
    holder = Holder("a" * BIG)
    moments = [slots_of(holder)]
    holder.content = ""
    moments.append(slots_of(holder))
    holder.content = "a" * (BIG + 100)
    moments.append(slots_of(holder))
    assert grown_slots(moments) == []


def test_each_slot_of_an_owner_is_told_apart():
    owner = ["a" * BIG, "b" * BIG, bytearray(BIG)]
    first = slots_of(owner)
    owner[1] += "b" * 5
    owner[2].extend(b"1")
    text, buffer = sorted(grown_slots([first, slots_of(owner)]), key=lambda slot: -slot.sizes[1])
    assert (text.sizes, buffer.sizes) == ((4096, 4101), (4096, 4097))
    assert (text.target, buffer.target) == (id(owner[1]), id(owner[2]))


def test_a_heap_without_buffers_has_no_slots():
    slots = slots_of([1, 2, 3])
    assert len(slots.keys) == 0
    assert grown_slots([slots, slots]) == []


def test_a_strided_array_that_stays_one_object_is_measured_without_reading_it():
    holder = Holder(numbers(4096)[::2])
    assert slots_of(holder).sizes.tolist() == [8192]
    assert slots_of(holder).firsts.tolist() == [0]


def test_more_holders_than_one_batch_keep_their_own_slots(monkeypatch):
    monkeypatch.setattr("leaklab.measure.slots._BATCH", 3)
    holders = [Holder("a" * (BIG + number)) for number in range(8)]
    slots = slots_of(*holders)
    found = dict(zip(slots.owners.tolist(), slots.sizes.tolist(), strict=True))
    assert found == {id(holder): BIG + number for number, holder in enumerate(holders)}


def test_to_see_followed_slots_again_shows_them_and_no_others():
    followed, other = Holder("a" * BIG), Holder("b" * BIG)
    objects: list[object] = [other, followed]
    first = find_slots(objects, kinds_of(objects))
    of_one = slots_of(followed)
    followed.content += "a" * 5
    again = find_slots(objects, kinds_of(objects), of_one)
    assert (again.owners.tolist(), again.sizes.tolist()) == ([id(followed)], [BIG + 5])
    (grown,) = grown_slots([first, again])
    assert grown.sizes == (BIG, BIG + 5)


def test_a_followed_dict_that_the_collector_does_not_know_is_seen_again():
    plain = {"text": "a" * BIG}
    holder = Holder(plain)
    first = slots_of(holder)
    plain["text"] += "a" * 7
    objects: list[object] = [holder]
    again = find_slots(objects, kinds_of(objects), first)
    assert [slot.sizes for slot in grown_slots([first, again])] == [(BIG, BIG + 7)]


def test_an_object_of_the_heap_is_followed_if_it_is_long_enough():
    short, long = list(range(3)), list(range(30))
    holders: list[object] = [Holder(short), Holder(long), short, long]
    slots = find_slots(holders, kinds_of(holders))
    assert (slots.owners.tolist(), slots.sizes.tolist()) == ([id(holders[1])], [30])
