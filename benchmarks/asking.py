"""How long a busy process takes to answer ``leaklab ask``, and what waiting for a question or for death costs.

Run it alone: ``python benchmarks/asking.py``. Linux and macOS.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time

from leaklab.process.ask import ask

BUSY = """
import sys, time
import torch, leaklab

objects = [[number] for number in range(int(sys.argv[1]))]
before = time.process_time()
watch = leaklab.on_oom(sys.argv[2])
listener = leaklab.listen(folder=sys.argv[2])
print(time.process_time() - before, flush=True)
weights = torch.randn(200, 200)
while True:
    weights = torch.tanh(weights @ weights)
"""
N_QUESTIONS = 7


def main() -> None:
    """Print the figures for a bare heap and for one of two million objects."""
    for n_objects in (0, 2_000_000):
        with tempfile.TemporaryDirectory() as folder:
            asked = [sys.executable, "-c", BUSY, str(n_objects), folder]
            with subprocess.Popen(asked, stdout=subprocess.PIPE, text=True) as process:
                try:
                    start_seconds = float(next(iter(process.stdout or ())))
                    seconds = [answer_seconds(process.pid) for _ in range(N_QUESTIONS)]
                finally:
                    process.kill()
        print(
            f"{n_objects:>9,} lists more: on_oom and listen {start_seconds:.2f} s of the processor to start, with their"
            f" imports; an answer {statistics.median(seconds):.2f} s, the slowest {max(seconds):.2f} s"
        )


def answer_seconds(pid: int) -> float:
    """Return the wall time of one question to a process that computes without a pause."""
    began = time.perf_counter()
    ask(pid, 100.0)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
