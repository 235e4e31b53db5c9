"""Add up the bytes that objects own: themselves, the data they refer to, the storages of their tensors.

The rules and their order follow what the kinds of tensor really answer: a fake or meta tensor has no memory, a
wrapper subclass none of its own, a sparse one has several storages, an expanded view one that is smaller than the
view.

A type is looked at once. Only C code is asked for a size; a ``__sizeof__`` that a user wrote is never called. What no
type tells is left out: the array of an instance's attributes (CPython 3.11 and later), the C++ parts of tensors and
autograd nodes. What nodes take is estimated by `node_bytes`, for all that tell it.
"""

from __future__ import annotations

import array
import functools
import gc
import io
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import compress, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from leaklab.runtime.addresses import kinds_of, picked, types_at
from leaklab.runtime.containers import entries_in, keys_in
from leaklab.runtime.objects import (
    HEAP_TYPE,
    LRU_CACHE,
    flags_of,
    has_base,
    is_exactly,
    is_tensor,
    loaded_type,
    mro_of,
    no_torch_functions,
    type_name,
)
from leaklab.runtime.referents import get_referents, is_own_dict

if TYPE_CHECKING:
    from leaklab.runtime.addresses import Ints

# Measured with torch 2.13 on glibc: 61 operations (element-wise, views, reductions, products, convolution, norms,
# attention, losses, LSTM, GRU, decompositions, one written in Python), 500 of each kept, malloc's level before and
# after, the bytes of the storages taken off. Each was kept three ways: its result with the graph, its result made
# without one, and its node alone. The least squares of the relative errors of these figures are off by 10 % (root mean
# square); the extremes are -21 % (the node of an addition) and +39 % (that of unbind, with a record for each of four
# results).
NODE_BYTES = 520
"""A node with its metadata and its saved variables: 430 for a negation, 900 for a batch norm with its three."""
EDGE_BYTES = 85
"""What a node keeps of each of its inputs."""


_MOST_OF_PYTHONS = 512
DEVICE_BLOCK_BYTES = 512
"""torch's allocators for CUDA, ROCm and XPU hand out multiples of this: a loss of four bytes that is kept takes 512."""


def node_bytes(n_nodes: int, n_edges: int) -> int:
    """Estimate what the C++ objects of *n_nodes* autograd nodes take, which have *n_edges* inputs together."""
    return NODE_BYTES * n_nodes + EDGE_BYTES * n_edges


