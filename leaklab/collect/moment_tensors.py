"""Note every tensor of a moment by its kind, and every storage once for each tensor that owns it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.collect.moment_kinds import KindTable
from leaklab.model.moments import TensorKind
from leaklab.objects import has_base, loaded_type, no_torch_functions, type_name
from leaklab.tensors import storages_of

_UNKNOWN = (RuntimeError, TypeError, ValueError, AttributeError)


@dataclass(slots=True)
class TensorTable:
    """The tensors of a moment, in the order in which they were given.

    Attributes:
        kinds: The distinct descriptions, in the order of their numbers.
        kind_of: For each tensor the number of its description.
        devices: The distinct devices, in the order of their numbers.
        storages: ``(tensor, key, bytes, device)``, the tensor -1 for a storage that no tensor owns.
    """

    kinds: dict[TensorKind, int] = field(default_factory=dict)
    kind_of: list[int] = field(default_factory=list)
    devices: dict[str, int] = field(default_factory=dict)
    storages: list[tuple[int, int, int, int]] = field(default_factory=list)

    def add_tensors(self, tensors: Iterable[Any]) -> None:
        """Note *tensors* with their storages."""
        names: dict[int, str] = {}
        extents: list[int] = []
        base: Any = loaded_type("torch", "Tensor")
        for number, tensor in enumerate(tensors):
            name = names.setdefault(id(type(tensor)), type_name(type(tensor)))
            with no_torch_functions():
                kind = _kind_of(base, tensor, name)
            self.kind_of.append(self.kinds.setdefault(kind, len(self.kinds)))
            device = self.devices.setdefault(kind.device, len(self.devices))
            self.storages.extend((number, key, size, device) for key, size in storages_of(tensor) or ())
            extents.append(_extent(base, tensor))
        # Of several tensors that share a storage the one that spans most of it comes first: its kind gets the bytes.
        self.storages.sort(key=lambda storage: -extents[storage[0]])

    def add_storages(self, storages: Iterable[Any]) -> list[bool]:
        """Note the storage objects that live without a tensor; return for each of *storages* whether one owns it."""
        base: Any = loaded_type("torch", "UntypedStorage")
        keys = {key for _tensor, key, _size, _device in self.storages}
        owned = []
        for storage in storages:
            try:
                key = int(base._cdata.__get__(storage))  # noqa: SLF001 - the storage's identity has no public name
                size, device = int(base.nbytes(storage)), str(base.device.__get__(storage))
                has_memory = base.data_ptr(storage) != 0  # on "meta" it has a size only
            except _UNKNOWN:
                owned.append(False)
                continue
            owned.append(key in keys)
            if key not in keys and has_memory:
                self.storages.append((-1, key, size, self.devices.setdefault(device, len(self.devices))))
        return owned


def tensor_mask(table: KindTable) -> npt.NDArray[np.bool_]:
    """Return which objects are tensors."""
    base = loaded_type("torch", "Tensor")
    return table.mask(lambda of: base is not None and has_base(of, base))


def storage_mask(table: KindTable) -> npt.NDArray[np.bool_]:
    """Return which objects are storages: torch keeps one for every storage that was ever asked for."""
    base = loaded_type("torch", "UntypedStorage")
    return table.mask(lambda of: base is not None and has_base(of, base))


def _extent(base: Any, tensor: Any) -> int:
    """Return the bytes that the elements of *tensor* would take side by side, 0 where torch does not tell."""
    with no_torch_functions():
        try:
            return int(base.numel(tensor)) * int(base.element_size(tensor))
        except _UNKNOWN:
            return 0


def _kind_of(base: Any, tensor: Any, name: str) -> TensorKind:
    try:
        shape = str(tuple(int(size) for size in base.size(tensor)))
    except _UNKNOWN:
        shape = "?"
    try:
        dtype = str(base.dtype.__get__(tensor)).removeprefix("torch.")
        device = str(base.device.__get__(tensor))
        has_graph = base.grad_fn.__get__(tensor) is not None
    except _UNKNOWN:
        return TensorKind(name, shape, "?", "?", has_graph=False)
    return TensorKind(name, shape, dtype, device, has_graph)
