"""Compare the tensors, arrays and devices of two moments."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from leaklab.decide.pairing import Mask, Pairs, common_rows
from leaklab.model.differences import ArrayChange, DeviceChange, TensorChange
from leaklab.model.moments import HeapMoment, MomentWords, TensorKind, Whole

_Array = tuple[int, str, int]  # address, words, bytes


def compare_tensors(
    a: HeapMoment, b: HeapMoment, words_a: MomentWords, words_b: MomentWords, pairs: Pairs, *, same_process: bool
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
        for kind in {*n_born, *n_died}
    ]  # fmt: skip
    return tuple(sorted(rows, key=lambda row: (-(row.bytes_born + row.bytes_died), -row.n_born, str(row.what))))


def _changed_in_place(
    a: HeapMoment, b: HeapMoment, words_a: MomentWords, words_b: MomentWords, pairs: Pairs
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


def _count(moment: HeapMoment, words: MomentWords, chosen: Mask | None) -> Counter[TensorKind]:
    numbers = moment.tensor_kinds if chosen is None else moment.tensor_kinds[chosen]
    return Counter({words.tensor_kinds[number]: count for number, count in Counter(numbers.tolist()).items()})


def _fresh_bytes(moment: HeapMoment, words: MomentWords, chosen: Mask) -> Counter[TensorKind]:
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
    a: HeapMoment, b: HeapMoment, words_a: MomentWords, words_b: MomentWords, *, same_process: bool
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


def _arrays(moment: HeapMoment, words: MomentWords) -> list[_Array]:
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
    a: HeapMoment, b: HeapMoment, words_a: MomentWords, words_b: MomentWords
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


def _by_device(moment: HeapMoment, words: MomentWords) -> dict[str, tuple[int, int, int]]:
    """Return tensors, unique storages and their bytes for each device that has storages: ``meta`` has none."""
    counts = Counter(words.tensor_kinds[number].device for number in moment.tensor_kinds.tolist())
    _keys, first = np.unique(moment.storage_keys, return_index=True)
    devices, sizes = moment.storage_devices[first], moment.storage_bytes[first]
    return {
        device: (counts[device], int((devices == number).sum()), int(sizes[devices == number].sum()))
        for number, device in enumerate(words.devices)
        if number in devices
    }
