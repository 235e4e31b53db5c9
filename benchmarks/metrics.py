"""Measure what being asked costs a process that is watched, and what it leaves behind.

Run it as ``python benchmarks/metrics.py``. It needs ``prometheus_client``; the process asks itself over loopback.
"""

import gc
import time
import urllib.request
from collections import Counter

import psutil
from prometheus_client import CollectorRegistry, generate_latest

import leaklab

N_WARMUP, N_ASKED = 300, 3_000


def main() -> None:
    """Print milliseconds for one answer, and the growth over all."""
    registry = CollectorRegistry()
    registry.register(leaklab.metrics.Collector())
    with leaklab.metrics.serve(0) as server, leaklab.monitor("asked", quiet=True) as watch:
        watch.step()
        ask(server.url, N_WARMUP)
        heap_before, objects_before = state()
        seconds = ask(server.url, N_ASKED)
        heap_after, objects_after = state()
        started = time.perf_counter()
        for _ in range(N_ASKED):
            generate_latest(registry)
        own_seconds = time.perf_counter() - started
    print(f"one answer: {own_seconds / N_ASKED * 1e3:.2f} ms to make, {seconds / N_ASKED * 1e3:.2f} ms with HTTP")
    print(f"{N_ASKED:,} answers left {heap_after - heap_before:+,} bytes in the native heap")
    print(f"objects more than before: {dict((objects_after - objects_before).most_common(5))}")


def ask(url: str, n_times: int) -> float:
    """Return the seconds that *n_times* answers took."""
    started = time.perf_counter()
    for _ in range(n_times):
        with urllib.request.urlopen(url) as answer:  # noqa: S310 - our own server
            answer.read()
    return time.perf_counter() - started


def state() -> tuple[int, Counter[str]]:
    """Return the level of the native heap, and the objects by type, once the threads of the answers have ended."""
    time.sleep(0.5)
    gc.collect()
    objects = Counter(type(thing).__name__ for thing in gc.get_objects())
    return int(psutil.heap_info().heap_used), objects


if __name__ == "__main__":
    main()
