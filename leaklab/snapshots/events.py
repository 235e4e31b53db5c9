"""Turn the events of a trace into columns, and find for each allocation when it was freed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leaklab.errors import SnapshotError

ALLOC, FREE, SEGMENT_IN, SEGMENT_OUT, OOM, OTHER = range(6)
_CODES = {
    "alloc": ALLOC,
    "free_completed": FREE,
    "segment_alloc": SEGMENT_IN,
    "segment_map": SEGMENT_IN,
    "segment_free": SEGMENT_OUT,
    "segment_unmap": SEGMENT_OUT,
    "oom": OOM,
}

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Events:
    """The events of one device, oldest first; all arrays have the shape ``(n_events,)``.

    Attributes:
        device: As in `leaklab.model.snapshots.LiveStack`.
        action: Codes of this module.
        address: Of the block or the segment; 0 for an event without one.
        size: Bytes that the program requested; of segments, their size.
        time_us: Microseconds since 1970; all 0 where they were not recorded.
        frames: For each event its call stack, as an index into `lists`.
        lists: The lists of frames of the file; the events share them.
        ended: For an allocation, the position of the event that freed it, ``n_events`` if it is live at the end; for a
            free, the position of its allocation, -1 if that is older than the trace; for others -1.
        raw: The events of `OOM`, by position.
    """

    device: str
    action: NDArray[np.int8]
    address: Ints
    size: Ints
    time_us: Ints
    frames: Ints
    lists: list[list[Any]]
    ended: Ints
    raw: dict[int, dict[str, Any]]

    @property
    def n(self) -> int:
        """Number of events."""
        return len(self.action)


def events_of(device: str, trace: Sequence[dict[str, Any]]) -> Events:
    """Return the columns of *trace*.

    Raises:
        SnapshotError: if an event is none; the sentence says so.
    """
    n = len(trace)
    codes, other = _CODES, OTHER
    try:
        action = np.fromiter((codes.get(event["action"], other) for event in trace), np.int8, n)
        address = np.fromiter((event.get("addr", 0) & 0x7FFFFFFFFFFFFFFF for event in trace), np.int64, n)
        size = np.fromiter((event.get("size", 0) for event in trace), np.int64, n)
        time_us = np.fromiter((event.get("time_us", 0) for event in trace), np.int64, n)
        nothing: list[Any] = []
        shared = {id(frames): frames for frames in (event.get("frames", nothing) for event in trace)}
        ids = np.fromiter((id(event.get("frames", nothing)) for event in trace), np.int64, n)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        msg = f"the trace of {device} holds an event without an action, address and size of the right types"
        raise SnapshotError(msg) from error
    if any(type(frames) is not list for frames in shared.values()):
        msg = f"the trace of {device} holds an event whose frames are no list"
        raise SnapshotError(msg)
    found, frames = np.unique(ids, return_inverse=True)
    lists = [shared[key] for key in found.tolist()]
    raw = {position: trace[position] for position in np.flatnonzero(action == OOM).tolist()}
    return Events(device, action, address, size, time_us, frames, lists, _pair(action, address), raw)


def _pair(action: NDArray[np.int8], address: Ints) -> Ints:
    """Pair allocations with frees: of each address the events in their order, each looks at its neighbour.

    An allocation that is followed by another one at the same address was freed unseen, at the latest by then.
    """
    n = len(action)
    ended = np.full(n, -1, np.int64)
    positions = np.flatnonzero((action == ALLOC) | (action == FREE))
    order = positions[np.argsort(address[positions], kind="stable")]
    if not len(order):
        return ended
    is_alloc = action[order] == ALLOC
    same = address[order[1:]] == address[order[:-1]]
    following = np.append(np.where(same, order[1:], n), n)
    ended[order[is_alloc]] = following[is_alloc]
    before = np.insert(np.where(same & is_alloc[:-1], order[:-1], -1), 0, -1)
    ended[order[~is_alloc]] = before[~is_alloc]
    return ended
