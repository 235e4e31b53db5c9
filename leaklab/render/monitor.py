"""Write what is known of a loop as text and as HTML: its state, what grows and where that leads, the checks so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leaklab.model.check import Leak
from leaklab.model.monitor import (
    LEVEL_WORDS,
    GrowingPlace,
    Levels,
    LoopState,
    MonitorRecord,
    MonitorStatus,
    StretchCheck,
)
from leaklab.model.sentences import growth_sentence
from leaklab.render.templates import render
from leaklab.render.words import render_path
from leaklab.text import format_bytes, format_seconds, unit_words, visible, wrap

_N_TOLD, _N_CHANGES = 5, 12


def monitor_line(record: MonitorRecord) -> str:
    """Return the result in one line."""
    status = record.status
    name = f" {visible(status.name)!r}" if status.name else ""
    of = f" of {status.total_steps:,}" if status.total_steps is not None else ""
    alarm = "ALARM, " if status.is_alarm else ""
    failed = f", ended by {record.failure}" if record.failure else ""
    return f"loop{name}: {alarm}{state_words(record)} at step {status.step:,}{of}{failed}"


def state_words(record: MonitorRecord) -> str:
    """Return the state in words: ``2 leaks``, ``1 place grows``, ``steady``."""
    n_leaks = sum(place.state is LoopState.LEAK for place in record.places)
    if n_leaks:
        return unit_words(n_leaks, "leaks")
    if record.places:
        return "1 place grows" if len(record.places) == 1 else f"{len(record.places)} places grow"
    if record.status.state is LoopState.WARMING_UP:
        return "nothing is known yet"
    return "nothing grows"


def monitor_text(record: MonitorRecord) -> str:
    """Return the record as lines of at most 100 columns."""
    return "\n".join(_lines(record)) + "\n"


def _lines(record: MonitorRecord) -> Iterator[str]:
    yield from wrap(monitor_line(record), "", "  ")
    yield from wrap(consequence_words(record.status), "  ", "    ")
    for place in record.places[:_N_TOLD]:
        yield from wrap(place_line(place), "  * ", "    ")
        if place.leak is not None:
            yield from (f"      {line}" for line in place.leak.sites)
            yield from (f"      {line}" for line in render_path(place.leak.path).splitlines())
            for line in place.leak.advice.splitlines():
                own = " " * (len(line) - len(line.lstrip(" ")))
                yield from wrap(line.lstrip(" "), f"      {own}", f"      {own}")
    if len(record.places) > _N_TOLD:
        yield f"  and {len(record.places) - _N_TOLD} smaller places (record.places lists all)"
    if record.changes:
        yield "  what happened"
    for change in record.changes[-_N_CHANGES:]:
        alarm = "ALARM, " if change.is_alarm else ""
        yield from wrap(f"step {change.step:,}: {alarm}{change.state.value}: {change.words}", "    ", "      ")
    for name, first, last in level_rows(record.levels):
        yield f"  {name:<28} {first:>12} at first   {last:>12} now"
    for done in record.stretches:
        yield from wrap(check_line(done), "  check: ", "    ")
    yield from wrap(cost_words(record.status), "  ", "    ")
    for note in _notes(record):
        yield from wrap(f"note: {note}", "  ", "    ")


def place_line(place: GrowingPlace) -> str:
    """Return what grows, since when, and how sure that is."""
    sure = {LoopState.LEAK: "a leak"}.get(place.state, "not yet told from something that fills")
    if place.leak is None:
        growth = f"{LEVEL_WORDS[place.memory]} grows by {format_bytes(place.bytes_per_step)} every step"
        return f"{growth} since step {place.since_step:,}: {sure}"
    return f"{growth_sentence(place.leak, 'step')} since step {place.since_step:,}: {sure}"


def consequence_words(status: MonitorStatus) -> str:
    """Return what the growth leads to."""
    if status.bytes_per_step <= 0:
        return "no memory is taken from step to step, as far as is known"
    rate = f"{format_bytes(status.bytes_per_step)} every step"
    if status.full_at_step is not None:
        return f"{rate}: memory is full at step {status.full_at_step:,}"
    return f"{rate}: memory lasts until the end of the loop"


def check_line(done: StretchCheck) -> str:
    """Return one check in a line."""
    runs = unit_words(done.check.verdict.n_runs, "runs")
    return (
        f"steps {done.first_step:,} to {done.last_step:,} ({runs} of {unit_words(done.steps_per_run, 'steps')}): "
        f"{done.check.verdict}"
    )


def cost_words(status: MonitorStatus) -> str:
    """Return what watching took."""
    share = status.own_seconds / status.seconds if status.seconds > 0 else 0.0
    return (
        f"watching took {format_seconds(status.own_seconds)} of {format_seconds(status.seconds)} ({share:.2%}), "
        f"the longest pause {format_seconds(status.longest_seconds)}"
    )


def level_rows(levels: Levels) -> Iterator[tuple[str, str, str]]:
    """Yield name, first level and last level, for the levels that are known."""
    for name, column in (
        ("native heap", levels.heap_bytes),
        ("process (resident)", levels.rss_bytes),
        ("accelerators, allocated", levels.accelerator_bytes),
        ("accelerators, reserved", levels.reserved_bytes),
    ):
        known = [value for value in column if value >= 0]
        if known:
            yield name, format_bytes(known[0]), format_bytes(known[-1])


def _notes(record: MonitorRecord) -> Sequence[str]:
    """Return the notes of the monitor, then those of its last check."""
    of_check = record.stretches[-1].check.notes if record.stretches else ()
    return tuple(dict.fromkeys((*record.notes, *of_check)))


def leaks_of(record: MonitorRecord) -> tuple[Leak, ...]:
    """Return the leaks that are certain, rates per step, the largest first."""
    return tuple(p.leak for p in record.places if p.leak is not None and p.state is LoopState.LEAK)


def monitor_html(record: MonitorRecord) -> str:
    """Return the record as HTML without styles, scripts or ids, so that it shows in a notebook that is not trusted."""
    return str(
        render(
            "monitor.html.j2",
            record=record,
            line=monitor_line(record),
            consequence=consequence_words(record.status),
            places=record.places[:_N_TOLD],
            n_more=max(len(record.places) - _N_TOLD, 0),
            place_line=place_line,
            changes=record.changes[-_N_CHANGES:],
            level_rows=level_rows(record.levels),
            check_line=check_line,
            cost=cost_words(record.status),
            notes=_notes(record),
        )
    )
