"""Sizes are sane for every kind of object, and no class of the user is asked."""

from __future__ import annotations

import array
import collections
import gc
import sys

import numpy as np
import pytest
import torch

from leaklab.runtime.sizes import is_leaf, owned_bytes, shallow_bytes


class Plain:
    """An instance with a dict."""


class Slotted:
    """An instance with two slots."""

    __slots__ = ("a", "b")


class HostileMeta(type):
    """Raises where its classes are asked for anything."""

    def __getattribute__(cls, name):
        raise AssertionError(name)


class Hostile(metaclass=HostileMeta):
    """Lies about its size, and raises otherwise."""

    def __sizeof__(self):
        raise AssertionError

    def __len__(self):
        raise AssertionError

    def __getattribute__(self, name):
        raise AssertionError(name)


class HostileList(list):
    """A list that says it is huge."""

    def __sizeof__(self):
        raise AssertionError

    def __len__(self):
        return 10**12


class HostileArrayMeta(type):
    """Refuses what tells a size; numpy itself asks for the rest."""

    def __getattribute__(cls, name):
        if name in ("__basicsize__", "__sizeof__", "__mro__"):
            raise AssertionError(name)
        return type.__getattribute__(cls, name)


HostileArray = HostileArrayMeta("HostileArray", (np.ndarray,), {})


async def waiting():
    """Never awaited."""


def counting():
    """A generator."""
    yield sys._getframe()


def traceback():
    try:
        int("no number")
    except ValueError as error:
        return error.__traceback__


def coroutine():
    made = waiting()
    made.close()
    return made


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: next(counting()), id="frame"),
        pytest.param(coroutine, id="coroutine"),
        pytest.param(counting, id="generator"),
        pytest.param(traceback, id="traceback"),
        pytest.param(lambda: Plain, id="class"),
        pytest.param(lambda: Hostile, id="class of a hostile metaclass"),
        pytest.param(lambda: torch.nn.Module, id="class of torch"),
        pytest.param(Plain, id="instance"),
        pytest.param(Slotted, id="slots"),
        pytest.param(lambda: object.__new__(Hostile), id="hostile instance"),
        pytest.param(lambda: HostileList([1, 2, 3]), id="hostile list"),
        pytest.param(lambda: np.ndarray.__new__(HostileArray, (3,)), id="hostile array"),
        pytest.param(lambda: torch.ones(10**6), id="tensor, its storage apart"),
        pytest.param(lambda: torch.nn.Linear(2, 2), id="module"),
        pytest.param(lambda: (torch.ones(2, requires_grad=True) * 2).grad_fn, id="autograd node"),
        pytest.param(lambda: collections.deque([1]), id="deque"),
        pytest.param(lambda: sys, id="module of Python"),
        pytest.param(lambda: counting, id="function"),
        pytest.param(lambda: counting.__code__, id="code"),
        pytest.param(lambda: sys.version_info, id="named tuple of C"),
        pytest.param(lambda: ValueError("x"), id="exception"),
        pytest.param(lambda: memoryview(bytes(10)), id="memoryview"),
    ],
)
def test_the_size_of_one_object_is_sane(make):
    assert 16 <= shallow_bytes(make()) < 10_000


@pytest.mark.parametrize(
    "thing",
    [
        "text" * 10, b"x" * 99, bytearray(1000), 5, 1.5, 2j, [1, 2], {"a": 1}, (1, 2), {1}, frozenset((1,)),
        array.array("d", range(9)),
    ],
    ids=lambda thing: type(thing).__name__,
)  # fmt: skip
def test_builtin_data_is_as_big_as_python_says(thing):
    assert shallow_bytes(thing) == sys.getsizeof(thing)


def test_an_array_owns_its_data_and_a_view_does_not():
    data = np.ones(1000)
    assert 8000 <= shallow_bytes(data) < 8200
    assert shallow_bytes(data[:500]) < 200


def test_a_subclass_of_a_list_is_as_big_as_the_items_it_holds():
    assert shallow_bytes(HostileList(range(1000))) > 8000


def test_objects_own_their_texts_and_arrays_once_and_their_storages():
    text, data = "t" * 5000, np.ones(1000)
    things = [[text, data], [text, data], torch.ones(250)]
    assert 5000 + 8000 + 1000 <= owned_bytes(things) < 5000 + 8000 + 1000 + 1500


def test_views_own_the_array_that_nobody_else_has():
    assert owned_bytes([np.ones(1000)[:3]]) > 8000
    shared = np.ones(1000)
    assert owned_bytes([shared[:3], shared[5:]]) < 500
    halves = [shared[:500], shared[500:]]
    del shared
    assert 8000 < owned_bytes([halves]) < 8700


def test_attributes_belong_to_an_object_before_and_after_somebody_looked_at_them():
    class Holder:
        def __init__(self):
            self.text = "t" * 5000

    holder = Holder()
    before = owned_bytes([holder])
    assert vars(holder)
    assert 5000 < before <= owned_bytes([holder]) < before + 500


def test_what_an_object_has_beside_a_dict_of_others_is_counted_and_no_dict_is_made():
    class Entry:
        def __init__(self, registry: dict[str, list[object]]) -> None:
            self.registry, self.data = registry, b"x" * 5000

    holder = Entry({"entries": []})
    before = [id(one) for one in gc.get_referents(holder)]
    assert 5000 < owned_bytes([holder]) < 5300
    assert [id(one) for one in gc.get_referents(holder)] == before


def test_keys_that_only_a_dict_has_are_its_own():
    made = {f"{number:0100}": None for number in range(100)}
    known = dict.fromkeys(made)
    assert owned_bytes([made, known]) == owned_bytes([made]) + sys.getsizeof(known)  # both have them now
    del known
    assert owned_bytes([made]) == sys.getsizeof(made) + sum(map(sys.getsizeof, made))


def test_what_objects_refer_to_is_not_theirs_unless_it_is_data():
    assert owned_bytes([[[0.5] * 10_000]]) < 500


def test_storages_of_somebody_else_are_left_out():
    tensor = torch.ones(1000)
    key = tensor.untyped_storage()._cdata
    assert owned_bytes([tensor]) - owned_bytes([tensor], without_storages=[key]) == 4000
    assert owned_bytes([tensor], without_storages=[key, 12345]) < 1000


def test_nothing_owns_nothing():
    assert owned_bytes([]) == 0


@pytest.mark.parametrize(
    ("thing", "leaf"), [("a", True), (1, True), (np.ones(1), True), ([], False), (Plain(), False), ((), False)]
)
def test_data_that_the_collector_does_not_follow_is_a_leaf(thing, leaf):
    assert is_leaf(thing) is leaf
