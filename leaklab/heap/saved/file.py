"""Write a heap as one file, and read it back: numbers and words, compressed; no value of the user's, no pickle.

The layout is described in ``docs/heap_files.md``. A file may come from anywhere: nothing is allocated because a file
says that it needs it, every number is looked at before it is used as a position, and what does not fit is refused.
"""

from __future__ import annotations

import itertools
import os
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from leaklab.errors import ReportError
from leaklab.files import FilePath, write_bytes
from leaklab.heap.index import FIRST_POSITION, OWN_DICT, UNNAMED, HeapIndex
from leaklab.heap.nodes import ArrayTraits, NodeType, StorageUse, TraitsTable
from leaklab.heap.saved.arrays import HeapArrays
from leaklab.heap.shortest_paths import Start
from leaklab.runtime.addresses import AddressTable

if TYPE_CHECKING:
    from leaklab.runtime.addresses import Ints

SUFFIX: Final = ".heap"
MAGIC: Final = b"leaklab heap 1\n"
HEAP_SCHEMA: Final = 1
_LENGTH_BYTES = 8
_MOST_HEADER_BYTES = 1 << 28
_MOST_OBJECTS = 1 << 28
_MOST_NUMBERS = 1 << 30
_ESCAPE = -(1 << 15)
_SMALL, _LARGE = np.dtype("<i2"), np.dtype("<i8")
_TABLES_OF_MODULES = ("_parameters", "_buffers", "_modules")
_KEY = re.compile(r"\[(?P<quoted>'.*'|\".*\"|.*)\]|value under .*", re.DOTALL)


class _Array(msgspec.Struct, array_like=True):
    """An array of whole numbers: how many, how many of them are large, and the bytes that they are packed in."""

    name: str
    n: int
    n_large: int
    n_packed: int


class _Words(msgspec.Struct):
    """What of a heap is no array of numbers; packed like one."""

    name: str
    taken_at: float
    environment: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    texts: tuple[str, ...]
    kinds: tuple[NodeType, ...]
    contents: tuple[ArrayTraits, ...]
    starts: tuple[Start, ...]
    namespace: int
    n_listed: int


class _HeapHeader(msgspec.Struct):
    """What comes first in a file: the arrays that follow, and the words, packed."""

    schema: int
    arrays: tuple[_Array, ...]
    n_words: int
    n_words_packed: int


_NAMES: Final = (
    "references", "targets", "names", "kinds", "bytes", "contents", "storage_bytes", "storage_users", "users",
    "unseen", "start_objects", "own",
)  # fmt: skip


def save_heap(heap: HeapArrays, path: FilePath, *, redact: bool = False) -> None:
    """Write *heap* to *path*, which must end in ``.heap``.

    Args:
        heap: What to write.
        path: The file.
        redact: Whether to hide the keys of dicts; names of variables, attributes, functions and types stay.

    Raises:
        ReportError: for another suffix, or a file that cannot be written.
    """
    if Path(path).suffix.lower() != SUFFIX:
        msg = f"cannot save as {os.fspath(path)!r}: the name of a heap file must end in {SUFFIX}"
        raise ReportError(msg)
    write_bytes(path, packed_heap(_redacted(heap) if redact else heap))


