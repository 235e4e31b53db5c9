"""Compare two heap snapshots: what was born, died, grew and was replaced between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np

from leaklab.decide.pairing import Mask, Pairs, common_rows, is_among, pair_objects
from leaklab.model.heap_diff import (
    ArrayChange,
    Changed,
    DeviceChange,
    Difference,
    HeapSnapshotRecord,
    ObjectChange,
    Place,
    PlaceChange,
    Small,
    SnapshotWords,
    TensorChange,
    TensorKind,
    Whole,
)

_HOME_FIRST: Final = "notebook"
_ORDER: Final = {"born": 0, "replaced": 1, "grown": 2, "shrunk": 3, "died": 4}


def compare_places(
    before: Iterable[Place], after: Iterable[Place], *, same_process: bool, born: frozenset[int] = frozenset()
) -> tuple[PlaceChange, ...]:
    """Return what became of each name: ``born``, ``died``, ``replaced``, ``grown`` or ``shrunk``.

    A name is ``replaced`` if it refers to another object. One number or short text in the place of another is no
    change of memory and is not told.

    *born* has addresses known to be of objects born between the moments; *same_process* says whether addresses of
    the two can be compared.
    """
    old = {place.expression: place for place in before}
    new = {place.expression: place for place in after}
    rows = []
    for expression in {**old, **new}:
        was, now = old.get(expression), new.get(expression)
        change = _change(was, now, same_process=same_process, born=born)
        if change:
            known = now or was
            assert known is not None  # noqa: S101 - the name comes from one of the two
            rows.append(
                PlaceChange(
                    expression, known.home, change, _words(was), _words(now),
                    was.n_bytes if was else 0, now.n_bytes if now else 0,
                )
            )  # fmt: skip
    return tuple(sorted(rows, key=_order))


_SCALARS: Final = frozenset({"int", "float", "bool", "complex", "str", "bytes", "NoneType"})
_BIG: Final = 1024
"""Bytes from which on even a text in the place of another text is told."""


def _change(was: Place | None, now: Place | None, *, same_process: bool, born: frozenset[int]) -> str:
    if was is None:
        return "born"
    if now is None:
        return "died"
    looks_same = (was.summary, was.n_bytes, was.length) == (now.summary, now.n_bytes, now.length)
    if was.kind != now.kind or now.address in born or (same_process and was.address != now.address):
        return "replaced" if _is_memory(was) or _is_memory(now) else ""
    if looks_same:
        return ""
    size, size_before = (now.length, was.length) if now.length != was.length else (now.n_bytes, was.n_bytes)
    if size == size_before:
        return "replaced"
    return "grown" if size > size_before else "shrunk"


def _is_memory(place: Place) -> bool:
    """Return whether a reader would want to know that another object is there: one number for another is none."""
    return place.kind not in _SCALARS or place.n_bytes >= _BIG


def _words(place: Place | None) -> str:
    if place is None:
        return ""
    separator = " " if place.summary.startswith("(") else ", "
    return separator.join(filter(None, (place.kind, place.summary)))


def _order(row: PlaceChange) -> tuple[bool, int, int, str]:
    return row.home != _HOME_FIRST, _ORDER[row.change], -max(row.bytes_before, row.bytes_after), row.expression


_Array = tuple[int, str, int]  # address, words, bytes


def compare_tensors(
    a: HeapSnapshotRecord,
    b: HeapSnapshotRecord,
    words_a: SnapshotWords,
    words_b: SnapshotWords,
    pairs: Pairs,
    *,
    same_process: bool,
) -> tuple[TensorChange, ...]:
    """Return a row for each kind of tensor of which some were born or died, most bytes first."""
    born, died = pairs.born[b.tensor_rows], pairs.died[a.tensor_rows]
    if same_process:
        changed_a, changed_b = _changed_in_place(a, b, words_a, words_b, pairs)
        born, died = born | changed_b, died | changed_a
    n_before, n_after = _count(a, words_a, None), _count(b, words_b, None)
    n_born, n_died = _count(b, words_b, born), _count(a, words_a, died)
    bytes_born, bytes_died = _fresh_bytes(b, words_b, born), _fresh_bytes(a, words_a, died)
    if not same_process:
        n_born, n_died = n_after - n_before, n_before - n_after
        # Nobody knows which of them are the new ones: they get their share of the bytes of their kind.
        bytes_born = Counter({kind: bytes_born[kind] * n // n_after[kind] for kind, n in n_born.items()})
        bytes_died = Counter({kind: bytes_died[kind] * n // n_before[kind] for kind, n in n_died.items()})
    rows = [
        TensorChange(
            kind, n_born[kind], n_died[kind], n_before[kind], n_after[kind], bytes_born[kind], bytes_died[kind]
        )
        for kind in {**n_born, **n_died}  # no set: equals would come in another order in every process
    ]  # fmt: skip
    return tuple(sorted(rows, key=lambda row: (-(row.bytes_born + row.bytes_died), -row.n_born, str(row.what))))


def _changed_in_place(
    a: HeapSnapshotRecord, b: HeapSnapshotRecord, words_a: SnapshotWords, words_b: SnapshotWords, pairs: Pairs
) -> tuple[Mask, Mask]:
    """Return which tensors of *a* and of *b* have the same address and another shape, dtype or device.

    That is another tensor in the place of the first, or one that was resized: either way the first kind lost one.
    """
    changed_a, changed_b = np.zeros(len(a.tensor_rows), bool), np.zeros(len(b.tensor_rows), bool)
    among_survivors, in_a = common_rows(pairs.survivors_a, a.tensor_rows.astype(np.int64))
    in_b = np.searchsorted(b.tensor_rows, pairs.survivors_b[among_survivors])
    # A graph may come to a tensor that stays what it is.
    plain_a = [replace(kind, has_graph=False) for kind in words_a.tensor_kinds]
    plain_b = [replace(kind, has_graph=False) for kind in words_b.tensor_kinds]
    for row_a, row_b in zip(in_a.tolist(), in_b.tolist(), strict=True):
        if plain_a[a.tensor_kinds[row_a]] != plain_b[b.tensor_kinds[row_b]]:
            changed_a[row_a] = changed_b[row_b] = True
    return changed_a, changed_b


def _count(moment: HeapSnapshotRecord, words: SnapshotWords, chosen: Mask | None) -> Counter[TensorKind]:
    numbers = moment.tensor_kinds if chosen is None else moment.tensor_kinds[chosen]
    return Counter({words.tensor_kinds[number]: count for number, count in Counter(numbers.tolist()).items()})


def _fresh_bytes(moment: HeapSnapshotRecord, words: SnapshotWords, chosen: Mask) -> Counter[TensorKind]:
    """Return by kind the bytes of storages that no other tensor than the *chosen* ones owns, each counted once."""
    owned = moment.storage_tensors >= 0
    keys, sizes, owners = moment.storage_keys[owned], moment.storage_bytes[owned], moment.storage_tensors[owned]
    is_chosen = chosen[owners]
    fresh = is_chosen & ~np.isin(keys, keys[~is_chosen])
    _keys, first = np.unique(keys[fresh], return_index=True)
    result: Counter[TensorKind] = Counter()
    for owner, size in zip(owners[fresh][first].tolist(), sizes[fresh][first].tolist(), strict=True):
        result[words.tensor_kinds[moment.tensor_kinds[owner]]] += size
    return result


def compare_arrays(
    a: HeapSnapshotRecord, b: HeapSnapshotRecord, words_a: SnapshotWords, words_b: SnapshotWords, *, same_process: bool
) -> tuple[tuple[ArrayChange, ...], Whole]:
    """Compare the arrays that the collector does not know; those of one address, kind and size are the same one.

    Returns:
        The rows, most bytes first, and the address of each array born with the number of its row, shape ``(n, 2)``;
        no addresses across processes.
    """
    before, after = _arrays(a, words_a), _arrays(b, words_b)
    if not same_process:
        before, after = _numbered(before), _numbered(after)
    known, there = set(before), set(after)
    born = [array for array in after if array not in known]
    died = [array for array in before if array not in there]
    rows = []
    for what in {what for _address, what, _size in (*born, *died)}:
        sizes_born = [size for _address, words, size in born if words == what]
        sizes_died = [size for _address, words, size in died if words == what]
        rows.append(ArrayChange(what, len(sizes_born), len(sizes_died), sum(sizes_born), sum(sizes_died)))
    rows.sort(key=lambda row: (-(row.bytes_born + row.bytes_died), row.what))
    numbers = {row.what: number for number, row in enumerate(rows)}
    addresses = [(address, numbers[what]) for address, what, _size in born] if same_process else []
    return tuple(rows), np.array(addresses, np.int64).reshape(-1, 2)


def _arrays(moment: HeapSnapshotRecord, words: SnapshotWords) -> list[_Array]:
    kinds = [words.arrays[number] for number in moment.array_kinds.tolist()]
    return list(zip(moment.array_addresses.tolist(), kinds, moment.array_bytes.tolist(), strict=True))


def _numbered(arrays: list[_Array]) -> list[_Array]:
    """Replace the addresses, which mean nothing to another process, by numbers within each kind and size."""
    seen: Counter[tuple[str, int]] = Counter()
    result = []
    for _address, what, size in arrays:
        seen[what, size] += 1
        result.append((seen[what, size], what, size))
    return result


def compare_devices(
    a: HeapSnapshotRecord, b: HeapSnapshotRecord, words_a: SnapshotWords, words_b: SnapshotWords
) -> tuple[DeviceChange, ...]:
    """Return a row for each device that holds a tensor's storage at either moment."""
    before, after = _by_device(a, words_a), _by_device(b, words_b)
    nothing = (0, 0, 0)
    rows = []
    for device in sorted({*before, *after}):
        tensors_a, storages_a, bytes_a = before.get(device, nothing)
        tensors_b, storages_b, bytes_b = after.get(device, nothing)
        rows.append(DeviceChange(device, tensors_a, tensors_b, storages_a, storages_b, bytes_a, bytes_b))
    return tuple(rows)


