"""Sizes are sane for every kind of object and tensor, shared storages count once, no class of the user is asked."""

from __future__ import annotations

import array
import collections
import gc
import sys
import warnings

import numpy as np
import pytest
import torch

from leaklab.runtime.sizes import is_leaf, owned_bytes, shallow_bytes, storage_bytes, storages_of


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


def owned(tensor: object) -> int | None:
    pairs = storages_of(tensor)
    return None if pairs is None else sum(dict(pairs).values())


def fake() -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(torch.ones(16))


def resized_to_nothing() -> torch.Tensor:
    tensor = torch.ones(16)
    tensor.untyped_storage().resize_(0)
    return tensor


def set_to_nothing() -> torch.Tensor:
    return torch.ones(16).set_()


def jagged() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)


def strided_nested() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)])


def compressed(layout: torch.layout) -> torch.Tensor:
    dense = torch.zeros(4, 4)
    dense[0, 1] = dense[2, 3] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if layout in (torch.sparse_bsr, torch.sparse_bsc):
            return dense.to_sparse(layout=layout, blocksize=(2, 2))
        return dense.to_sparse(layout=layout)


def functional() -> torch.Tensor:
    return torch._to_functional_tensor(torch.ones(16))


class Wrapper(torch.Tensor):
    """Owns no memory; every function on it raises."""

    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (16,))

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(func)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(func)


class Raising(torch.Tensor):
    """A tensor with memory whose functions raise."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(func)


class Flattening(Wrapper):
    """Somebody else's wrapper: its way to take it apart is code of the user."""

    def __tensor_flatten__(self):
        raise AssertionError


@pytest.mark.parametrize(
    ("make", "n_bytes"),
    [
        pytest.param(lambda: torch.ones(16), 64, id="strided"),
        pytest.param(lambda: torch.ones(16, dtype=torch.float64), 128, id="double"),
        pytest.param(lambda: torch.nn.Parameter(torch.ones(16)), 64, id="parameter"),
        pytest.param(lambda: torch.ones(1).expand(1000), 4, id="expanded: the storage, not the view"),
        pytest.param(lambda: torch.ones(1000)[:1], 4000, id="small view of a big storage"),
        pytest.param(lambda: torch.from_numpy(np.ones(16, np.float32)), 64, id="from numpy"),
        pytest.param(lambda: torch.ones(16, device="meta"), 0, id="meta"),
        pytest.param(fake, 0, id="fake"),
        pytest.param(resized_to_nothing, 0, id="storage resized to 0"),
        pytest.param(set_to_nothing, 0, id="set to nothing"),
        pytest.param(lambda: torch.empty(0), 0, id="empty"),
        # 2 indices x 3 entries x 8 bytes, and 3 values x 4
        pytest.param(lambda: torch.eye(3).to_sparse(), 48 + 12, id="sparse COO"),
        pytest.param(jagged, (5 * 4 * 4) + 3 * 8, id="jagged nested: values and offsets"),
        pytest.param(strided_nested, 5 * 4 * 4, id="strided nested"),
        pytest.param(functional, 0, id="functional"),
        pytest.param(Wrapper, 0, id="wrapper subclass"),
        pytest.param(Flattening, 0, id="somebody else's wrapper"),
        pytest.param(lambda: torch.ones(16).as_subclass(Raising), 64, id="raising __torch_function__"),
    ],
)
def test_a_tensor_owns(make, n_bytes):
    assert owned(make()) == n_bytes


@pytest.mark.parametrize(
    ("layout", "names"),
    [
        (torch.sparse_csr, ("crow_indices", "col_indices", "values")),
        (torch.sparse_bsr, ("crow_indices", "col_indices", "values")),
        (torch.sparse_csc, ("ccol_indices", "row_indices", "values")),
        (torch.sparse_bsc, ("ccol_indices", "row_indices", "values")),
    ],
)
def test_a_compressed_sparse_tensor_owns_its_indices_and_values(layout, names):
    tensor = compressed(layout)
    parts = [getattr(tensor, name)().untyped_storage() for name in names]
    assert owned(tensor) == sum({part._cdata: part.nbytes() for part in parts}.values())
    assert owned(tensor) > 0


def test_a_quantized_tensor_owns_one_byte_an_element():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tensor = torch.quantize_per_tensor(torch.ones(16), 0.1, 0, torch.qint8)
        except (RuntimeError, AttributeError):
            pytest.skip("this torch has no quantized tensors")
        assert owned(tensor) == 16


def test_an_uninitialised_parameter_has_no_bytes_that_are_known():
    assert owned(torch.nn.UninitializedParameter()) in (0, None)


def test_the_bytes_of_an_mkldnn_tensor_are_unknown():
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no mkldnn")
    assert storages_of(torch.ones(16).to_mkldnn()) is None


def test_tensors_that_share_a_storage_count_it_once():
    base = torch.ones(1000)
    assert sum(storage_bytes([base, base[1:], base.view(10, 100), base.detach(), torch.ones(2)]).values()) == 4008


def test_a_tensor_and_its_detached_copy_have_the_same_key():
    base = torch.ones(4, requires_grad=True)
    assert storages_of(base) == storages_of(base.detach())
    assert storages_of(base) != storages_of(base.detach().clone())


def test_a_batched_tensor_inside_vmap_is_unknown_and_harms_nothing():
    seen = []

    def note(row):
        seen.append(storages_of(row))
        return row * 2

    assert torch.vmap(note)(torch.ones(3, 2)).tolist() == [[2.0, 2.0]] * 3
    assert seen == [None]


def test_no_tensors_have_no_storages():
    assert storage_bytes([]) == {}
