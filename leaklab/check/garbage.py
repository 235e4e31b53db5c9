"""Prove a leak that is garbage: collect it once."""

from __future__ import annotations

from collections.abc import Sequence

from leaklab.collect.measurement import Measurement
from leaklab.model import Leak
from leaklab.runtime.gc_control import collect_quietly


def verify_garbage(measurement: Measurement, leaks: Sequence[Leak]) -> tuple[str, ...]:
    """Where the collector is off, collect once and say how much of the leak that freed."""
    if measurement.collects or not any(leak.cause == "cycle-garbage" for leak in leaks):
        return ()
    if not measurement.may_collect:
        return (
            "gc.unfreeze() and gc.collect() would free the garbage; they were not called, your objects stay frozen",
        )
    n_freed = collect_quietly()
    return (f"one gc.collect() after the last run freed {n_freed:,} objects: the leak is garbage waiting for it",)
