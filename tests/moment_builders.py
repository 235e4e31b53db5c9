"""Moments written by hand: objects as ``{address: type name}``, tensors and containers beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from leaklab.model.heap_diff import HeapSnapshotRecord, Place, SnapshotWords, TensorKind

FLOATS = TensorKind("torch.Tensor", "(64, 128)", "float32", "cpu", has_graph=False)


def kind_address(name: str) -> int:
    """Every type name has one address, far from those of the objects."""
    return 10_000_000 + sum(ord(letter) * 31**place for place, letter in enumerate(name)) * 16 % 8_000_000


def moment(
    objects: Mapping[int, str],
    *,
    name: str = "m",
    process: str = "1-1.0",
    taken_at: float = 0.0,
    token: str = "t",  # noqa: S107 - the name of a moment, no password
    exact_since: str = "",
    collected: bool = True,
    young: Sequence[int] = (),
    lengths: Mapping[int, int] | None = None,
    tensors: Mapping[int, TensorKind] | None = None,
    storages: Sequence[tuple[int, int, int]] = (),
    arrays: Sequence[tuple[int, str, int]] = (),
    places: Sequence[Place] = (),
    modules: Sequence[str] = (),
) -> HeapSnapshotRecord:
    """Build a moment.

    *storages* are ``(address of the tensor or -1, key, bytes)``, *arrays* ``(address, words, bytes)``.
    """
    lengths, tensors = dict(lengths or {}), dict(tensors or {})
    addresses = sorted(objects)
    names = sorted(set(objects.values()), key=kind_address)
    rows = {address: row for row, address in enumerate(addresses)}
    tensor_rows = sorted(rows[address] for address in tensors)
    positions = {addresses[row]: place for place, row in enumerate(tensor_rows)}
    kinds = list(dict.fromkeys(tensors[addresses[row]] for row in tensor_rows))
    devices = list(dict.fromkeys(kind.device for kind in kinds)) or ["cpu"]
    array_words = list(dict.fromkeys(words for _address, words, _size in arrays))
    ordered = sorted(arrays)
    containers = sorted(lengths)

    def whole(numbers: Sequence[int]) -> np.ndarray:
        return np.array(list(numbers), np.int64)

    def small(numbers: Sequence[int]) -> np.ndarray:
        return np.array(list(numbers), np.int32)

    return HeapSnapshotRecord(
        name=name,
        taken_at=taken_at,
        process=process,
        token=token,
        exact_since=exact_since,
        collected=collected,
        addresses=whole(addresses),
        kinds=small(names.index(objects[address]) for address in addresses),
        kind_addresses=whole(map(kind_address, names)),
        kind_bytes=whole(64 * sum(kind == name for kind in objects.values()) for name in names),
        young=whole(sorted(young)),
        container_rows=small(rows[address] for address in containers),
        lengths=whole(lengths[address] for address in containers),
        tensor_rows=small(tensor_rows),
        tensor_kinds=small(kinds.index(tensors[addresses[row]]) for row in tensor_rows),
        storage_tensors=small(positions.get(address, -1) for address, _key, _size in storages),
        storage_keys=whole(key for _address, key, _size in storages),
        storage_bytes=whole(size for _address, _key, size in storages),
        storage_devices=small(
            devices.index(tensors[address].device) if address in tensors else 0 for address, _key, _size in storages
        ),
        array_addresses=whole(address for address, _words, _size in ordered),
        array_kinds=small(array_words.index(words) for _address, words, _size in ordered),
        array_bytes=whole(size for _address, _words, size in ordered),
        words=msgspec.json.encode(
            SnapshotWords(tuple(names), tuple(kinds), tuple(devices), tuple(array_words), tuple(places), tuple(modules))
        ),
        heap_bytes=(1000, 2000),
        accelerator_bytes=-1,
        rss_bytes=0,
        n_left_out=0,
    )


def place(expression: str, address: int, kind: str, *, summary: str = "", n_bytes: int = 64, length: int = -1) -> Place:
    return Place(expression, "notebook", address, kind, summary, n_bytes, length)
