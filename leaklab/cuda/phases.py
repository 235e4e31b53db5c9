"""What annotations say of a trace: which part of the program ran at which events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from leaklab.cuda.schema import Annotation
from leaklab.cuda.trace import History
from leaklab.model.cuda import TracePhase


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
