"""Run programs in processes without leaklab and tell what each run of them leaves; started as a script.

Reads a list of ``[setup, cell]`` from standard input and writes for each what 24 runs left per run, in objects and in
bytes of malloc's heap, and which parameters have gradients, or ``{"error": ...}``. What a leak leaves is left in the
first 12 of the runs as in the last 12: a buffer that a library takes once, late, is in one half alone.
"""

from __future__ import annotations

import gc
import io
import json
import os
import signal
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout

import psutil
import torch

FIRST, MIDDLE, LAST = 8, 20, 32
_SECONDS = 60


def measure(setup: str, cell: str) -> dict[str, object]:
    """Return what each of the runs from `FIRST` to `LAST` leaves, by the half of them that leaves less."""
    variables: dict[str, object] = {"__name__": "__main__"}
    exec(compile(setup, "<setup>", "exec"), variables)  # noqa: S102 - a program of ours
    code = compile(cell, "<cell>", "exec")
    levels: list[tuple[int, int]] = []
    for run in range(1, LAST + 1):
        exec(code, variables)  # noqa: S102 - a program of ours
        if run in {FIRST, MIDDLE, LAST}:
            gc.collect()
            heap = psutil.heap_info()
            levels.append((len(gc.get_objects()), heap.heap_used + heap.mmap_used))
    modules = [thing for _name, thing in sorted(variables.items()) if isinstance(thing, torch.nn.Module)]
    before, middle, after = levels
    objects, n_bytes = (
        min((middle[at] - before[at]) / (MIDDLE - FIRST), (after[at] - middle[at]) / (LAST - MIDDLE)) for at in (0, 1)
    )
    return {
        "objects": objects,
        "bytes": n_bytes,
        "gradients": [[p.grad is not None for p in module.parameters()] for module in modules],
    }


def in_child(setup: str, cell: str) -> dict[str, object]:
    """Measure in a process forked from this one, which has imported torch but run nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(_SECONDS)
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                found = measure(setup, cell)
        except BaseException as error:  # noqa: BLE001 - what the program raises is the answer
            found = {"error": f"{type(error).__name__}: {error}"}
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return dict(json.loads(text)) if text else {"error": "no answer"}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    gc.freeze()  # what torch made is the same before and after, and going through it takes most of the time
    json.dump([in_child(setup, cell) for setup, cell in json.load(sys.stdin)], sys.stdout)
