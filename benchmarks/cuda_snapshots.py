"""Measure what opening and comparing CUDA memory snapshots costs, beside pickle and torch's own functions.

Usage: ``python benchmarks/cuda_snapshots.py [N_EVENTS]`` (default 1,000,000). Writes two synthetic snapshots of the
shape of real ones into a temporary folder, reads them in turns and prints one line per requirement, with its bar and
``ok`` or ``MISSED``; the exit status is the number of bars missed. Everything is process CPU time; peak memory is
that of a fresh process that does nothing else.
"""

from __future__ import annotations

import gc
import pickle
import random
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from measuring import cpu_seconds

from leaklab.ask.cuda import compare_cuda_snapshots, load_cuda_snapshot
from leaklab.reports.cuda import CudaSnapshot

MAX_LOAD = 1.2
"""Times plain ``pickle.load`` with the collector off."""
MAX_COMPARE = 1.2
"""Comparing two open snapshots, as a share of loading them: when each block was allocated is in the trace."""
MOSAIC_US_PER_EVENT = 131
"""For information: 2.5 s for the peak of a real file of 19,136 events, mostly start and imports. Not measured here."""

_N_FRAMES, _N_STACKS, _DEPTH, _N_SEGMENTS, _N_BLOCKS = 5_000, 3_000, 20, 400, 20_000
_TURNS = 3


def write_snapshot(path: Path, n_events: int, n_more: int) -> None:
    """Write a snapshot with *n_events* events; the first stack holds *n_more* blocks more than the others."""
    rng = random.Random(1)  # noqa: S311 - the same file in every run
    frames = [
        {"name": f"function_{i}", "filename": f"/home/me/project/module_{i % 97}.py", "line": i % 700}
        for i in range(_N_FRAMES)
    ]
    stacks = [[rng.choice(frames) for _ in range(_DEPTH)] for _ in range(_N_STACKS)]
    taken = {
        "segments": _segments(rng, stacks, n_more),
        "device_traces": [_trace(rng, stacks, n_events)],
        "allocator_settings": {},
        "external_annotations": [],
    }
    path.write_bytes(pickle.dumps(taken, 4))


def _segments(rng: random.Random, stacks: list[Any], n_more: int) -> list[Any]:
    per_segment, size = _N_BLOCKS // _N_SEGMENTS, 1024
    segments = []
    for number in range(_N_SEGMENTS):
        address = 0x7F0000000000 + number * (1 << 25)
        blocks = []
        for position in range(per_segment):
            stack = rng.choice(stacks)
            if number * per_segment + position < n_more:
                stack = stacks[0]
            blocks.append(
                {
                    "address": address + position * size, "size": size, "requested_size": 1000,
                    "state": "active_allocated", "frames": stack,
                }
            )  # fmt: skip
        total = per_segment * size
        segments.append(
            {
                "device": 0, "address": address, "total_size": total, "allocated_size": total, "active_size": total,
                "requested_size": per_segment * 1000, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
                "is_expandable": False, "frames": [], "blocks": blocks,
            }
        )  # fmt: skip
    return segments


