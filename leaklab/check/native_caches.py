"""Tell caches of native libraries, which stop, from native memory that leaks: run the code without the caches."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from itertools import pairwise
from statistics import median

from leaklab.check.explained import Explained
from leaklab.check.native import NATIVE_MEMORY
from leaklab.check.steps import Ran
from leaklab.collect.gauges import native_heap_bytes
from leaklab.collect.meters import native_caches_off
from leaklab.model import Leak
from leaklab.runtime.gc_control import collect_quietly
from leaklab.runtime.objects import loaded_type
from leaklab.text import format_bytes

N_RUNS = 6
_REMAINING = 0.25
"""Less than this share of the growth may remain without the caches, if they are to explain it."""


def discount_caches(
    explained: Explained, *, next_run: int, collects: bool, seconds_left: float
) -> Generator[int, Ran, Explained]:
    """Run the code a few more times without oneDNN and with MKL's buffers freed, if native memory seems to leak.

    Args:
        explained: What was found.
        next_run: Number of the next run.
        collects: Whether garbage may be collected before the level is read.
        seconds_left: No run starts after so many seconds of running.

    Returns:
        *explained*, or the same with that leak among what is bounded, where it disappears without the caches.
    """
    leak = next((leak for leak in explained.leaks if leak.what == NATIVE_MEMORY and not leak.path.steps), None)
    if leak is None or loaded_type("torch", "Tensor") is None or seconds_left <= 0:
        return explained
    levels: list[int] = []
    with native_caches_off() as free_buffers:
        for number in range(next_run, next_run + N_RUNS):
            seconds, failure = yield number
            seconds_left -= seconds
            if failure:
                note = f"whether native memory is a cache could not be tried: the code raised {failure} in run {number}"
                return replace(explained, notes=(*explained.notes, note))
            free_buffers()
            if collects:
                collect_quietly()
            levels.append(native_heap_bytes() or 0)
            if seconds_left <= 0:
                break
    return _judged(explained, leak, levels)


def _judged(explained: Explained, leak: Leak, levels: list[int]) -> Explained:
    """Compare the growth without the caches, the first run's not counted, with the growth with them."""
    steps = [after - before for before, after in pairwise(levels)]
    if not steps:
        return explained
    others = [other for other in explained.leaks if other is not leak]
    remaining = max(0.0, median(steps) - explained.native_bytes)
    if remaining > _REMAINING * leak.bytes_per_run:
        return explained
    reason = (
        f"a cache of oneDNN or MKL: with oneDNN switched off and MKL's buffers freed, {len(levels)} more runs kept "
        f"{format_bytes(remaining)} each instead of {format_bytes(leak.bytes_per_run)}. oneDNN keeps one compiled "
        "operation for each new shape, 1,024 at most (ONEDNN_PRIMITIVE_CACHE_CAPACITY)"
    )
    return replace(explained, leaks=tuple(others), bounded=(*explained.bounded, replace(leak, reason=reason)))
