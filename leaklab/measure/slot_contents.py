"""Read what a slot points to in numbers: how large it is, and how it begins and ends."""

from __future__ import annotations

import array
import collections
import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.runtime.containers import ends_of, ends_of_dict
from leaklab.runtime.objects import has_base, loaded_type, no_torch_functions
from leaklab.runtime.sizes import storages_of

MIN_BYTES = 1024
"""Smaller buffers are not followed: a few bytes more of them are nobody's leak."""
MIN_ENTRIES = 8
"""Shorter lists and tuples are not followed as replaced wholes; those that live on are measured by length anyway."""

_END_BYTES = 64


@dataclass(frozen=True, slots=True)
class Content:
    """What a slot points to, in numbers.

    Attributes:
        size: Bytes of a buffer, entries of a list.
        first: A digest of its beginning, 0 if unknown.
        last: A digest of its end, 0 if unknown.
    """

    size: int
    first: int
    last: int


def reader_of(kind: type) -> Callable[[Any], Content | None] | None:
    """Return the function that measures objects of *kind*, None where there is none; it returns None for small ones."""
    reader = _READERS.get(id(kind))
    if reader is not None:
        return reader
    if (tensor := loaded_type("torch", "Tensor")) is not None and has_base(kind, tensor):
        return _read_tensor
    if loaded_type("numpy", "ndarray") is kind:
        return _read_array
    return None


def _digest(near: bytes, far: bytes) -> int:
    """Return a digest of two places of a buffer, 0 (unknown) if what stands there would look alike in any other.

    Zeros begin and end like all zeros, and positions (``arange``) like all positions: neither is a sign of keeping.
    """
    return 0 if _is_regular(near) and _is_regular(far) else hash(near + far)


def _is_regular(data: bytes) -> bool:
    """Return whether *data* is one step repeated, read as numbers of any usual kind."""
    if len(data) % 8:
        return False
    with np.errstate(all="ignore"):
        return any(_is_even(np.frombuffer(data, kind)) for kind in ("i8", "i4", "f4", "f8"))


def _is_even(numbers: npt.NDArray[Any]) -> bool:
    steps = numbers[1:] - numbers[:-1]
    return bool((steps == steps[:1]).all())  # of one number there is no step


def _read_bytes(data: bytes | bytearray) -> Content:
    first = _digest(bytes(data[:_END_BYTES]), bytes(data[MIN_BYTES - _END_BYTES : MIN_BYTES]))
    last = _digest(bytes(data[-_END_BYTES:]), bytes(data[-MIN_BYTES : _END_BYTES - MIN_BYTES]))
    return Content(len(data), first, last)


def _read_text(text: str) -> Content:
    return Content(len(text), hash(text[:_END_BYTES]), hash(text[-_END_BYTES:]))


def _read_sequence(things: list[object] | tuple[object, ...]) -> Content:
    return Content(len(things), *ends_of(things))


def _read_dict(mapping: dict[object, object]) -> Content:
    # A dict that grows in place is measured as a container, too; here one is found that a longer one replaces.
    return Content(len(mapping), *ends_of_dict(mapping))


def _read_memory(address: int, n_bytes: int) -> Content | None:
    if n_bytes < MIN_BYTES or not address:
        return None
    at, end, far = ctypes.string_at, address + n_bytes, MIN_BYTES - _END_BYTES
    first = _digest(at(address, _END_BYTES), at(address + far, _END_BYTES))
    last = _digest(at(end - _END_BYTES, _END_BYTES), at(end - MIN_BYTES, _END_BYTES))
    return Content(n_bytes, first, last)


def _read_array(thing: Any) -> Content | None:
    base: Any = loaded_type("numpy", "ndarray")
    n_bytes = int(base.nbytes.__get__(thing))
    if not base.flags.__get__(thing).c_contiguous:
        return Content(n_bytes, 0, 0) if n_bytes >= MIN_BYTES else None
    return _read_memory(base.ctypes.__get__(thing).data, n_bytes)


def _read_machine_array(thing: array.array[Any]) -> Content | None:
    address, length = array.array.buffer_info(thing)
    return _read_memory(address, length * thing.itemsize)


def _read_tensor(thing: Any) -> Content | None:
    base: Any = loaded_type("torch", "Tensor")
    sizes = storages_of(thing)
    if not sizes or sum(size for _key, size in sizes) < MIN_BYTES:
        return None
    n_bytes = sum(size for _key, size in sizes)
    with no_torch_functions():
        if len(sizes) > 1 or base.device.__get__(thing).type != "cpu" or not base.is_contiguous(thing):
            return Content(n_bytes, 0, 0)
        wanted, offset = (count * base.element_size(thing) for count in (base.numel(thing), base.storage_offset(thing)))
        if offset + wanted > n_bytes:  # the storage was resized under the tensor: there is nothing to read
            return Content(n_bytes, 0, 0)
        return _read_memory(base.data_ptr(thing), wanted)


LEAST_LENGTHS = {
    **dict.fromkeys((id(str), id(bytes), id(bytearray)), MIN_BYTES),
    **dict.fromkeys((id(list), id(tuple), id(dict), id(collections.deque)), MIN_ENTRIES),
}
_READERS: dict[int, Callable[[Any], Content | None]] = {
    id(str): _read_text,
    id(bytes): _read_bytes,
    id(bytearray): _read_bytes,
    id(list): _read_sequence,
    id(tuple): _read_sequence,
    id(dict): _read_dict,
    id(collections.deque): _read_sequence,
    id(array.array): _read_machine_array,
}