def packed_heap(heap: HeapArrays) -> bytes:
    """Return *heap* as the bytes of a file."""
    index, use = heap.index, heap.storages
    counts = np.diff(index.forward_offsets)
    owners = np.repeat(np.arange(index.n_vertices, dtype=np.int32), counts)
    names = np.full(index.n_edges, UNNAMED) if index.names is None else index.names
    columns = (
        counts,
        index.forward_targets - owners,  # what was made together lies close together
        names,
        heap.kind_of,
        heap.own_bytes,
        heap.contents.number_of,
        use.sizes,
        np.diff(use.offsets),
        use.users,
        use.is_used_unseen,
        heap.start_vertices,
        heap.own,
    )
    blobs, arrays = [], []
    for name, column in zip(_NAMES, columns, strict=True):
        blob, n_large = _packed(column)
        blobs.append(blob)
        arrays.append(_Array(name, len(column), n_large, len(blob)))
    words = msgspec.json.encode(
        _Words(
            name=heap.name,
            taken_at=heap.taken_at,
            environment=heap.environment,
            notes=heap.notes,
            texts=heap.texts,
            kinds=heap.kinds,
            contents=heap.contents.table,
            starts=tuple(replace(start, address=0) for start in heap.starts),
            namespace=heap.namespace,
            n_listed=heap.n_listed,
        )
    )
    packed_words = zlib.compress(words, 6)
    header = msgspec.json.encode(_HeapHeader(HEAP_SCHEMA, tuple(arrays), len(words), len(packed_words)))
    return b"".join((MAGIC, len(header).to_bytes(_LENGTH_BYTES, "little"), header, packed_words, *blobs))


def _packed(values: Ints) -> tuple[bytes, int]:
    """Return numbers packed, and how many of them are large.

    Two bytes for each; -32768 says that the number is large, and stands behind the others in eight. The first bytes of
    all numbers come first, then the second: that packs better, and level 1 is a third as large as the plain numbers in
    a twentieth of the time of LZMA.
    """
    small = values.astype(_SMALL)
    is_large = (small != values) | (small == _ESCAPE)
    small[is_large] = _ESCAPE
    large = values[is_large].astype(_LARGE)
    planes = [part.view(np.uint8).reshape(len(part), part.itemsize).T.tobytes() for part in (small, large)]
    return zlib.compress(b"".join(planes), 1), len(large)


def load_heap(path: FilePath) -> HeapArrays:
    """Return the heap that `save_heap` wrote.

    Raises:
        ReportError: if the file cannot be read, is damaged, or holds something else.
    """
    try:
        with Path(path).open("rb") as file:
            head = file.read(len(MAGIC))  # what is something else may be larger than memory
            if head != MAGIC:
                _refuse("it does not begin like one")
            return _read(head + file.read())
    except OSError as error:
        msg = f"cannot read {os.fspath(path)!r}: {error.strerror}; give a file that snapshot.save wrote"
        raise ReportError(msg) from error
    except (ValueError, OverflowError, zlib.error, msgspec.MsgspecError) as error:
        msg = (
            f"{os.fspath(path)!r} is not a saved heap that this leaklab can read ({error}); give one saved by "
            "snapshot.save"
        )
        raise ReportError(msg) from error


def _read(data: bytes) -> HeapArrays:
    """Return the heap in *data*, which begins like one.

    Raises:
        ValueError: for what does not fit; and what zlib and msgspec raise.
    """
    at = len(MAGIC) + _LENGTH_BYTES
    n_header = int.from_bytes(data[len(MAGIC) : at], "little")
    if not 0 < n_header <= min(len(data) - at, _MOST_HEADER_BYTES):
        _refuse("it is cut off")
    header = msgspec.json.decode(data[at : at + n_header], type=_HeapHeader)
    if header.schema != HEAP_SCHEMA:
        _refuse(f"it is of schema {header.schema}, this version reads {HEAP_SCHEMA}")
    if tuple(array.name for array in header.arrays) != _NAMES:
        _refuse("its arrays are not those of a heap")
    parts = [header.n_words_packed, *(array.n_packed for array in header.arrays)]
    if min(parts) < 0 or sum(parts) != len(data) - at - n_header:
        _refuse("it is cut off, or has extra data at the end")
    places = np.cumsum([at + n_header, *parts]).tolist()
    blobs = [memoryview(data)[first:last] for first, last in itertools.pairwise(places)]
    _refuse_bombs(header)
    words = msgspec.json.decode(_unpacked_bytes(blobs[0], header.n_words), type=_Words)
    arrays = {array.name: _unpacked(blob, array) for array, blob in zip(header.arrays, blobs[1:], strict=True)}
    return _checked(arrays, words)


def _refuse(problem: str) -> None:
    raise ValueError(problem)


