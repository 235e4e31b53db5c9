"""Measure what watching a loop costs, at two sizes of the heap, and that nothing of the watch grows.

Usage: ``python benchmarks/monitor.py``. A step takes 50 ms by the monitor's clock, and a fraction of a millisecond in
truth: what is measured is the processor's time within ``step()``, as a share of the loop's. Prints one line per
requirement, with its bar and ``ok`` or ``MISSED``; the exit status is the number of bars.n_missed.
"""

from __future__ import annotations

import contextlib
import gc
import io
import re
import sys
import time
from types import SimpleNamespace

import psutil
import torch
from heap_index import fill
from measuring import Bars

import leaklab
from leaklab.loop import monitor as monitor_module
from leaklab.loop import stretch as stretch_module

STEP_SECONDS = 0.05
N_STEPS = 100_000
MAX_OVERHEAD = 0.01
_kept: list[torch.Tensor] = []


class Clock:
    """Goes on by 50 ms at every step, and by the time that the watch takes."""

    def __init__(self) -> None:
        self.steps = 0
        self._in_loop = 0.0
        self._left = time.perf_counter()

    def perf_counter(self) -> float:
        """Return the time of the loop: what its own code takes in truth is left out."""
        return self.steps * STEP_SECONDS + time.perf_counter() - self._left - self._in_loop

    def leave_out(self, seconds: float) -> None:
        """Take *seconds* of the loop's own code out of the time."""
        self._in_loop += seconds


def watched_loop(*, leaks: bool, n_steps: int = N_STEPS) -> tuple[leaklab.MonitorReport, float, list[float], str]:
    """Return the report, the processor's seconds within ``step()``, its pauses above 1 ms, and what was printed."""
    net = torch.nn.Linear(16, 16)
    clock, printed, pauses, spent = Clock(), io.StringIO(), [], 0.0
    stand_in = SimpleNamespace(perf_counter=clock.perf_counter, thread_time=time.thread_time)
    real = monitor_module.time, stretch_module.time
    monitor_module.time = stretch_module.time = stand_in
    try:
        with contextlib.redirect_stdout(printed), leaklab.monitor(total_steps=n_steps) as watch:
            for _ in range(n_steps):
                began = time.perf_counter()
                loss = net(torch.zeros(4, 16)).sum()
                if leaks:
                    _kept.append(loss.detach())
                before = time.perf_counter()
                clock.leave_out(before - began)
                clock.steps += 1
                cpu = time.process_time()
                watch.step()
                cpu = time.process_time() - cpu
                spent += cpu
                if cpu > 0.001:
                    pauses.append(cpu)
    finally:
        monitor_module.time, stretch_module.time = real
        _kept.clear()
    return watch.report, spent, pauses, printed.getvalue()


def measure(bars: Bars) -> None:
    """Print the figures for the heap as it is now."""
    gc.collect()
    print(f"{len(gc.get_objects()) / 1e6:.1f} million objects, {N_STEPS:,} steps of {STEP_SECONDS * 1000:.0f} ms")
    for leaks in (False, True):
        report, spent, pauses, printed = watched_loop(leaks=leaks)
        announced = re.search(r"up to about ([\d.]+ \w+)", printed)
        what = "a loop that leaks" if leaks else "a clean loop"
        bars.at_most(f"{what}: share of its time, in %", 100 * spent / (N_STEPS * STEP_SECONDS), 100 * MAX_OVERHEAD)
        said = f"announced: {announced[1] if announced else 'nothing'}; {report.record.status.state.value}"
        longest = max(pauses, default=0.0)
        print(f"  {len(report.checks)} checks, {len(pauses)} pauses above 1 ms, the longest {longest:.2f} s; {said}")


def measure_growth(bars: Bars) -> None:
    """Print what 100,000 steps of an empty loop leave, beside a loop of 1,000."""
    levels = []
    for n_steps in (1_000, N_STEPS):
        with contextlib.redirect_stdout(io.StringIO()), leaklab.monitor(first_step=N_STEPS + 1, overhead=1.0) as watch:
            for _ in range(n_steps):
                watch.step()
            gc.collect()
            heap = psutil.heap_info()
            levels.append((len(gc.get_objects()), sys.getallocatedblocks(), heap.heap_used + heap.mmap_used))
    objects, blocks, n_bytes = (after - before for before, after in zip(*levels, strict=True))
    bars.at_most("objects that 99,000 more steps of an empty loop leave", objects, 10)
    bars.at_most("blocks of Python's allocator", blocks, 100)
    bars.at_most("KiB of malloc", n_bytes / 1024, 16)


def main() -> int:
    """Run everything; return the number of bars.n_missed."""
    bars = Bars()
    began = time.process_time()
    with leaklab.monitor(first_step=10**9, quiet=True) as watch:
        for _ in range(N_STEPS):
            watch.step()
    print(f"an empty loop: {(time.process_time() - began) / N_STEPS * 1e6:.2f} us a step")
    measure_growth(bars)
    measure(bars)
    kept = fill(1.8)
    measure(bars)
    del kept
    return bars.n_missed


if __name__ == "__main__":
    sys.exit(main())