def _by_device(moment: HeapSnapshotRecord, words: SnapshotWords) -> dict[str, tuple[int, int, int]]:
    """Return tensors, unique storages and their bytes for each device that has storages: ``meta`` has none."""
    counts = Counter(words.tensor_kinds[number].device for number in moment.tensor_kinds.tolist())
    _keys, first = np.unique(moment.storage_keys, return_index=True)
    devices, sizes = moment.storage_devices[first], moment.storage_bytes[first]
    return {
        device: (counts[device], int((devices == number).sum()), int(sizes[devices == number].sum()))
        for number, device in enumerate(words.devices)
        if number in devices
    }


_NONE = np.empty(0, np.int64)
_NO_ROWS = np.empty((0, 2), np.int64)


def unpack(words: bytes) -> SnapshotWords:
    """Return the texts of a moment."""
    return msgspec.json.decode(words, type=SnapshotWords)


def compare_heap_snapshots(a: HeapSnapshotRecord, b: HeapSnapshotRecord) -> tuple[Difference, Changed]:
    """Compare *a* with the later *b*.

    Within a process objects are followed by address. Across processes only kinds can be compared: what there is more of
    counts as born, what there is less of as died.

    Returns:
        The record, in which nothing says yet who holds what, and the addresses that it is about.
    """
    words_a, words_b = unpack(a.words), unpack(b.words)
    same_process = a.process == b.process
    pairs = pair_objects(a, b, words_a, words_b) if same_process else _strangers(a, b)
    born = b.addresses[pairs.born] if same_process else _NONE
    tensors = compare_tensors(a, b, words_a, words_b, pairs, same_process=same_process)
    arrays, born_arrays = compare_arrays(a, b, words_a, words_b, same_process=same_process)
    difference = Difference(
        before=a.name,
        after=b.name,
        seconds=b.taken_at - a.taken_at,
        same_process=same_process,
        exact=pairs.exact,
        objects=_objects(a, b, words_a, words_b, pairs, same_process=same_process),
        tensors=tensors,
        arrays=arrays,
        containers=(),
        places=compare_places(
            words_a.places, words_b.places, same_process=same_process, born=_among(words_b.places, born)
        ),
        devices=compare_devices(a, b, words_a, words_b),
        object_bytes=int(b.kind_bytes.sum() - a.kind_bytes.sum()),
        heap_bytes=_step(a.heap_bytes[1], b.heap_bytes[0]),
        accelerator_bytes=_step(a.accelerator_bytes, b.accelerator_bytes),
        rss_bytes=b.rss_bytes - a.rss_bytes,
        new_modules=tuple(sorted(set(words_b.modules) - set(words_a.modules))) if words_a.modules else (),
        notes=_notes(a, b, same_process=same_process),
    )
    if not same_process:
        return difference, Changed(_NONE, _NO_ROWS, _NO_ROWS, np.empty((0, 3), np.int64))
    return difference, Changed(born, _born_tensors(b, words_b, born, tensors), born_arrays, _grown(a, b, pairs))


