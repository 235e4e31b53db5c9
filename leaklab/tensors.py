"""Tell which storages a tensor owns, and how many bytes they are.

The rules and their order follow what the kinds of tensor really answer: a fake or meta tensor has no memory, a wrapper
subclass none of its own, a sparse one has several storages, an expanded view one that is smaller than the view.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from leaklab.objects import mro_of, no_torch_functions, type_name

_SPARSE_PARTS = {
    "torch.sparse_coo": ("_indices", "_values"),
    "torch.sparse_csr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_bsr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_csc": ("ccol_indices", "row_indices", "values"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices", "values"),
}
_UNKNOWN = (RuntimeError, ValueError, TypeError, AttributeError)


def storages_of(tensor: Any) -> list[tuple[int, int]] | None:
    """Return ``(key, n_bytes)`` of every storage that *tensor* owns.

    Returns:
        One pair per storage; the key is the same for two tensors that share the storage, and is valid only while one
        of them lives. An empty list for tensors without memory, None where torch cannot tell.
    """
    with no_torch_functions():
        try:
            return _storages(tensor)
        except _UNKNOWN:
            return None


def storage_bytes(tensors: Iterable[Any]) -> dict[int, int]:
    """Return the bytes of every storage that *tensors* own, by storage key, each counted once."""
    sizes: dict[int, int] = {}
    for tensor in tensors:
        sizes.update(storages_of(tensor) or ())
    return sizes


def _storages(tensor: Any) -> list[tuple[int, int]]:
    base: Any = sys.modules["torch"].Tensor
    kinds = mro_of(type(tensor))
    if base.is_meta.__get__(tensor) or any(
        type_name(kind) == "torch._subclasses.fake_tensor.FakeTensor" for kind in kinds
    ):
        return []
    # Only torch's own wrappers are unwrapped: anybody else's __tensor_flatten__ is code of the user.
    if type_name(type(tensor)).startswith("torch.") and any("__tensor_flatten__" in vars(kind) for kind in kinds[:-1]):
        return list(_inner_storages(tensor))
    parts = _SPARSE_PARTS.get(str(base.layout.__get__(tensor)))
    if parts is not None:
        return [pair for name in parts for pair in _storages(getattr(base, name)(tensor))]
    storage = base.untyped_storage(tensor)
    try:
        pointer = storage.data_ptr()
    except RuntimeError:  # a wrapper that owns nothing
        return []
    return [(storage._cdata, storage.nbytes() if pointer else 0)]  # noqa: SLF001 - the storage's identity has no public name


def _inner_storages(tensor: Any) -> Iterator[tuple[int, int]]:
    names, _context = type(tensor).__tensor_flatten__(tensor)
    for name in names:
        yield from _storages(getattr(tensor, name))
