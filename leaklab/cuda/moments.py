"""Say what was live at one event of a trace: at the peak, at an out-of-memory event."""

from __future__ import annotations

from typing import Any

import numpy as np

from leaklab.cuda.free_memory import free_pieces
from leaklab.cuda.live_blocks import frameless_label, largest_first
from leaklab.cuda.stacks import label_of, labels_of
from leaklab.cuda.trace import ALLOC, FREE, OOM, History
from leaklab.model.cuda import BEFORE, NO_STACK, CallFrame, LiveStack, TracePoint

_MAX_OOMS = 10


def peak_of(history: History) -> TracePoint:
    """Return the moment with the most live bytes, and what they were."""
    return _moment(history, "peak", int(np.argmax(history.levels)), {})


def ooms_of(history: History) -> list[TracePoint]:
    """Return the out-of-memory events of the trace, the newest ten, and what was live."""
    found = np.flatnonzero(history.events.action == OOM).tolist()[-_MAX_OOMS:]
    return [_moment(history, "oom", position + 1, history.events.raw[position]) for position in found]


def _moment(history: History, kind: str, event: int, raw: dict[str, Any]) -> TracePoint:
    events = history.events
    time_us = int(events.time_us[event - 1]) if event else 0
    wanted, free = raw.get("size"), raw.get("device_free")
    frames = raw.get("frames")
    request = history.table.stack(frames) if type(frames) is list else ()
    pieces = free_pieces(events, history.segments, event)
    return TracePoint(
        device=events.device,
        kind=kind,
        event=event,
        n_events=events.n,
        time_us=time_us or None,
        live_bytes=int(history.levels[event]),
        wanted_bytes=wanted if kind == "oom" and type(wanted) is int else None,
        free_bytes=free if kind == "oom" and type(free) is int else None,
        request=request,
        stacks=stacks_after(history, event),
        request_label=label_of(request) if request else "",
        reserved_bytes=pieces.reserved_bytes if pieces else None,
        reserved_free_bytes=pieces.free_bytes if pieces else None,
        largest_free_bytes=pieces.largest_bytes if pieces else None,
    )


def stacks_after(history: History, n_done: int) -> tuple[LiveStack, ...]:
    """Return what was live after the first *n_done* events, by call stack. Their bytes are requested bytes."""
    events = history.events
    started = (events.action == ALLOC) & (np.arange(events.n) < n_done) & (events.ended >= n_done)
    sums: dict[tuple[str, tuple[CallFrame, ...]], list[int]] = {}

    def add(label: str, stack: tuple[CallFrame, ...], n_bytes: int) -> None:
        found = sums.setdefault((label, stack), [0, 0])
        found[0] += 1
        found[1] += n_bytes

    for frames, size in zip(events.frames[started].tolist(), events.size[started].tolist(), strict=True):
        stack = history.table.stack(events.lists[frames])
        add("" if stack else NO_STACK, stack, size)
    for pool, _address, size, frames in history.older:
        stack = history.table.stack(frames)
        add("" if stack else frameless_label(pool, size), stack, size)
    unknown = (events.action == FREE) & (events.ended < 0) & (np.arange(events.n) >= n_done)
    for size in events.size[unknown].tolist():
        add(BEFORE, (), size)
    labels = labels_of(stack for _label, stack in sums)
    return largest_first(
        LiveStack(events.device, label or labels[stack], stack, "", n, n_bytes, n_bytes)
        for (label, stack), (n, n_bytes) in sums.items()
    )
