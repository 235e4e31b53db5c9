"""Try whether native memory that grows is a cache of oneDNN or MKL: a few more runs without them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from itertools import pairwise
from statistics import median

from leaklab.check.findings import Explained
from leaklab.check.memory import is_native_memory
from leaklab.check.session import CheckSession, Ran
from leaklab.measure.cheap_counts import native_heap_bytes
from leaklab.measure.gauges import native_caches_off
from leaklab.model import Leak
from leaklab.runtime.gc_control import collect_quietly
from leaklab.runtime.objects import loaded_type
from leaklab.text import format_bytes

N_RUNS = 6
_REMAINING = 0.25
"""Less than this share of the growth may remain without the caches, if they are to explain it."""


def discount_caches(session: CheckSession, explained: Explained) -> Generator[int, Ran, Explained]:
    """Run the code a few more times without oneDNN and with MKL's buffers freed, if native memory seems to leak.

    Not in a loop that goes on, and not after a run that failed.

    Returns:
        *explained*, or the same with that leak among what is bounded, where it disappears without the caches.
    """
    leak = next((leak for leak in explained.leaks if is_native_memory(leak)), None)
    seconds_left, next_run = session.seconds_left, session.next_run
    is_wanted = leak is not None and not session.in_loop and not session.failure and seconds_left > 0
    if leak is None or not is_wanted or loaded_type("torch", "Tensor") is None:
        return explained
    levels: list[int] = []
    with native_caches_off() as free_buffers:
        for number in range(next_run, next_run + session.n_further(N_RUNS)):
            seconds, failure = yield number
            seconds_left -= seconds
            if failure:
                note = f"the test for a native cache failed: the code raised {failure} in run {number}"
                return replace(explained, notes=(*explained.notes, note))
            free_buffers()
            if session.measurement.collects:
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