def _refuse_bombs(header: _HeapHeader) -> None:
    for array in header.arrays:
        if not 0 <= array.n_large <= array.n <= _MOST_NUMBERS or array.n > _MOST_RATIO * (array.n_packed + 1):
            _refuse("its header gives an impossible size")
    if not 0 <= header.n_words <= min(_MOST_HEADER_BYTES, _MOST_RATIO * (header.n_words_packed + 1)):
        _refuse("its header gives an impossible size")


_MOST_RATIO: Final = 1100
"""No stream of zlib gets larger than 1,032 times itself."""


def _unpacked_bytes(blob: memoryview, n_bytes: int) -> bytes:
    """Return the *n_bytes* that are packed in *blob*; no more is unpacked."""
    stream = zlib.decompressobj()
    found = stream.decompress(blob, n_bytes + 1)
    if len(found) != n_bytes or not stream.eof or stream.unused_data:
        _refuse("a part has another length than its header says")
    return found


def _unpacked(blob: memoryview, array: _Array) -> Ints:
    n, n_large = array.n, array.n_large
    found = _unpacked_bytes(blob, _SMALL.itemsize * n + _LARGE.itemsize * n_large)
    small = _from_planes(found[: _SMALL.itemsize * n], n, _SMALL)
    places = np.flatnonzero(small == _ESCAPE)
    if len(places) != n_large:
        _refuse(f"{array.name} is damaged")
    if not n_large:
        return small.astype(np.int32)
    large = _from_planes(found[_SMALL.itemsize * n :], n_large, _LARGE)
    is_wide = large.min() < np.iinfo(np.int32).min or large.max() > np.iinfo(np.int32).max
    values = small.astype(np.int64 if is_wide else np.int32)
    values[places] = large
    return values


def _from_planes(data: bytes, n: int, kind: np.dtype[Any]) -> Ints:
    planes = np.frombuffer(data, np.uint8).reshape(kind.itemsize, n)
    found: Ints = np.ascontiguousarray(planes.T).view(kind).reshape(n)
    return found


def _checked(arrays: dict[str, Ints], words: _Words) -> HeapArrays:
    """Return the heap, refused where its parts do not fit each other: no error comes far from here."""
    n_objects, n_references = len(arrays["references"]), len(arrays["targets"])
    if n_objects > _MOST_OBJECTS:
        _refuse("it has more objects than this version reads")
    counts = arrays["references"].astype(np.int64)
    _within("references", counts, n_objects, 0, n_references + 1)
    if counts.sum() != n_references:
        _refuse("the numbers of its references do not fit")
    owners = np.repeat(np.arange(n_objects, dtype=np.int64), counts)
    targets = arrays["targets"] + owners
    users = arrays["storage_users"].astype(np.int64)
    _within("targets", targets, n_references, 0, n_objects)
    _within("names", arrays["names"], n_references, FIRST_POSITION - _MOST_NUMBERS, len(words.texts))
    _within("kinds", arrays["kinds"], n_objects, 0, len(words.kinds))
    _within("bytes", arrays["bytes"], n_objects, 0, 1 << 60)
    _within("contents", arrays["contents"], n_objects, -1, len(words.contents))
    _within("storage_bytes", arrays["storage_bytes"], len(users), 0, 1 << 60)
    _within("storage_users", users, len(users), 1, _MOST_NUMBERS)
    _within("users", arrays["users"], int(users.sum()), 0, n_objects)
    _within("unseen", arrays["unseen"], len(users), 0, 2)
    _within("start_objects", arrays["start_objects"], len(words.starts), -1, n_objects)
    _within("own", arrays["own"], len(arrays["own"]), 0, n_objects)
    _within_one("namespace", words.namespace, -1, n_objects)
    _within_one("n_listed", words.n_listed, 0, n_objects + 1)
    if any(not 0 <= start.cost < _MOST_COST for start in words.starts):
        _refuse("its roots do not fit")
    if arrays["bytes"].sum(dtype=np.float64) + arrays["storage_bytes"].sum(dtype=np.float64) > _MOST_BYTES:
        _refuse("its sizes do not fit")
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    index = HeapIndex(
        np.arange(n_objects), offsets, targets.astype(np.int32), AddressTable(np.zeros(0, np.int64)),
        arrays["names"].astype(np.int32),
    )  # fmt: skip
    return HeapArrays(
        name=words.name,
        taken_at=words.taken_at,
        environment=words.environment,
        notes=words.notes,
        index=index,
        texts=words.texts,
        kind_of=arrays["kinds"].astype(np.int32),
        kinds=words.kinds,
        own_bytes=arrays["bytes"].astype(np.int64),
        contents=TraitsTable(arrays["contents"].astype(np.int32), words.contents),
        storages=StorageUse(
            arrays["storage_bytes"].astype(np.int64),
            np.concatenate([np.zeros(1, np.int64), np.cumsum(users)]),
            arrays["users"].astype(np.int64),
            arrays["unseen"].astype(bool),
        ),
        starts=words.starts,
        start_vertices=arrays["start_objects"].astype(np.int64),
        namespace=words.namespace,
        own=arrays["own"].astype(np.int64),
        n_listed=words.n_listed,
    )


