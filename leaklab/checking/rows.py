"""Make the rows of the object and tensor tables from the borrowed heap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from leaklab.collect.checkpoint import Checkpoint
from leaklab.decide.growth import judge_cohorts
from leaklab.explain.leaks.tallies import Tallier
from leaklab.explain.view import OLD, HeapView
from leaklab.model import ObjectGrowth, Outcome, TensorGrowth
from leaklab.objects import is_tensor, loaded_type, no_torch_functions, type_name

MAX_ROWS = 200


def object_rows(
    view: HeapView, tallier: Tallier, n_runs: int, first: Checkpoint, last: Checkpoint
) -> tuple[ObjectGrowth, ...]:
    """Return one row for each type of which earlier runs left objects, the growing ones first, then by bytes."""
    by_kind: dict[int, list[int]] = defaultdict(list)
    for vertex in np.flatnonzero(view.run_of != OLD).tolist():
        by_kind[id(type(view.objects[vertex]))].append(vertex)
    rows = []
    for kind, vertices in by_kind.items():
        kept = _kept(view, vertices, n_runs)
        if not any(kept[:-1]):
            continue
        growth = judge_cohorts(kept)
        n_bytes = tallier.bytes_of(vertices)
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
        for vertex in np.flatnonzero(view.run_of != OLD).tolist():
            thing = view.objects[vertex]
            if base is not None and is_tensor(thing):
                groups[_tensor_key(thing, base)].append(vertex)
    rows = [_tensor_row(view, key, vertices, n_runs) for key, vertices in groups.items()]
    rows = [row for row in rows if any(row.kept[:-1])]
    return tuple(sorted(rows, key=lambda row: (*_order(row.outcome, row.bytes_kept), row.shape))[:MAX_ROWS])


def kept_tensors(view: HeapView, tallier: Tallier, n_runs: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how many tensors each run left, and the bytes of their storages."""
    by_run: dict[int, list[int]] = defaultdict(list)
    for vertex in np.flatnonzero(view.run_of != OLD).tolist():
        if is_tensor(view.objects[vertex]):
            by_run[int(view.run_of[vertex])].append(vertex)
    counts = tuple(len(by_run.get(run, ())) for run in range(n_runs))
    return counts, tuple(tallier.storages_of(by_run.get(run, ())) for run in range(n_runs))


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
    growth = judge_cohorts(kept)
    n_bytes = Tallier.storages_of_all(view, vertices)
    per_tensor = n_bytes / len(vertices)
    return TensorGrowth(
        kind, shape, dtype, device, has_graph, kept, n_bytes, growth.rate, growth.rate * per_tensor, growth.outcome
    )


def _kept(view: HeapView, vertices: Iterable[int], n_runs: int) -> tuple[int, ...]:
    return tuple(np.bincount(view.run_of[list(vertices)], minlength=n_runs).tolist())


def _order(outcome: Outcome, amount: float) -> tuple[int, float]:
    rank = [Outcome.LEAK, Outcome.INCONCLUSIVE, Outcome.BOUNDED, Outcome.CLEAN].index(outcome)
    return rank, -amount