_SPARSE_PARTS = {
    "torch.sparse_coo": ("_indices", "_values"),
    "torch.sparse_csr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_bsr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_csc": ("ccol_indices", "row_indices", "values"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices", "values"),
}
_UNKNOWN = (RuntimeError, ValueError, TypeError, AttributeError)


_Storages = list[tuple[int, int]] | None
_remembered = threading.local()
"""Its ``known`` is what this thread remembers now; an entry keeps its tensor alive, so that nothing else takes its
address."""


@contextmanager
def storages_remembered() -> Iterator[None]:
    """Ask each tensor only once inside, where nothing changes them: the tensors of a graph are asked for many times."""
    if getattr(_remembered, "known", None) is not None:
        yield
        return
    _remembered.known = {}
    try:
        yield
    finally:
        _remembered.known = None


def storages_of(tensor: Any) -> _Storages:
    """Return ``(key, n_bytes)`` of every storage that *tensor* owns.

    Returns:
        One pair per storage; the key is the same for two tensors that share the storage, and is valid only while one
        of them lives. An empty list for tensors without memory, None where torch cannot tell.
    """
    known: dict[int, tuple[Any, _Storages]] | None = getattr(_remembered, "known", None)
    if known is not None and id(tensor) in known:
        return known[id(tensor)][1]
    found: _Storages = None
    with no_torch_functions(), suppress(*_UNKNOWN):
        found = _storages(tensor)
    if known is not None:
        known[id(tensor)] = tensor, found
    return found


def is_on_host(tensor: Any) -> bool:
    """Return whether the data of *tensor* lie in main memory."""
    with no_torch_functions():
        return _lies_on_host(tensor)


def _lies_on_host(tensor: Any) -> bool:
    base: Any = loaded_type("torch", "Tensor")
    return bool(base.is_cpu.__get__(tensor))


def sparse_bytes(tensor: Any) -> int:
    """Return the bytes of the sparse *tensor*; 0 of any other, and where torch cannot tell."""
    is_sparse = False
    with no_torch_functions(), suppress(*_UNKNOWN):
        is_sparse = bool(sparse_parts(tensor))
    return sum(size for _key, size in storages_of(tensor) or ()) if is_sparse else 0


def shown_bytes(tensor: Any) -> int:
    """Return the bytes of the elements of *tensor*, which may be a part of its storage; 0 where torch cannot tell."""
    base: Any = loaded_type("torch", "Tensor")
    with no_torch_functions(), suppress(*_UNKNOWN):
        return int(base.numel(tensor)) * int(base.element_size(tensor))
    return 0


def storage_bytes(tensors: Iterable[Any]) -> dict[int, int]:
    """Return the bytes of every storage that *tensors* own, by storage key, each counted once."""
    sizes: dict[int, int] = {}
    for tensor in tensors:
        sizes.update(storages_of(tensor) or ())
    return sizes


def _storages(tensor: Any) -> list[tuple[int, int]]:
    base: Any = loaded_type("torch", "Tensor")
    kinds = () if type(tensor) is base else mro_of(type(tensor))
    if base.is_meta.__get__(tensor) or any(
        type_name(kind) == "torch._subclasses.fake_tensor.FakeTensor" for kind in kinds
    ):
        return []
    # Only torch's own wrappers are unwrapped: anybody else's __tensor_flatten__ is code of the user.
    if any("__tensor_flatten__" in vars(kind) for kind in kinds[:-1]) and type_name(type(tensor)).startswith("torch."):
        return list(_inner_storages(tensor))
    if parts := sparse_parts(tensor):
        return [pair for part in parts for pair in _storages(part)]
    storage = base.untyped_storage(tensor)
    try:
        pointer = storage.data_ptr()
    except RuntimeError:  # a wrapper that owns nothing
        return []
    n_bytes = storage.nbytes() if pointer else 0
    if not _lies_on_host(tensor):
        n_bytes = -(-n_bytes // DEVICE_BLOCK_BYTES) * DEVICE_BLOCK_BYTES
    return [(storage._cdata, n_bytes)]  # noqa: SLF001 - the storage's identity has no public name


def sparse_parts(tensor: Any) -> list[Any]:
    """Return the tensors of positions and values that the sparse *tensor* is made of; nothing of any other."""
    base: Any = loaded_type("torch", "Tensor")
    return [getattr(base, name)(tensor) for name in _SPARSE_PARTS.get(str(base.layout.__get__(tensor)), ())]


def _inner_storages(tensor: Any) -> Iterator[tuple[int, int]]:
    names, _context = type(tensor).__tensor_flatten__(tensor)
    for name in names:
        yield from _storages(getattr(tensor, name))


# Their __sizeof__ is C code and counts what they own.
_MEASURED = (
    str, bytes, bytearray, int, float, complex, bool, list, dict, tuple, set, frozenset, array.array, range, slice,
)  # fmt: skip
_MEASURED_IDS = frozenset(map(id, _MEASURED))
_LEAVES = frozenset(map(id, (str, bytes, bytearray, int, float, complex, array.array, np.ndarray)))
_DATA_CONTAINERS = frozenset(map(id, (tuple, dict)))
GC_HEADER_BYTES = 16
_basic_size_of = type.__dict__["__basicsize__"].__get__


def shallow_bytes(thing: object) -> int:
    """Return the bytes of *thing* alone; for an instance of a user's class what its base type declares.

    A ``__sizeof__`` that the user wrote is never called.
    """
    size = sizing_of(type(thing))
    return size if isinstance(size, int) else size(thing)


def native_bytes(things: Iterable[object]) -> int:
    """Return what *things* of builtin types take in the native heap: what is small, Python's own allocator has."""
    return sum(n_bytes for n_bytes in map(sys.getsizeof, things) if n_bytes > _MOST_OF_PYTHONS)


def sizing_of(kind: type) -> int | Callable[[Any], int]:
    """Return the bytes that every object of *kind* has, or the function that measures one."""
    if id(kind) in _MEASURED_IDS:
        return sys.getsizeof
    if has_base(kind, np.ndarray):
        return functools.partial(_array_bytes, int(_basic_size_of(kind)))
    if has_base(kind, io.StringIO):
        return functools.partial(_text_stream_bytes, int(_basic_size_of(kind)))
    # The first class of the mro that is written in C is asked; its size rule cannot be the user's.
    for base in mro_of(kind):
        if flags_of(base) & HEAP_TYPE:
            continue
        if base is object:
            break
        own = base.__dict__.get("__sizeof__")
        if own is not None:
            return lambda thing: int(own(thing)) + GC_HEADER_BYTES
    # object.__sizeof__ would multiply by a length that not every type with items keeps where it looks for it.
    return int(_basic_size_of(kind)) + GC_HEADER_BYTES


base_of = vars(np.ndarray)["base"].__get__
"""The array, or whatever else, whose memory an array shows; None if the memory is its own."""
_nbytes_of = vars(np.ndarray)["nbytes"].__get__


def _array_bytes(header_bytes: int, array: object) -> int:
    return header_bytes + (int(_nbytes_of(array)) if base_of(array) is None else 0)


def _text_stream_bytes(header_bytes: int, stream: Any) -> int:
    """Return the least that a text stream keeps: a byte for each character before its position."""
    try:
        return header_bytes + GC_HEADER_BYTES + int(io.StringIO.tell(stream))
    except ValueError:  # it is closed, or its class never made it ready
        return header_bytes + GC_HEADER_BYTES


def is_leaf(thing: object) -> bool:
    """Return whether *thing* is data that the collector does not follow: a string, a number, an array."""
    return id(type(thing)) in _LEAVES


def owned_objects(things: Collection[object]) -> list[object]:
    """Return *things* and the data that they refer to, each once: what `owned_bytes` counts but storages.

    Tuples and dicts of nothing but data are data too: the collector does not list them, so nobody else tells of them.
    """
    found = {id(thing): thing for thing in things}
    found |= _own_dicts(things)
    level = list(found.values())
    while level:
        found |= _private_keys(level)
        referents = get_referents(*level)
        new = {
            id(thing): thing for thing in referents if id(thing) not in found and (is_leaf(thing) or _is_data(thing))
        }
        found |= new
        level = [thing for thing in new.values() if id(type(thing)) in _DATA_CONTAINERS]
    found |= _memory_of_views(found.values())
    # Numbers and words that a module knows anyway are few and small: not worth the search for their other owners.
    return list(found.values())


def leaves_beside(holder: object, held: Collection[int]) -> Iterator[object]:
    """Return the data that *holder*, a dict or a cache of functions, has under keys with an address in *held*.

    The collector follows such a key, and not its value if that is data: nobody else tells of it.
    """
    if has_base(type(holder), dict):
        pairs: Iterable[tuple[object, object]] = entries_in(holder)
    else:
        pairs = pairwise(get_referents(holder)) if is_exactly(holder, (LRU_CACHE,)) else ()
    return (value for key, value in pairs if id(key) in held and is_leaf(value))


def _private_keys(things: Iterable[object]) -> dict[int, object]:
    """Return, by address, the texts that only a dict among *things* has, as a key.

    The collector does not follow the keys of a dict that has nothing but texts for keys.
    """
    probe = {b"key".decode(): None}  # nobody else has this very text
    (n_alone,) = _n_owners(keys_in(probe))
    found: dict[int, object] = {}
    for thing in things:
        if has_base(type(thing), dict):
            keys = keys_in(thing)
            found |= {
                id(key): key for key, n in zip(keys, _n_owners(keys), strict=True) if n == n_alone and is_leaf(key)
            }
    return found


def _n_owners(keys: list[object]) -> list[int]:
    return [sys.getrefcount(key) for key in keys]


def _memory_of_views(things: Iterable[object]) -> dict[int, object]:
    """Return, by address, the arrays and buffers that nothing but views among *things* keeps.

    A view tells the collector nothing of the array whose memory it shows; the number of references to that array tells
    whether anybody else has it.
    """
    n_views, bases, base = Counter[int](), dict[int, object](), None
    for thing in things:
        base = base_of(thing) if type(thing) is np.ndarray else None
        if base is not None and is_leaf(base):
            bases[id(base)] = base
            n_views[id(base)] += 1
    base = None
    n_by_dict = _n_references({0: bytearray()}, 0)
    return {key: bases[key] for key in bases if _n_references(bases, key) == n_by_dict + n_views[key]}


def _n_references(things: dict[int, object], key: int) -> int:
    return sys.getrefcount(things[key])


def _own_dicts(things: Collection[object]) -> dict[int, object]:
    """Return, by address, the dicts of attributes of *things* that have one already.

    Python makes such a dict when somebody first asks for it, and from then on the collector lists it: what it holds
    belongs to the object as it did before. An object that refers to any other dict is not asked: it would get one.
    """
    tracked = {id(one) for one in get_referents(*things) if type(one) is dict and gc.is_tracked(one)}
    with_dict = (
        (thing, one) for thing in (things if tracked else ()) for one in get_referents(thing) if id(one) in tracked
    )
    return {id(one): one for thing, one in with_dict if is_own_dict(thing, one)}


def _is_data(thing: object) -> bool:
    return id(type(thing)) in _DATA_CONTAINERS and not gc.is_tracked(thing)


def owned_bytes(things: Collection[object], *, without_storages: Iterable[int] = ()) -> int:
    """Return the bytes that *things* own together, everything counted once.

    Counted are the objects themselves, what they refer to of strings, numbers, arrays, and tuples and dicts of such,
    arrays that only they show parts of, and the storages of their tensors; not what else they refer to.

    Args:
        things: Live objects.
        without_storages: Keys of storages that belong to somebody else.
    """
    storages = storage_bytes(thing for thing in things if is_tensor(thing))
    for key in without_storages:
        storages.pop(key, None)
    return sum(map(shallow_bytes, owned_objects(things))) + sum(storages.values())


_Sizing = Callable[[Any], int]
# What heaps are full of: their C functions are called without a detour, a million in 50 ms.
_COMMON: tuple[tuple[type, _Sizing], ...] = tuple((kind, kind.__sizeof__) for kind in (list, dict))
_ALIGNMENT_BITS = 4
_TABLE_BITS = range(10, 20)


def shallow_bytes_of(objects: list[Any], kinds: Ints | None = None) -> Ints:
    """Return the bytes of each of *objects* alone, shape ``(len(objects),)``; *kinds* are their types, if known."""
    kinds = kinds_of(objects) if kinds is None else kinds
    sizing = {address: sizing_of(kind) for address, kind in types_at(kinds).items()}
    sizes = _looked_up(kinds, {address: rule if isinstance(rule, int) else 0 for address, rule in sizing.items()})
    functions = {address: rule for address, rule in sizing.items() if not isinstance(rule, int)}
    for kind, rule in _COMMON:
        if functions.pop(id(kind), None) is not None:
            is_kind = kinds == id(kind)
            chosen = compress(objects, is_kind.tobytes())
            sizes[is_kind] = np.fromiter(map(rule, chosen), np.int64) + GC_HEADER_BYTES
    others = np.flatnonzero(_looked_up(kinds, dict.fromkeys(sizing, 0) | dict.fromkeys(functions, 1)))
    others = others[np.argsort(kinds[others], kind="stable")]
    for places in np.split(others, np.flatnonzero(np.diff(kinds[others])) + 1):
        if len(places):
            rule_of_kind = functions[int(kinds[places[0]])]
            sizes[places] = np.fromiter(map(rule_of_kind, picked(objects, places)), np.int64, len(places))
    return sizes


def _looked_up(addresses: Ints, values: dict[int, int]) -> Ints:
    """Return the value of each address; *values* knows all of them.

    A table by some bits of the address is ten times faster than a search, where these bits tell the addresses apart.
    """
    known = np.array(sorted(values), np.int64)
    known_values = np.array([values[address] for address in known.tolist()], np.int64)
    for bits in _TABLE_BITS:
        places = (known >> _ALIGNMENT_BITS) & ((1 << bits) - 1)
        if len(np.unique(places)) == len(known):
            table = np.zeros(1 << bits, np.int64)
            table[places] = known_values
            found: Ints = table[(addresses >> _ALIGNMENT_BITS) & ((1 << bits) - 1)]
            return found
    searched: Ints = known_values[np.searchsorted(known, addresses)]
    return searched