def _among(places: Iterable[Place], born: Whole) -> frozenset[int]:
    """Return the addresses of those values that were born."""
    addresses = np.array([place.address for place in places], np.int64)
    return frozenset(addresses[is_among(addresses, born)].tolist())


def _born_tensors(b: HeapSnapshotRecord, words: SnapshotWords, born: Whole, rows: tuple[TensorChange, ...]) -> Whole:
    """Return the address of each tensor born, and the row that counts it."""
    numbers = {row.what: number for number, row in enumerate(rows)}
    row_of_kind = np.array([numbers.get(kind, -1) for kind in words.tensor_kinds] or [-1], np.int64)
    addresses = b.addresses[b.tensor_rows]
    table = np.stack([addresses, row_of_kind[b.tensor_kinds]], axis=1)
    result: Whole = table[is_among(addresses, born) & (table[:, 1] >= 0)]
    return result


def _step(before: int, after: int) -> int | None:
    return after - before if min(before, after) >= 0 else None


def _notes(a: HeapSnapshotRecord, b: HeapSnapshotRecord, *, same_process: bool) -> tuple[str, ...]:
    notes = []
    if not same_process:
        notes.append(
            "the snapshots come from two processes, so objects cannot be matched by address: births and deaths are "
            "the net change of each kind"
        )
    if not (a.collected and b.collected):
        notes.append("garbage counts as alive, because the collector is off or objects are frozen")
    return tuple(notes)


