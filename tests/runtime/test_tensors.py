"""Every kind of tensor owns the bytes that it really has, shared storages once."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from leaklab.runtime.sizes import storage_bytes, storages_of


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
