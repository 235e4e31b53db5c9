"""Compare two moments: what was born, died, grew and was replaced between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np

from leaklab.decide.pairing import Pairs, common_rows, is_among, pair_objects
from leaklab.decide.place_changes import compare_places
from leaklab.decide.tensor_changes import compare_arrays, compare_devices, compare_tensors
from leaklab.model.differences import Changed, Difference, ObjectChange, TensorChange
from leaklab.model.moments import HeapMoment, MomentWords, Place, Small, Whole

_NONE = np.empty(0, np.int64)
_NO_ROWS = np.empty((0, 2), np.int64)


def unpack(words: bytes) -> MomentWords:
    """Return the texts of a moment."""
    return msgspec.json.decode(words, type=MomentWords)


def compare_moments(a: HeapMoment, b: HeapMoment) -> tuple[Difference, Changed]:
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


def _born_tensors(b: HeapMoment, words: MomentWords, born: Whole, rows: tuple[TensorChange, ...]) -> Whole:
    """Return the address of each tensor born, and the row that counts it."""
    numbers = {row.what: number for number, row in enumerate(rows)}
    row_of_kind = np.array([numbers.get(kind, -1) for kind in words.tensor_kinds] or [-1], np.int64)
    addresses = b.addresses[b.tensor_rows]
    table = np.stack([addresses, row_of_kind[b.tensor_kinds]], axis=1)
    result: Whole = table[is_among(addresses, born) & (table[:, 1] >= 0)]
    return result


def _step(before: int, after: int) -> int | None:
    return after - before if min(before, after) >= 0 else None


def _notes(a: HeapMoment, b: HeapMoment, *, same_process: bool) -> tuple[str, ...]:
    notes = []
    if not same_process:
        notes.append(
            "the moments are of two processes: their addresses mean nothing to each other, so kinds are compared;"
            " what was born and died is the net change of each kind"
        )
    if not (a.collected and b.collected):
        notes.append(
            "garbage was not collected, as the collector is switched off or objects were frozen: it counts as alive"
        )
    return tuple(notes)


def _strangers(a: HeapMoment, b: HeapMoment) -> Pairs:
    return Pairs(_NONE, _NONE, np.ones(len(a.addresses), bool), np.ones(len(b.addresses), bool), exact=False)


def _objects(
    a: HeapMoment, b: HeapMoment, words_a: MomentWords, words_b: MomentWords, pairs: Pairs, *, same_process: bool
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


def _grown(a: HeapMoment, b: HeapMoment, pairs: Pairs) -> Whole:
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
