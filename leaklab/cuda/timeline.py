"""The memory of a device along its trace, at so many events as a picture is wide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from leaklab.cuda.stacks import StackTable, is_project, is_python, label_of
from leaklab.cuda.trace import ALLOC, FREE, SEGMENT_IN, SEGMENT_OUT, Events, History, Ints, freed_unseen
from leaklab.model.cuda import BEFORE, CPP, NO_STACK, OTHERS, CallFrame, Timeline

N_BANDS = 8
N_STRETCHES = 600


def highest_events(history: History, n_stretches: int) -> Ints:
    """Return the first event with the most live bytes of each stretch, and both ends."""
    levels, n_events = history.levels, history.events.n
    edges = np.unique(np.linspace(0, n_events + 1, n_stretches + 1).astype(np.int64))
    highest = [start + int(np.argmax(levels[start:end])) for start, end in pairwise(edges)]
    return np.unique(np.array([0, *highest, n_events], np.int64))


def timeline_of(history: History) -> Timeline:
    """Return the memory along the trace: of each of `N_STRETCHES` stretches the event with the most live bytes.

    A spike of one event in a million is among them, where samples at equal distances would miss it.
    """
    events, levels = history.events, history.levels
    samples = highest_events(history, N_STRETCHES)
    peak = int(np.argmax(levels))
    times = events.time_us[events.time_us > 0]
    return Timeline(
        device=events.device,
        n_events=events.n,
        seconds=float(times[-1] - times[0]) / 1e6 if len(times) > 1 else None,
        at_events=tuple(samples.tolist()),
        live_bytes=tuple(levels[samples].tolist()),
        reserved_bytes=_reserved_at(events, samples, history.reserved_bytes),
        bands=tuple(_bands(history, samples, peak)),
        peak_event=peak,
    )


def _reserved_at(events: Events, samples: Ints, end_bytes: int) -> tuple[int, ...]:
    """Return the reserved bytes at the samples, read backwards from the end; a constant without segment events."""
    came, went = events.action == SEGMENT_IN, events.action == SEGMENT_OUT
    levels = np.concatenate(([0], np.cumsum(np.where(came, events.size, 0) - np.where(went, events.size, 0))))
    return tuple((levels[samples] - levels[-1] + end_bytes).tolist())


def _bands(history: History, samples: Ints, peak: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the groups that were largest at the peak, then all others; they sum up to the levels."""
    names, levels = _levels_by_group(history, samples)
    at_peak = levels[:, int(np.searchsorted(samples, peak))]
    largest = [number for number in np.argsort(-at_peak, kind="stable").tolist() if np.any(levels[number])][:N_BANDS]
    for number in largest:
        yield names[number], tuple(levels[number].tolist())
    rest = history.levels[samples] - levels[largest].sum(axis=0)
    if np.any(rest):
        yield OTHERS, tuple(rest.tolist())


def _levels_by_group(history: History, samples: Ints) -> tuple[list[str], Ints]:
    """Return the names of the groups and their live bytes at the samples: shape ``(n_groups, n_samples)``."""
    events = history.events
    numbers: dict[str, int] = {BEFORE: 0}  # what was freed within the trace but allocated before it
    of_list = np.array(_numbered(events.lists, history.table, numbers), np.int64)
    of_older = _numbered((frames for _pool, _address, _size, frames in history.older), history.table, numbers)
    starts = np.zeros(len(numbers), np.int64)
    for (_pool, _address, size, _frames), group in zip(history.older, of_older, strict=True):
        starts[group] += size
    starts[0] += int(events.size[(events.action == FREE) & (events.ended < 0)].sum())
    # A free belongs to the group of its allocation: its own frames only say who let go.
    owner = np.where(events.action == ALLOC, np.arange(events.n), events.ended)
    group_of = np.where(owner >= 0, of_list[events.frames[np.maximum(owner, 0)]], 0)
    deltas = np.where(events.action == ALLOC, events.size, 0) - np.where(events.action == FREE, events.size, 0)
    # Summed by the interval between two samples, then over the intervals, the deltas are the levels at the samples.
    interval = np.searchsorted(samples, np.arange(events.n) + 1)
    totals = np.zeros((len(numbers), len(samples)), np.int64)
    np.add.at(totals, (group_of, interval), deltas)
    unseen = freed_unseen(events)
    np.subtract.at(totals, (group_of[unseen], interval[events.ended[unseen]]), events.size[unseen])
    return list(numbers), np.cumsum(totals, axis=1) + starts[:, None]


def _numbered(lists: Iterable[list[Any]], table: StackTable, numbers: dict[str, int]) -> list[int]:
    """Return the number of the group of each list of frames; new groups are added to *numbers*."""
    groups = (group_of(table.stack(frames)) for frames in lists)
    return [numbers.setdefault(group, len(numbers)) for group in groups]


@lru_cache(maxsize=4096)  # a pure function, asked for every list of frames of a file
def group_of(stack: tuple[CallFrame, ...]) -> str:
    """Return the group of a stack: its innermost frame of the project, or else of any Python code."""
    for rule in (is_project, is_python):
        for frame in stack:
            if rule(frame.filename):
                return label_of((frame,))
    return CPP if stack else NO_STACK