def _strangers(a: HeapSnapshotRecord, b: HeapSnapshotRecord) -> Pairs:
    return Pairs(_NONE, _NONE, np.ones(len(a.addresses), bool), np.ones(len(b.addresses), bool), exact=False)


def _objects(
    a: HeapSnapshotRecord,
    b: HeapSnapshotRecord,
    words_a: SnapshotWords,
    words_b: SnapshotWords,
    pairs: Pairs,
    *,
    same_process: bool,
) -> tuple[ObjectChange, ...]:
    before, after = _by_name(a.kinds, words_a.kinds), _by_name(b.kinds, words_b.kinds)
    if same_process:
        born, died = _by_name(b.kinds[pairs.born], words_b.kinds), _by_name(a.kinds[pairs.died], words_a.kinds)
    else:
        born, died = after - before, before - after
    bytes_before = _weigh(words_a.kinds, a.kind_bytes)
    bytes_after = _weigh(words_b.kinds, b.kind_bytes)
    rows = []
    for kind in {*born, *died, *bytes_before, *bytes_after}:
        delta = bytes_after[kind] - bytes_before[kind]
        if born[kind] or died[kind] or delta:
            rows.append(ObjectChange(kind, born[kind], died[kind], before[kind], after[kind], delta))
    return tuple(sorted(rows, key=_size_of_change))


def _size_of_change(row: ObjectChange) -> tuple[int, int, str]:
    return -abs(row.n_after - row.n_before), -(row.n_born + row.n_died), row.kind


def _by_name(numbers: Small, names: tuple[str, ...]) -> Counter[str]:
    """Count *numbers* by their names; two types of one name are one row."""
    counts = np.bincount(numbers, minlength=len(names))
    result: Counter[str] = Counter()
    for number in np.flatnonzero(counts).tolist():
        result[names[number]] += int(counts[number])
    return result


def _weigh(names: tuple[str, ...], weights: Whole) -> Counter[str]:
    result: Counter[str] = Counter()
    for name, weight in zip(names, weights.tolist(), strict=True):
        result[name] += weight
    return result


def _grown(a: HeapSnapshotRecord, b: HeapSnapshotRecord, pairs: Pairs) -> Whole:
    """Return the containers that live at both moments and have another length."""
    at_a, at_b = common_rows(pairs.survivors_a, a.container_rows.astype(np.int64))
    if not len(at_a):
        return np.empty((0, 3), np.int64)
    rows_b = pairs.survivors_b[at_a]
    places_b = np.minimum(np.searchsorted(b.container_rows, rows_b), max(len(b.container_rows) - 1, 0))
    known = b.container_rows[places_b] == rows_b
    before, after = a.lengths[at_b[known]], b.lengths[places_b[known]]
    changed = before != after
    table: Whole = np.stack([b.addresses[rows_b[known]], before, after], axis=1)[changed]
    return table[np.argsort(-np.abs(table[:, 2] - table[:, 1]), kind="stable")]
