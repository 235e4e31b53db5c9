"""Judge the monitor by twenty real loops of 20,000 steps: ten leak, ten do not; the truth is written beside each.

Usage: ``python benchmarks/loops.py [--steps N] [NAME ...]``; it needs lightning, transformers, accelerate, torchmetrics
and pytorch-ignite. Each loop has a process of its own, and its machine is said to have 256 MiB free, or as much less as
the loops are made shorter: what takes a hundredth of that until the end matters. A row is right if a leak stands in
alarm with its holder, or if nothing does where nothing leaks. Prints a row for each loop and one line per bar; the exit
status is the number of bars missed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
import warnings
from typing import Any

from measuring import Bars
from real_loops.truth import RealLoop

N_STEPS = 20_000
FREE_BYTES = 256 * 2**20
MODULES = ("plain", "with_lightning", "with_transformers", "with_accelerate", "with_ignite")
LEAST_LINES = 8
TIMEOUT_SECONDS = 1_200


def loops_of(module: str) -> tuple[RealLoop, ...]:
    """Return the loops of one module."""
    found: tuple[RealLoop, ...] = importlib.import_module(f"real_loops.{module}").LOOPS
    return found


def run_here(module: str, name: str, n_steps: int) -> dict[str, Any]:
    """Run one loop in this process; return what its monitor knows at the end."""
    import torch

    from leaklab.decide.loop_states import Free
    from leaklab.loop import monitor as monitor_module

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    monitor_module._free_memory = lambda: Free(FREE_BYTES * n_steps / N_STEPS)  # type: ignore[assignment]  # noqa: SLF001 - a small machine
    loop = next(one for one in loops_of(module) if one.name == name)
    started = time.process_time()
    watch = loop.watched(n_steps)
    record = watch.record
    return {
        "loop": name,
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
        "notes": list(record.notes),
        "checks": record.status.n_checks,
        "own": record.status.own_seconds,
        "longest": record.status.longest_seconds,
        "seconds": record.status.seconds,
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
        if place["alarm"] and place["state"] == "leak" and truth["holder"] in place["holder"]:
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
        f"{alarm:<9} {row['state']:<10} {row['checks']} checks, {row['own']:5.1f} of {row['seconds']:6.1f} s, longest "
        f"{row['longest']:4.1f} s  {verdict}{found}\n"
        f"      {first['holder'] or first['what'] or '-'}   {(first['lines'] or ['-'])[0][:110]}",
        flush=True,
    )


def main() -> int:
    """Run the loops that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=N_STEPS)
    parser.add_argument("--here", metavar="MODULE", help="run one loop of it in this process, and print JSON")
    parser.add_argument("--save", metavar="FILE", help="write all answers there as JSON lines")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.here:
        print(json.dumps(run_here(options.here, options.names[0], options.steps)))
        return 0
    rows = []
    for module in MODULES:
        for loop in loops_of(module):
            if not options.names or loop.name in options.names:
                rows.append(run_apart(module, loop.name, options.steps))
                show(rows[-1])
                if options.save:
                    with open(options.save, "a", encoding="utf-8") as file:  # noqa: PTH123 - lines are appended
                        file.write(json.dumps(rows[-1]) + "\n")
    judged = [(row["truth"]["leaks"] if "truth" in row else None, *is_right(row)) for row in rows]
    n_leaks = sum(leaks is True for leaks, *_ in judged)
    bars = Bars()
    bars.at_most("loops that are judged wrong", sum(not right for _, right, _ in judged), 0)
    lines = sum(right and line for leaks, right, line in judged if leaks)
    bars.at_least(f"leaks, of {n_leaks}, that are told with their line", lines, min(LEAST_LINES, n_leaks))
    return bars.n_missed


if __name__ == "__main__":
    sys.exit(main())
