"""Follow the memory of a device along its trace: its levels, the phases of the program, what was live at one event.

Levels are taken at so many events as a picture is wide. Annotations say which part of the program ran at which events.
The events at which somebody wants to know what was live are the peak and those where memory ran out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from leaklab.cuda.live_blocks import frameless_label, largest_first
from leaklab.cuda.reserved import free_pieces
from leaklab.cuda.schema import Annotation
from leaklab.cuda.stacks import StackTable, is_project, is_python, label_of, labels_of
from leaklab.cuda.trace import ALLOC, FREE, OOM, SEGMENT_IN, SEGMENT_OUT, Events, History, Ints, freed_unseen
from leaklab.model.cuda import BEFORE, CPP, NO_STACK, OTHERS, CallFrame, LiveStack, Timeline, TracePhase, TracePoint

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


class Span(NamedTuple):
    """One part of the program: it begins in state *first*, and *last* is the first state that is no longer its own."""

    first: int
    last: int
    name: str


def spans_of(history: History, annotations: Iterable[Annotation]) -> list[Span]:
    """Return the annotated parts that reach into the trace, by their begin, outer ones first.

    So are stretches whose events say the same of themselves: what the user marked them with, or a context of
    ``torch.compile``.

    An end belongs to the newest begin of its name. A begin that the trace, a ring, has lost is at its first event; what
    never ends does so with the trace.
    """
    times, n_events = history.events.time_us, history.events.n
    found = [Span(*note) for note in history.events.notes]
    if not n_events or not times.all():
        return sorted(found, key=_order)
    times = np.maximum.accumulate(times)
    begun: dict[str, list[int]] = defaultdict(list)
    for _device, name, is_start, time_us in annotations:
        state = int(np.searchsorted(times, time_us, side="right" if is_start else "left"))
        if is_start:
            begun[name].append(state)
        elif state:
            first = begun[name].pop() if begun[name] else 0
            found.append(Span(first, state + 1, name))
        elif begun[name]:
            begun[name].pop()  # over before the first event
    found += [Span(first, n_events + 1, name) for name, starts in begun.items() for first in starts]
    return sorted(found, key=_order)


def _order(span: Span) -> tuple[int, int, str]:
    return span.first, -span.last, span.name


def phases_of(history: History, annotations: Iterable[Annotation]) -> Iterator[TracePhase]:
    """Yield each annotation of the device once, in the order in which they first begin."""
    device = history.events.device
    by_name: dict[str, list[Span]] = {}
    for span in spans_of(history, (one for one in annotations if one.device == device)):
        by_name.setdefault(span.name, []).append(span)
    levels = history.levels
    for name, spans in by_name.items():
        yield TracePhase(
            device=device,
            name=name,
            n_times=len(spans),
            first_event=spans[0].first,
            start_bytes=int(levels[spans[0].first]),
            highest_bytes=max(int(levels[span.first : span.last].max()) for span in spans),
            end_bytes=int(levels[max(span.last for span in spans) - 1]),
        )


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
