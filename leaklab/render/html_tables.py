"""Write the tables of a check as HTML: objects, tensors, containers, runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leaklab.model import Check, ContainerGrowth, Leak, ObjectGrowth, Outcome, Run, TensorGrowth
from leaklab.render.parts import ACCENT, CALM, DOUBTFUL, GOOD, bars, code, escaped, faint, fold, pill, table
from leaklab.render.wording import count_words, format_seconds, numbers_words, shorten
from leaklab.words import format_bytes, format_rate

COLOURS = {Outcome.LEAK: ACCENT, Outcome.CLEAN: GOOD, Outcome.BOUNDED: CALM, Outcome.INCONCLUSIVE: DOUBTFUL}
_N_ROWS = 20
_NAME_LIMIT = 120
_SERIES_WIDTH = 40
_OBJECT_NAMES = ("type", "per run", "bytes per run", "kept of each run", "before", "after", "outcome")
_TENSOR_NAMES = ("tensor", "graph", "per run", "bytes per run", "bytes kept", "kept of each run", "outcome")
_CONTAINER_NAMES = ("holder", "container", "per run", "bytes per run", "length", "outcome")
_RUN_NAMES = ("run", "time", "born", "kept", "tensors kept", "tensor bytes", "native heap", "accelerator", "process")
_LEAK_NAMES = ("leak", "what", "per run", "bytes per run", "held by", "cause", "id")
_RIGHT = frozenset(
    {"leak", "per run", "bytes per run", "bytes kept", "before", "after", "run", "time", "born", "kept", "tensors kept"}
    | {"tensor bytes", "native heap", "accelerator", "process"}
)


def growth_tables(check: Check, *, is_open: bool) -> Iterator[str]:
    """Yield a folded table for each kind of growth of which there are rows."""
    tables: tuple[tuple[str, Sequence[str], list[tuple[str, ...]]], ...] = (
        ("objects", _OBJECT_NAMES, [_object_cells(row) for row in check.objects[:_N_ROWS]]),
        ("tensors", _TENSOR_NAMES, [_tensor_cells(row) for row in check.tensors[:_N_ROWS]]),
        ("containers", _CONTAINER_NAMES, [_container_cells(row) for row in check.containers[:_N_ROWS]]),
    )
    for view, names, rows in tables:
        n_rows = len(getattr(check, view))
        left_out = _more(n_rows - len(rows), view) if n_rows > len(rows) else ""
        if rows:
            markup = table(names, rows, right=_RIGHT) + left_out
            yield fold(f"{view.capitalize()} ({n_rows:,})", markup, is_open=is_open)


def leak_table(leaks: Sequence[Leak], first: int) -> str:
    """Return a row for each leak, numbered from *first*."""
    return table(_LEAK_NAMES, [_leak_cells(leak, number) for number, leak in enumerate(leaks, first)], right=_RIGHT)


def run_table(runs: Sequence[Run]) -> str:
    """Return the runs as a table; of many runs the first and the last."""
    shown = list(runs) if len(runs) <= _N_ROWS else [*runs[: _N_ROWS // 2], *runs[-_N_ROWS // 2 :]]
    left_out = "" if len(shown) == len(runs) else _more(len(runs) - len(shown), "runs")
    return table(_RUN_NAMES, [_run_cells(run) for run in shown], right=_RIGHT) + left_out


def _more(n_rows: int, view: str) -> str:
    return faint(f"{n_rows:,} more rows are in report.{view}")


def _leak_cells(leak: Leak, number: int) -> tuple[str, ...]:
    return (
        str(number), _name(leak.what), escaped(count_words(leak.count_per_run, shorten(leak.unit, _NAME_LIMIT))),
        _size(leak.bytes_per_run), _name(leak.holder), _name(leak.cause), _name(leak.fingerprint),
    )  # fmt: skip


def _object_cells(row: ObjectGrowth) -> tuple[str, ...]:
    return (
        _name(row.kind), format_rate(row.count_per_run), _size(row.bytes_per_run), _series(row.kept),
        f"{row.n_before:,}", f"{row.n_after:,}", _outcome(row.outcome),
    )  # fmt: skip


def _tensor_cells(row: TensorGrowth) -> tuple[str, ...]:
    name = f"{row.kind} {row.shape} {row.dtype} {row.device}"
    return (
        _name(name), "yes" if row.has_graph else "no", format_rate(row.count_per_run), _size(row.bytes_per_run),
        _size(row.bytes_kept), _series(row.kept), _outcome(row.outcome),
    )  # fmt: skip


def _container_cells(row: ContainerGrowth) -> tuple[str, ...]:
    content = f" of {row.content}" if row.content else ""
    lengths = f"{numbers_words(row.lengths, _SERIES_WIDTH)} {shorten(row.unit, _NAME_LIMIT)}"
    at_runs = f"after runs {numbers_words(row.at_runs, _SERIES_WIDTH)}"
    return (
        _name(row.holder), escaped(shorten(row.kind + content, _NAME_LIMIT)), format_rate(row.per_run),
        _size(row.bytes_per_run), f"{escaped(lengths)}<br>{faint(escaped(at_runs))}", _outcome(row.outcome),
    )  # fmt: skip


def _run_cells(run: Run) -> tuple[str, ...]:
    levels = (run.heap_bytes, run.accelerator_bytes)
    heap, accelerator = (faint("unknown") if level is None else _size(level) for level in levels)
    return (
        str(run.number), format_seconds(run.seconds), f"{run.n_born:,}", f"{run.n_kept:,}", f"{run.n_tensors_kept:,}",
        _size(run.tensor_bytes_kept), heap, accelerator, _size(run.rss_bytes),
    )  # fmt: skip


def _name(text: str) -> str:
    return code(shorten(text, _NAME_LIMIT))


def _size(n_bytes: float) -> str:
    return escaped(format_bytes(n_bytes))


def _series(kept: Sequence[int]) -> str:
    return bars(kept, CALM) or faint(escaped(numbers_words(kept, _SERIES_WIDTH)))


def _outcome(outcome: Outcome) -> str:
    return pill(outcome.value, COLOURS[outcome])