_MOST_COST = 1 << 20
_MOST_BYTES = float(1 << 60)


def _within(name: str, values: Ints, length: int, least: int, limit: int) -> None:
    """Refuse numbers that are too many, too few, below *least*, or not below *limit*."""
    if len(values) != length or (length and not (least <= int(values.min()) and int(values.max()) < limit)):
        _refuse(f"{name} does not fit the rest of it")


def _within_one(name: str, value: int, least: int, limit: int) -> None:
    if not least <= value < limit:
        _refuse(f"{name} does not fit the rest of it")


def _redacted(heap: HeapArrays) -> HeapArrays:
    """Return *heap* with the keys of dicts hidden; those that are names of variables or attributes stay.

    The same key gets the same number everywhere.
    """
    index = heap.index
    if index.names is None:
        return heap
    is_key = np.array([*(_KEY.fullmatch(text) is not None for text in heap.texts), False], bool)
    is_scope = np.zeros(index.n_vertices, bool)
    is_scope[heap.start_vertices[heap.start_vertices >= 0]] = True
    is_scope[[vertex for vertex in (heap.namespace,) if vertex >= 0]] = True
    variables = [start.is_variable for start in heap.starts]
    is_scope[[vertex for vertex, each in zip(heap.start_vertices.tolist(), variables, strict=True) if each]] = False
    # An attribute is named by the instance, or by a dict of its own.
    names_of_tables = [text for name in _TABLES_OF_MODULES for text in (f".{name}", f"[{name!r}]")]
    tables = [heap.texts.index(text) for text in (OWN_DICT, *names_of_tables) if text in heap.texts]
    is_scope[index.forward_targets[np.isin(index.names, tables)]] = True
    owners = np.repeat(np.arange(index.n_vertices), np.diff(index.forward_offsets))
    is_hidden = (index.names >= 0) & is_key.take(index.names) & ~is_scope.take(owners)
    numbers, inverse = np.unique(index.names[is_hidden], return_inverse=True)
    names = index.names.copy()
    names[is_hidden] = len(heap.texts) + inverse
    used = np.zeros(len(heap.texts), bool)
    used[names[(names >= 0) & (names < len(heap.texts))]] = True
    kept = [text if is_used else "" for text, is_used in zip(heap.texts, used.tolist(), strict=True)]
    hidden = [f"['hidden {number + 1}']" for number in range(len(numbers))]
    return replace(heap, index=_with_names(index, names), texts=(*kept, *hidden))


def _with_names(index: HeapIndex, names: Ints) -> HeapIndex:
    table = AddressTable(np.zeros(0, np.int64))
    return HeapIndex(index.ids, index.forward_offsets, index.forward_targets, table, names.astype(np.int32))
