"""Measure what a heap file costs: to write, to keep, to open in another process; and what asking a living heap costs.

Usage: ``python benchmarks/heap_files.py [MILLIONS]``, by default ``2.45``: objects added to the bare heap, some 2.66
million together. The exit status is the number of bars missed. CPU seconds, because wall time on a shared machine says
nothing.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from heap_index import fill
from measuring import Bars, cpu_seconds

import leaklab

_N_TURNS = 3
MAX_TIMES_COLLECT, MAX_MB, MAX_SECONDS_TO_OPEN, MAX_SECONDS_TO_FIND = 4.0, 10.0, 3.0, 10.0

OPEN = """
import sys, time
sys.modules["torch"] = None
import leaklab
heap = leaklab.load(sys.argv[1])
opened = time.process_time()
heap.shape
print(opened, time.process_time())
"""


def main() -> int:
    """Measure, print, and return how many bars were missed."""
    kept = {"records": fill(float(sys.argv[1]) if sys.argv[1:] else 2.45), "model": torch.nn.Linear(512, 512)}
    variables = {"leaklab": leaklab, **kept}
    bars = Bars()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.heap"
        command = f"leaklab.snapshot(references=True).save({str(path)!r})"
        collects, writes = [], []
        for _ in range(_N_TURNS):
            collects.append(cpu_seconds(gc.collect))
            # The collection that a snapshot begins with is not counted.
            writes.append(cpu_seconds(lambda: exec(command, variables)) - collects[-1])  # noqa: S102 - in its variables
        opened = subprocess.run([sys.executable, "-c", OPEN, str(path)], capture_output=True, text=True, check=True)
        to_open, to_show = map(float, opened.stdout.split())
        print(f"heap: {leaklab.load(path).n_objects:,} objects, {leaklab.load(path).n_references:,} references")
        bars.at_most(
            "written / gc.collect()", statistics.median(writes) / statistics.median(collects), MAX_TIMES_COLLECT
        )
        bars.at_most("file, MB", path.stat().st_size / 1e6, MAX_MB)
        bars.at_most("opened in another process, without torch, s", to_open, MAX_SECONDS_TO_OPEN)
        bars.at_most("opened and what fills it told, s", to_show, 2 * MAX_SECONDS_TO_OPEN)
    where = "bytes > 1 MiB and dtype == 'float32' or held_by('model')"
    found = cpu_seconds(lambda: leaklab.find(where=where, namespace=kept))
    bars.at_most("leaklab.find in the living heap, s", found, MAX_SECONDS_TO_FIND)
    return bars.n_missed


if __name__ == "__main__":
    sys.exit(main())
