"""Measure what a check costs on a training cell of one second, beside other tools on the same cell.

Usage: ``python benchmarks/overhead.py``. Prints one line per requirement, with its bar and ``ok`` or ``MISSED``; the
exit status is the number of bars missed. Everything is process CPU time on one thread: wall time on a shared machine
says nothing. The cell is run bare and under each tool in turns, and the medians are compared.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from measuring import Bars, cpu_seconds
from torch import nn

from leaklab.check.pipeline import check_steps
from leaklab.model import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_COUNTING = 1.10
"""What a counted run may cost, as a multiple of the bare one."""

_CELL_SECONDS = 1.0
_N_TURNS = 5


class Training:
    """A cell that trains: batches, forward, backward, optimizer; *leaks* makes it keep each loss."""

    def __init__(self, *, leaks: bool) -> None:
        torch.manual_seed(0)
        self._model = nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10),
        )  # fmt: skip
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-3)
        self._images, self._labels = torch.randn(256, 3, 32, 32), torch.randint(10, (256,))
        self._leaks = leaks
        self.history: list[torch.Tensor] = []
        self.n_steps = 1
        self()
        step = statistics.median(cpu_seconds(self) for _ in range(5))
        self.n_steps = max(1, round(_CELL_SECONDS / step))
        self.history.clear()

    def __call__(self) -> None:
        """Train for some steps, as long as the cell is meant to take."""
        for number in range(self.n_steps):
            chosen = torch.arange(32) + 32 * (number % 8)
            self._optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self._model(self._images[chosen]), self._labels[chosen])
            loss.backward()
            self._optimizer.step()
            if self._leaks and not number:
                self.history.append(loss)


def check(cell: Callable[[], object], settings: Settings) -> tuple[list[float], list[float], float]:
    """Check *cell*.

    Returns:
        CPU seconds of each counted run with its counting, of each traced run, and of everything per run: warm-up, looks
        at the whole heap, search for holders and all.
    """
    runs: dict[bool, list[float]] = {False: [], True: []}
    n_runs, started = 0, time.process_time()
    steps = check_steps(settings, {"cell": cell})
    number = next(steps)
    try:
        while True:
            is_warmup, is_traced, before = not number, _is_traced(), time.process_time()
            cell()
            number = steps.send((time.process_time() - before, ""))
            n_runs += 1
            if not is_warmup:
                runs[is_traced].append(time.process_time() - before)
    except StopIteration:
        return runs[False], runs[True], (time.process_time() - started) / (n_runs + 1)


def _is_traced() -> bool:
    return tracemalloc.is_tracing() or sys.gettrace() is not None


def under_tracemalloc(cell: Callable[[], object]) -> None:
    """Run *cell* as ``tracemalloc.start(1)`` makes it."""
    tracemalloc.start(1)
    try:
        cell()
    finally:
        tracemalloc.stop()


def under_memray(cell: Callable[[], object], *, native: bool = False) -> None:
    """Run *cell* as ``memray run`` would."""
    import memray

    with tempfile.TemporaryDirectory() as folder, memray.Tracker(Path(folder) / "run.bin", native_traces=native):
        cell()


def under_profiler(cell: Callable[[], object]) -> None:
    """Run *cell* under torch's own profiler, memory included."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True):
        cell()


def other_tools() -> dict[str, Callable[[Callable[[], object]], object]]:
    """Return the tools that are installed, by name."""
    tools: dict[str, Callable[[Callable[[], object]], object]] = {
        "tracemalloc, 1 frame": under_tracemalloc,
        "torch.profiler, memory": under_profiler,
    }
    if importlib.util.find_spec("memray") is not None:
        tools["memray"] = under_memray
        tools["memray, native"] = lambda cell: under_memray(cell, native=True)
    return tools


def compare_tools(cell: Training) -> float:
    """Print what the cell costs under each tool; return what it costs bare."""
    tools: dict[str, Any] = {"bare": lambda run: run(), **other_tools()}
    turns = [[cpu_seconds(lambda tool=tool: tool(cell)) for tool in tools.values()] for _ in range(_N_TURNS)]
    medians = dict(zip(tools, map(statistics.median, zip(*turns, strict=True)), strict=True))
    bare = medians.pop("bare")
    print(f"the cell, {cell.n_steps} training steps, bare: {bare:.2f} s of CPU time")
    for name, seconds in medians.items():
        print(f"  {name:<62} {seconds / bare:8.2f}")
    return bare


def main() -> int:
    """Measure, print, and return the number of bars missed."""
    torch.set_num_threads(1)
    bars = Bars()
    cell = Training(leaks=False)
    bare = compare_tools(cell)
    counted, _traced, per_run = check(cell, Settings(max_seconds=600, sites=False))
    bars.at_most("leaklab, a counted run (median)", statistics.median(counted) / bare, MAX_COUNTING)
    print(f"  {'leaklab, the whole check of a clean cell, per run':<62} {per_run / bare:8.2f}")
    leaky = Training(leaks=True)
    leaky.n_steps = cell.n_steps
    counted, traced, per_run = check(leaky, Settings(max_seconds=600))
    assert traced, "a leak must have been found, and runs traced"
    bars.at_most("leaklab, a counted run of a leaking cell (median)", statistics.median(counted) / bare, MAX_COUNTING)
    print(f"  {'leaklab, the whole check of a leaking cell, per run':<62} {per_run / bare:8.2f}")
    print(f"  {'leaklab, a traced run (at most)':<62} {max(traced) / bare:8.2f}")
    return bars.n_missed


if __name__ == "__main__":
    sys.exit(main())