def _trace(rng: random.Random, stacks: list[Any], n_events: int) -> list[Any]:
    events: list[Any] = []
    time_us, address = 1_759_252_584_204_770, 0x7F8000000000
    for number in range(n_events // 3 + 1):
        frames = list(rng.choice(stacks))  # real files share frames between lists, and a list between alloc and free
        for action in ("alloc", "free_requested", "free_completed"):
            time_us += rng.randrange(50)
            events.append(
                {
                    "action": action, "addr": address + number % 50_000 * 8192, "size": 1000 + number % 5000,
                    "stream": 0, "time_us": time_us, "compile_context": "N/A", "user_metadata": "", "frames": frames,
                }
            )  # fmt: skip
    return events[:n_events]


def plain_load(path: Path) -> Any:
    """Load with plain pickle, the collector off."""
    gc.disable()
    try:
        with path.open("rb") as file:
            return pickle.load(file)  # noqa: S301 - the file was written above
    finally:
        gc.enable()


def compare_cost(one: CudaSnapshot, other: CudaSnapshot) -> float:
    """Return the cost of comparing two open snapshots; nothing of them is cached."""
    fresh = [CudaSnapshot(snapshot.memory) for snapshot in (one, other)]
    return cpu_seconds(lambda: compare_cuda_snapshots(fresh))


def torch_costs(taken: Any, other: Any) -> None:
    """Print what torch's own functions cost, or why they do not work."""
    try:
        from torch.cuda import _memory_viz
    except ImportError as error:
        print(f"  for information: torch's functions cannot be imported ({error})")
        return
    # `compare` with the arguments of its own command line.
    for name, arguments in (("segsum", (taken,)), ("compare", (taken, other)), ("trace", (taken,))):
        function = getattr(_memory_viz, name)
        try:
            seconds = cpu_seconds(partial(function, *arguments))
            print(f"  for information: torch _memory_viz.{name} {seconds:.2f} s")
        except Exception as error:  # noqa: BLE001 - whatever it raises is the finding
            print(f"  for information: torch _memory_viz.{name} fails: {type(error).__name__}: {error}")


def peak_megabytes(code: str, path: Path) -> float:
    """Return the peak memory of a fresh process that runs *code* on *path*, less that of importing."""
    program = (
        "import gc, pathlib, pickle, re, sys; from leaklab import load_cuda_snapshot\n"
        "status = pathlib.Path('/proc/self/status')\n"  # ru_maxrss would begin at that of the parent
        "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', status.read_text())[1])\n"
        f"before = peak()\n{code}\nprint(peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=True, capture_output=True, text=True)
    return int(done.stdout) / 1024


def at_most(what: str, figure: float, bar: float) -> int:
    """Print *figure* beside its *bar*; return 1 if it was missed."""
    print(f"  {what:<66} {figure:6.2f}  at most {bar:g}  {'ok' if figure <= bar else 'MISSED'}", flush=True)
    return int(figure > bar)


def main() -> int:
    """Run all comparisons; return how many bars were missed."""
    n_events = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("snap_0.pickle", "snap_1.pickle")]
        for file, n_more in zip(files, (0, 2000), strict=True):
            subprocess.run([sys.executable, __file__, "--write", str(file), str(n_events), str(n_more)], check=True)
        n_missed = measure(files, n_events)
    print("all bars hold" if not n_missed else f"{n_missed} MISSED")
    return n_missed


def measure(files: list[Path], n_events: int) -> int:
    """Print all figures; return how many bars were missed."""
    one, other = files
    megabytes = one.stat().st_size / 1e6
    turns = [
        (
            cpu_seconds(lambda: plain_load(one)),
            cpu_seconds(lambda: load_cuda_snapshot(one)),
            cpu_seconds(lambda: load_cuda_snapshot(one, audited=True)),
        )
        for _ in range(_TURNS)
    ]
    plain, ours, audited = map(statistics.median, zip(*turns, strict=True))
    print(f"{n_events:,} events, {megabytes:.0f} MB: pickle.load with gc off {plain:.2f} s, ours {ours:.2f} s")
    n_missed = at_most("load_cuda_snapshot / pickle.load with gc off", ours / plain, MAX_LOAD)
    print(f"  for information: with every opcode audited first {audited:.2f} s ({audited / plain:.2f} times)")
    first, second = load_cuda_snapshot(one), load_cuda_snapshot(other)
    gc.collect()
    compare = statistics.median(compare_cost(first, second) for _ in range(_TURNS))
    comparison = compare_cuda_snapshots([first, second])
    most = comparison.series.stacks[0]
    print(f"comparing two: {compare:.3f} s; the stack that grew most: {most.growth_bytes:+,} B")
    n_missed += at_most("compare of two open snapshots / loading both", compare / (2 * ours), MAX_COMPARE)
    peak = cpu_seconds(lambda: first.peaks)
    print(f"  for information: peak and what made it {peak:.2f} s, {peak / n_events * 1e6:.1f} us per event")
    print(f"  for information: timeline in bands {cpu_seconds(lambda: first.timelines):.2f} s")
    print(f"  for information: mosaic's peak {MOSAIC_US_PER_EVENT} us per event, on a real file of 19,136 events")
    torch_costs(plain_load(one), plain_load(other))
    plain_memory = peak_megabytes("gc.disable(); x = pickle.load(open(sys.argv[1], 'rb'))", one)
    our_memory = peak_megabytes("x = load_cuda_snapshot(sys.argv[1])", one)
    print(f"peak memory: pickle.load {plain_memory:,.0f} MB, load_cuda_snapshot {our_memory:,.0f} MB")
    return n_missed


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        gc.disable()
        write_snapshot(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(main())
