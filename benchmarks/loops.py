"""Judge the monitor by twenty real loops, ten of which leak; the truth is written beside each.

Usage: ``python benchmarks/loops.py [--short] [--steps N] [NAME ...]``. The long loops, of 20,000 steps, need lightning,
transformers, accelerate, torchmetrics and pytorch-ignite. The short ones have 300 steps, and by the monitor's clock a
step of theirs takes a fifth of a second, as one of a training may. Each loop has a process of its own, and its machine
is said to have 256 MiB free, or as much less as the long loops are made shorter: what takes a hundredth of that until
the end matters. A row is right if a leak stands with its holder, in a long loop in alarm, or if nothing does where
nothing leaks. Prints a row for each loop and one line per bar; the exit status is the number of bars missed.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import subprocess
import sys
import time
import warnings
from types import SimpleNamespace
from typing import Any

from measuring import Bars
from real_loops.truth import RealLoop

N_STEPS = 20_000
FREE_BYTES = 256 * 2**20
MODULES = ("plain", "with_lightning", "with_transformers", "with_accelerate", "with_ignite")
SHORT, N_SHORT_STEPS, SHORT_STEP_SECONDS = "short", 300, 0.2
MOST_SHORT_SECONDS, COLLECTION_SECONDS = 2.0, 0.041
"""Of the processor, on a machine where a collection of the heap with torch takes so long."""
LEAST_FOUND = 9
LEAST_LINES = 8
TIMEOUT_SECONDS = 1_200


def loops_of(module: str) -> tuple[RealLoop, ...]:
    """Return the loops of one module."""
    found: tuple[RealLoop, ...] = importlib.import_module(f"real_loops.{module}").LOOPS
    return found


class Clock:
    """The clock of a monitor whose loop takes longer than it does: it goes on by so many seconds at every step.

    Attributes:
        spent: What the processor needed within ``step()`` and ``stop()``, in seconds.
    """

    def __init__(self, step_seconds: float) -> None:
        self._step_seconds = step_seconds
        self._n_steps = 0
        self.spent = 0.0

    def install(self) -> None:
        """Let monitors of this process look at this clock."""
        from leaklab.loop import monitor, stretch

        here = SimpleNamespace(perf_counter=self._seconds, thread_time=time.thread_time)
        monitor.time = stretch.time = here  # type: ignore[assignment]
        step, stop = monitor.Monitor.step, monitor.Monitor.stop

        def slow_step(watch: monitor.Monitor, n_steps: int = 1) -> None:
            self._n_steps += n_steps
            began = time.thread_time()
            step(watch, n_steps)
            self.spent += time.thread_time() - began

        def timed_stop(watch: monitor.Monitor, failure: str = "") -> None:
            began = time.thread_time()
            stop(watch, failure)
            self.spent += time.thread_time() - began

        monitor.Monitor.step, monitor.Monitor.stop = slow_step, timed_stop  # type: ignore[method-assign]

    def _seconds(self) -> float:
        return time.perf_counter() + self._n_steps * self._step_seconds


def run_here(module: str, name: str, n_steps: int) -> dict[str, Any]:
    """Run one loop in this process; return what its monitor knows at the end."""
    import torch

    from leaklab.decide.rising_level import Free
    from leaklab.loop import monitor as monitor_module

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    is_short = module == SHORT
    share = 1.0 if is_short else n_steps / N_STEPS
    monitor_module.free_memory = lambda: Free(FREE_BYTES * share)  # type: ignore[assignment]  # a small machine
    clock = Clock(SHORT_STEP_SECONDS if is_short else 0.0)
    clock.install()
    loop = next(one for one in loops_of(module) if one.name == name)
    collections = []
    for _ in range(3):
        began = time.thread_time()
        gc.collect()
        collections.append(time.thread_time() - began)
    started = time.process_time()
    watch = loop.watched(n_steps)
    record = watch.record
    return {
        "loop": name,
        "is_short": is_short,
        "framework": loop.framework,
        "truth": {"leaks": loop.leaks, "holder": loop.holder, "line": loop.line},
        "alarm": record.status.is_alarm,
        "state": record.status.state.value,
        "step": record.status.step,
        "places": [
            {
                "holder": "" if place.leak is None else place.leak.holder,
                "what": "level" if place.leak is None else place.leak.what,
                "lines": [] if place.leak is None else list(place.leak.sites),
                "state": place.state.value,
                "alarm": place.is_alarm,
                "rate": place.bytes_per_step,
            }
            for place in record.places
        ],
        "changes": [change.words for change in record.changes],
        "states": [f"{change.step}: {change.state.value}" for change in record.changes],
        "notes": list(record.notes),
        "checks": record.status.n_checks,
        "own": record.status.own_seconds,
        "longest": record.status.longest_seconds,
        "seconds": record.status.seconds,
        "spent": clock.spent,
        "collections": clock.spent / min(collections),
        "cpu": time.process_time() - started,
    }


def run_apart(module: str, name: str, n_steps: int) -> dict[str, Any]:
    """Run one loop in a process of its own."""
    command = [sys.executable, __file__, "--steps", str(n_steps), "--here", module, name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"loop": name, "error": "took too long"}
    if done.returncode:
        return {"loop": name, "error": done.stderr[-2_000:]}
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def is_right(row: dict[str, Any]) -> tuple[bool, bool]:
    """Return whether the answer is right, and whether the line is."""
    if "error" in row:
        return False, False
    truth = row["truth"]
    if not truth["leaks"]:
        return not row["alarm"] and row["state"] != "leak", True
    for place in row["places"]:
        is_told = place["state"] == "leak" and (place["alarm"] or row["is_short"])
        if is_told and truth["holder"] in place["holder"]:
            return True, any(truth["line"] in line for line in place["lines"])
    return False, False


def show(row: dict[str, Any]) -> None:
    """Print what became of one loop."""
    if "error" in row:
        print(f"  {row['loop']:<22} DIED: {row['error']}", flush=True)
        return
    right, line = is_right(row)
    first = row["places"][0] if row["places"] else {"holder": "", "what": "", "lines": []}
    verdict = "right" if right else "WRONG"
    found = "" if not row["truth"]["leaks"] else ", line right" if line else ", line WRONG"
    alarm = "alarm" if row["alarm"] else "no alarm"
    print(
        f"  {row['loop']:<22} {row['framework']:<13} {'leaks' if row['truth']['leaks'] else 'clean':<6} "
        f"{alarm:<9} {row['state']:<10} {row['checks']} checks, {row['spent']:5.1f} of {row['seconds']:6.1f} s, "
        f"longest {row['longest']:4.1f} s, {row['collections']:.0f} collections  {verdict}{found}\n"
        f"      {first['holder'] or first['what'] or '-'}   {(first['lines'] or ['-'])[0][:110]}   {row['states']}",
        flush=True,
    )


def main() -> int:
    """Run the loops that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="judge it by the loops of 300 steps")
    parser.add_argument("--steps", type=int, help="of each loop")
    parser.add_argument("--here", metavar="MODULE", help="run one loop of it in this process, and print JSON")
    parser.add_argument("--save", metavar="FILE", help="write all answers there as JSON lines")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    n_steps = options.steps or (N_SHORT_STEPS if options.short else N_STEPS)
    if options.here:
        print(json.dumps(run_here(options.here, options.names[0], n_steps)))
        return 0
    rows = []
    for module in (SHORT,) if options.short else MODULES:
        for loop in loops_of(module):
            if not options.names or loop.name in options.names:
                rows.append(run_apart(module, loop.name, n_steps))
                show(rows[-1])
                if options.save:
                    with open(options.save, "a", encoding="utf-8") as file:  # noqa: PTH123 - lines are appended
                        file.write(json.dumps(rows[-1]) + "\n")
    judged = [(row["truth"]["leaks"] if "truth" in row else None, *is_right(row)) for row in rows]
    n_leaks = sum(leaks is True for leaks, *_ in judged)
    bars = Bars()
    lines = sum(right and line for leaks, right, line in judged if leaks)
    if options.short:
        bars.at_most("loops without a leak that are judged wrong", sum(not (one[0] or one[1]) for one in judged), 0)
        found = sum(right for leaks, right, _ in judged if leaks)
        bars.at_least(f"leaks, of {n_leaks}, that are found with their holder", found, min(LEAST_FOUND, n_leaks))
        bars.at_least(f"leaks, of {n_leaks}, that are told with their line", lines, min(LEAST_LINES, n_leaks))
        spent = max((row.get("collections", 0.0) for row in rows), default=0.0)
        most = MOST_SHORT_SECONDS / COLLECTION_SECONDS
        bars.at_most("collections of the heap that watching takes, at most", spent, most)
    else:
        bars.at_most("loops that are judged wrong", sum(not right for _, right, _ in judged), 0)
        bars.at_least(f"leaks, of {n_leaks}, that are told with their line", lines, min(LEAST_LINES, n_leaks))
    return bars.n_missed


if __name__ == "__main__":
    sys.exit(main())
