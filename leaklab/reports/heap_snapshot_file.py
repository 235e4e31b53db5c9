"""Save a heap snapshot as one file of arrays and read it back; no pickle is ever written or read."""

from __future__ import annotations

import io
import os
import zipfile
from dataclasses import fields
from typing import Any

import msgspec
import numpy as np

from leaklab.errors import ReportError
from leaklab.files import FilePath, write_bytes
from leaklab.model.heap_diff import MOMENT_SCHEMA, HeapSnapshotRecord, SnapshotWords
from leaklab.render.base import known_suffix, read_bytes

SUFFIX = ".npz"
_FORMAT = "leaklab moment"
_HEADER = "header"
_MAX_BYTES = 1 << 32  # a moment of a hundred million objects is half of that; more is no moment of ours
_PLAIN = ("name", "taken_at", "process", "token", "exact_since", "collected", "heap_bytes", "accelerator_bytes",
          "rss_bytes", "n_left_out", "schema")  # fmt: skip
_ARRAYS = tuple(field.name for field in fields(HeapSnapshotRecord) if field.name not in (*_PLAIN, "words"))
_SMALL = frozenset(
    {"kinds", "container_rows", "tensor_rows", "tensor_kinds", "storage_tensors", "storage_devices", "array_kinds"}
)


class _FileHeader(msgspec.Struct):
    """The fields of a moment that are no arrays."""

    format: str
    schema: int
    name: str
    taken_at: float
    process: str
    token: str
    exact_since: str
    collected: bool
    heap_bytes: tuple[int, int]
    accelerator_bytes: int
    rss_bytes: int
    n_left_out: int


def save_heap_snapshot(moment: HeapSnapshotRecord, path: FilePath) -> None:
    """Write *moment* to *path*, which must end in ``.npz``.

    Raises:
        ReportError: for another suffix, or a file that cannot be written.
    """
    known_suffix(path, (SUFFIX,))
    header = _FileHeader(format=_FORMAT, **{name: getattr(moment, name) for name in _PLAIN})
    arrays = {name: getattr(moment, name) for name in _ARRAYS}
    arrays["words"] = np.frombuffer(moment.words, np.uint8)
    arrays[_HEADER] = np.frombuffer(msgspec.json.encode(header), np.uint8)
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)
    write_bytes(path, packed.getbuffer())


def load_heap_snapshot(path: FilePath) -> HeapSnapshotRecord:
    """Return the moment that `save_heap_snapshot` wrote.

    Raises:
        ReportError: if the file cannot be read, is damaged, or holds something else.
    """
    data = read_bytes(path, (b"PK",), "a heap snapshot: give one saved by snapshot.save")
    try:
        _refuse_bombs(data)
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return _moment_of(arrays)
    except (
        ValueError,
        KeyError,
        OSError,
        EOFError,
        zipfile.BadZipFile,
        msgspec.MsgspecError,
        NotImplementedError,
    ) as error:
        why = "it is cut off or damaged" if isinstance(error, zipfile.BadZipFile) else error
        msg = (
            f"{os.fspath(path)!r} is not a heap snapshot that this leaklab can read ({why}); give one saved by "
            "snapshot.save"
        )
        raise ReportError(msg) from error


def _refuse_bombs(data: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > _MAX_BYTES:
            msg = "it would take more than 4 GiB when unpacked"
            raise ValueError(msg)


def _moment_of(arrays: dict[str, Any]) -> HeapSnapshotRecord:
    header = msgspec.json.decode(arrays.pop(_HEADER).tobytes(), type=_FileHeader)
    if header.format != _FORMAT or header.schema != MOMENT_SCHEMA:
        msg = f"it is of schema {header.schema} of {header.format!r}, this version reads {MOMENT_SCHEMA} of {_FORMAT!r}"
        raise ValueError(msg)
    words = arrays.pop("words").tobytes()
    _refuse_strangers(arrays, msgspec.json.decode(words, type=SnapshotWords))
    plain = {name: getattr(header, name) for name in _PLAIN}
    return HeapSnapshotRecord(words=words, **plain, **arrays)


def _refuse_strangers(arrays: dict[str, Any], words: SnapshotWords) -> None:
    """Refuse arrays that do not fit each other: a changed file must not end in an error far from here."""
    if set(arrays) != set(_ARRAYS):
        msg = f"arrays are missing or too many: {', '.join(sorted(set(arrays) ^ set(_ARRAYS)))}"
        raise ValueError(msg)
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype != (np.int32 if name in _SMALL else np.int64):
            msg = f"{name} is not a list of whole numbers"
            raise ValueError(msg)
    n_objects, n_tensors = len(arrays["addresses"]), len(arrays["tensor_rows"])
    limits = {
        "kinds": (n_objects, len(words.kinds)),
        "kind_bytes": (len(words.kinds), None),
        "kind_addresses": (len(words.kinds), None),
        "container_rows": (len(arrays["lengths"]), n_objects),
        "tensor_rows": (n_tensors, n_objects),
        "tensor_kinds": (n_tensors, len(words.tensor_kinds)),
        "storage_tensors": (len(arrays["storage_keys"]), n_tensors),
        "storage_bytes": (len(arrays["storage_keys"]), None),
        "storage_devices": (len(arrays["storage_keys"]), len(words.devices)),
        "array_kinds": (len(arrays["array_addresses"]), len(words.arrays)),
        "array_bytes": (len(arrays["array_addresses"]), None),
    }
    for name, (length, limit) in limits.items():
        array = arrays[name]
        least = -1 if name == "storage_tensors" else 0
        if len(array) != length or (
            limit is not None and len(array) and not least <= array.min() <= array.max() < limit
        ):
            msg = f"{name} does not fit the other arrays"
            raise ValueError(msg)
