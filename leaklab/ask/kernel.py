"""Look at the kernel of a notebook: what of it takes memory, or piles up, and what to do next about each."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any

from leaklab.explain.kernel.order import cell_growths, cell_suspects, ranked
from leaklab.explain.kernel.suspects import NotebookKeeps, heap_suspects
from leaklab.heap.borrow import borrow_heap
from leaklab.heap.nodes import MIN_DATA_BYTES
from leaklab.heap.view import NO_BIRTHS
from leaklab.measure.cell_levels import CellRuns
from leaklab.measure.gauges import levels_by_device, rss_bytes
from leaklab.reports.kernel import KernelReport
from leaklab.runtime.gc_control import collect_quietly
from leaklab.runtime.objects import attributes_of
from leaklab.runtime.ours import is_history_name, is_own_kind
from leaklab.version import environment

_LAST_ERRORS = ("last_exc", "last_value", "last_traceback")


def look_at_kernel(shell: Any, runs: Iterable[CellRuns], lines: Mapping[int, str]) -> KernelReport:
    """Return what takes memory in the kernel of *shell*, or piles up in it.

    Garbage is collected first, unless the user has switched the collector off. No code of the user is run.

    Args:
        shell: The notebook's.
        runs: What memory did over each execution of a cell.
        lines: The first lines of the cells, by the numbers that the notebook gave them.
    """
    began = time.perf_counter()
    cells = cell_growths(runs, lines)
    if gc.isenabled():
        collect_quietly()
    keeps, rss = _kept_by(shell), rss_bytes()
    with borrow_heap(NO_BIRTHS, shell.user_ns, min_data_bytes=MIN_DATA_BYTES) as view:
        record = heap_suspects(view, keeps, levels_by_device(), rss)
    suspects = ranked((*record.suspects, *cell_suspects(cells)), record.tensor_bytes)
    return KernelReport(
        replace(
            record,
            suspects=suspects,
            cells=cells,
            seconds=time.perf_counter() - began,
            environment=environment(),
        )
    )


def _kept_by(shell: Any) -> NotebookKeeps:
    """Return what *shell* itself keeps: results without a variable, the last errors."""
    namespace, hidden = shell.user_ns, getattr(shell, "user_ns_hidden", {})
    last, hook = getattr(shell, "last_execution_result", None), getattr(shell, "displayhook", None)
    outputs = namespace.get("_oh")
    values = list(outputs.values()) if type(outputs) is dict else []
    values += [value for name, value in list(namespace.items()) if type(name) is str and is_history_name(name)]
    values.append(getattr(last, "result", None))
    own = {id(value) for name, value in list(namespace.items()) if type(name) is str and not is_history_name(name)}
    own |= {id(outputs), id(namespace.get("_ih")), id(namespace.get("_dh"))}
    homes = (namespace, outputs, hidden, hook, attributes_of(hook), last, attributes_of(last))
    errors = [getattr(sys, name, None) for name in _LAST_ERRORS]
    errors += [getattr(getattr(shell, "InteractiveTB", None), "tb", None)]
    errors += [getattr(last, name, None) for name in ("error_in_exec", "error_before_exec")]
    try:
        return NotebookKeeps(
            frozenset(id(value) for value in values if id(value) not in own and not is_own_kind(type(value))),
            frozenset(id(home) for home in homes if home is not None),
            frozenset(_with_tracebacks(errors)),
        )
    finally:
        values.clear()
        errors.clear()


def _with_tracebacks(errors: Iterable[Any]) -> Iterator[int]:
    """Yield the addresses of exceptions and tracebacks, and of the tracebacks that they consist of."""
    for error in errors:
        if error is None:
            continue
        yield id(error)
        part = error if type(error) is TracebackType else getattr(error, "__traceback__", None)
        while part is not None:
            yield id(part)
            part = part.tb_next
