"""Judge what the runs left in each place and of each type: rows of the tables, places joined as a whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from leaklab.check.judging import Judgement
from leaklab.collect.measurement import Measurement
from leaklab.decide import judge_survivors
from leaklab.decide.verdict import WORST_FIRST
from leaklab.explain.group_sizes import GroupSizer
from leaklab.explain.groups import Group
from leaklab.heap.view import BASELINE, HeapView
from leaklab.model import ObjectGrowth, Outcome, TensorGrowth
from leaklab.runtime.objects import is_tensor, loaded_type, no_torch_functions, type_name

MAX_ROWS = 200
JOINED_SHARE = 1.1
"""Groups of one holder are one place if together they leak by more than this times what they leak apart."""


def join_groups(view: HeapView, groups: list[Group], n_runs: int) -> list[Group]:
    """Join the groups of one holder where only together they leak: a new name for each object must not hide them."""
    by_holder: dict[int, list[Group]] = defaultdict(list)
    for group in groups:
        by_holder[group.holder].append(group)
    return [group for parts in by_holder.values() for group in _joined(view, parts, n_runs)]


def _joined(view: HeapView, parts: list[Group], n_runs: int) -> list[Group]:
    if len(parts) == 1:
        return parts
    whole = Group.union(parts)
    growths = [judge_survivors(part.kept(view, n_runs, part.entries)) for part in parts]
    together = judge_survivors(whole.kept(view, n_runs, whole.entries))
    apart = sum(growth.rate for growth in growths if growth.outcome is Outcome.LEAK)
    is_more = together.outcome is Outcome.LEAK and together.rate > JOINED_SHARE * apart
    return [whole] if is_more else parts


def object_rows(
    view: HeapView, sizer: GroupSizer, judgement: Judgement, measurement: Measurement
) -> tuple[ObjectGrowth, ...]:
    """Return one row for each type of which earlier runs left objects, the growing ones first, then by bytes."""
    first, last = measurement.checkpoints[0], measurement.checkpoints[-1]
    by_kind: dict[int, list[int]] = defaultdict(list)
    for vertex in np.flatnonzero(view.birth_run != BASELINE).tolist():
        by_kind[id(type(view.objects[vertex]))].append(vertex)
    rows = []
    for kind, vertices in by_kind.items():
        kept = _kept(view, vertices, measurement.n_runs)
        if not any(kept[:-1]):
            continue
        growth = judgement.growth_of(kind, kept)
        n_bytes = sizer.bytes_of(vertices)
        rows.append(
            ObjectGrowth(
                kind=type_name(type(view.objects[vertices[0]])),
                kept=kept,
                n_before=first.count_of(kind),
                n_after=last.count_of(kind),
                count_per_run=growth.rate,
                bytes_per_run=growth.rate * n_bytes / len(vertices),
                outcome=growth.outcome,
            )
        )
    return tuple(sorted(rows, key=lambda row: (*_order(row.outcome, row.bytes_per_run), row.kind))[:MAX_ROWS])


def tensor_rows(view: HeapView, n_runs: int) -> tuple[TensorGrowth, ...]:
    """Return one row for each type, shape, dtype and device of tensors that earlier runs left."""
    base = loaded_type("torch", "Tensor")
    groups: dict[tuple[str, tuple[int, ...], str, str, bool], list[int]] = defaultdict(list)
    with no_torch_functions():
        for vertex in np.flatnonzero(view.birth_run != BASELINE).tolist():
            thing = view.objects[vertex]
            if base is not None and is_tensor(thing):
                groups[_tensor_key(thing, base)].append(vertex)
    rows = [_tensor_row(view, key, vertices, n_runs) for key, vertices in groups.items()]
    rows = [row for row in rows if any(row.kept[:-1])]
    return tuple(sorted(rows, key=lambda row: (*_order(row.outcome, row.bytes_kept), row.shape))[:MAX_ROWS])


def kept_tensors(view: HeapView, sizer: GroupSizer, n_runs: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how many tensors each run left, and the bytes of their storages."""
    by_run: dict[int, list[int]] = defaultdict(list)
    for vertex in np.flatnonzero(view.birth_run != BASELINE).tolist():
        if is_tensor(view.objects[vertex]):
            by_run[int(view.birth_run[vertex])].append(vertex)
    counts = tuple(len(by_run.get(run, ())) for run in range(n_runs))
    return counts, tuple(sizer.storages_of(by_run.get(run, ())) for run in range(n_runs))


def _tensor_key(thing: object, base: type) -> tuple[str, tuple[int, ...], str, str, bool]:
    try:
        shape = tuple(int(size) for size in base.size(thing))  # type: ignore[attr-defined]  # torch.Tensor
    except (RuntimeError, TypeError, ValueError):
        shape = ()
    dtype = str(base.dtype.__get__(thing)).removeprefix("torch.")  # type: ignore[attr-defined]
    device = str(base.device.__get__(thing))  # type: ignore[attr-defined]
    has_graph = base.grad_fn.__get__(thing) is not None  # type: ignore[attr-defined]
    return type_name(type(thing)), shape, dtype, device, has_graph


def _tensor_row(
    view: HeapView, key: tuple[str, tuple[int, ...], str, str, bool], vertices: list[int], n_runs: int
) -> TensorGrowth:
    kind, shape, dtype, device, has_graph = key
    kept = _kept(view, vertices, n_runs)
    growth = judge_survivors(kept)
    n_bytes = GroupSizer.storages_of_all(view, vertices)
    per_tensor = n_bytes / len(vertices)
    return TensorGrowth(
        kind, shape, dtype, device, has_graph, kept, n_bytes, growth.rate, growth.rate * per_tensor, growth.outcome
    )


def _kept(view: HeapView, vertices: Iterable[int], n_runs: int) -> tuple[int, ...]:
    return tuple(np.bincount(view.birth_run[list(vertices)], minlength=n_runs).tolist())


def _order(outcome: Outcome, amount: float) -> tuple[int, float]:
    return WORST_FIRST.index(outcome), -amount
