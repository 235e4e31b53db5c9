"""A loop that was watched, its state, what grows and where that leads: what is said of it, what the user holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from leaklab.decide.rising_level import find_periods, find_rise
from leaklab.model import Leak, Outcome
from leaklab.model.loop import (
    HOST,
    LEVEL_WORDS,
    MONITOR_SCHEMA,
    GrowingPlace,
    Levels,
    LoopState,
    MonitorRecord,
    MonitorStatus,
    StateChange,
    StretchCheck,
)
from leaklab.model.sentences import growth_sentence, more_words, site_words
from leaklab.render.base import Forms, Report
from leaklab.render.document import (
    Bullet,
    Chapter,
    Document,
    DocumentBlock,
    Either,
    Headline,
    Lines,
    Panel,
    PathSteps,
    Prose,
    Remark,
    RowLine,
    Table,
    Tone,
    faint,
    marked,
    notes_of,
)
from leaklab.render.words import render_path
from leaklab.render.writers import text_of
from leaklab.reports.check import LeakReport
from leaklab.reports.check_html import answer_of
from leaklab.text import format_bytes, format_seconds, unit_words, visible

_N_SHOWN, _N_CHANGES = 5, 12
_FAR = 100
"""At so many times the steps of a loop nobody waits for its memory to be full."""


def document_of(record: MonitorRecord) -> Document:
    """Return what is said of a loop: its state, what grows; HTML folds what happened, the levels and the checks."""
    status = record.status
    tone = Tone.BAD if status.is_alarm else Tone.DOUBTFUL if record.places else Tone.GOOD
    blocks: list[DocumentBlock] = [Headline(monitor_line(record), tone, (consequence_words(record),))]
    shown = record.places[:_N_SHOWN]
    blocks += [_place(place, is_first=place is shown[0]) for place in shown]
    if len(record.places) > _N_SHOWN:
        rest = f"and {unit_words(len(record.places) - _N_SHOWN, 'smaller places')} (record.places lists all)"
        blocks.append(Remark(faint(rest), indent=2))
    evidence: list[DocumentBlock] = []
    if record.changes:
        evidence += [Either(text=(Remark("what happened", indent=2),)), _changes(record.changes[-_N_CHANGES:])]
    line = RowLine("{0:<28} {1:>12} at first   {2:>12} at most   {3:>12} now")
    evidence.append(Table(("memory", "at first", "at most", "now"), tuple(_level_rows(record.levels)), (line,)))
    checks = map(_check_line, record.stretches)
    evidence += [Remark(faint(f"check of {line}"), f"check: {line}", indent=2) for line in checks]
    evidence.append(Remark(faint(_cost_words(status)), indent=2))
    paths = [PathSteps(place.leak.path) for place in record.places[:_N_SHOWN] if place.leak is not None]
    folded = Chapter("Evidence", (*paths, *evidence), is_open=False)
    return Document((*blocks, Either(tuple(evidence), (folded,)), *notes_of(_notes(record), indent=2)))


def _place(place: GrowingPlace, *, is_first: bool) -> DocumentBlock:
    """Return what is said of one place that grows; of the first HTML shows the answer, of others it is folded."""
    title, leak = marked(_place_line(place)), place.leak
    if leak is None:
        return Bullet(title)
    in_text = (
        Lines(tuple(map(site_words, leak.sites))),
        Lines(tuple(render_path(leak.path).splitlines())),
        Prose(leak.advice),
    )
    answer = tuple(answer_of(leak))
    folded = Chapter(title, answer, is_open=False)
    in_html = Panel(title, Tone.NONE, blocks=answer, is_filled=False) if is_first else folded
    return Either((Bullet(title, in_text),), (in_html,))


def _changes(changes: Sequence[StateChange]) -> Table:
    rows = ((f"{one.step:,}", f"{'ALARM, ' if one.is_alarm else ''}{one.state.value}", one.words) for one in changes)
    return Table(("step", "state", "what happened"), tuple(rows), (RowLine("step {0}: {1}: {2}", 4, 6),))


def monitor_text(record: MonitorRecord) -> str:
    """Return *record* as lines."""
    return text_of(document_of(record))


def monitor_line(record: MonitorRecord) -> str:
    """Return the result in one line."""
    status = record.status
    name = f" {visible(status.name)!r}" if status.name else ""
    of = f" of {status.total_steps:,}" if status.total_steps is not None else ""
    alarm = "ALARM, " if status.is_alarm else ""
    failed = f", ended by {visible(record.failure)}" if record.failure else ""
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


def _place_line(place: GrowingPlace) -> str:
    """Return what grows, since when, and how sure that is."""
    sure = {LoopState.LEAK: "a leak"}.get(place.state, "it may still stop growing, as a buffer that fills up does")
    if place.leak is None:
        level = LEVEL_WORDS.get(place.memory, visible(place.memory))
        growth = f"{level} grows by {format_bytes(place.bytes_per_step)} every step"
        return f"{growth} since step {place.since_step:,}: {sure}"
    return f"{growth_sentence(place.leak, 'step')} since step {place.since_step:,}: {sure}"


def consequence_words(record: MonitorRecord) -> str:
    """Return what the growth leads to, or in how many steps none was seen."""
    status = record.status
    if status.bytes_per_step <= 0:
        return _seen_words(record)
    rate = f"{format_bytes(status.bytes_per_step)} every step"
    beside = _resident_words(record)
    if status.full_at_step is None:
        return f"{rate}: memory lasts until the end of the loop{beside}"
    if status.full_at_step > _FAR * status.step and not status.is_alarm:
        return f"{rate}: at this pace memory lasts for more than {_FAR * status.step:,} steps{beside}"
    return f"{rate}: memory is full at step {status.full_at_step:,}{beside}"


_MUCH_FASTER = 2.0
_LEAST_RESIDENT = 64 << 20
"""The resident set is told if it grows so many times as fast as what is kept, and has grown by so many bytes."""


def _resident_words(record: MonitorRecord) -> str:
    """Say that the process grows faster than what is kept, as where freed memory lies between what stays."""
    of_host = sum(place.bytes_per_step for place in record.places if place.memory == HOST)
    known = [pair for pair in zip(record.levels.steps, record.levels.rss_bytes, strict=True) if pair[1] >= 0]
    rise = find_rise(*zip(*known, strict=True)) if known and of_host > 0 else None
    if rise is None or rise.risen < _LEAST_RESIDENT or rise.per_step < _MUCH_FASTER * of_host:
        return ""
    return (
        f"; but the process (resident) grows by {format_bytes(rise.per_step)} every step: freed memory that lies "
        "between what is kept, or files that are mapped"
    )


def _seen_words(record: MonitorRecord) -> str:
    """Say what was looked at. Where nothing was, that is not to say that nothing grows."""
    if record.status.state is LoopState.WARMING_UP:
        if record.stretches:
            return "what was seen so far does not show whether anything grows"
        seen = "the steps are being looked at" if record.status.is_checking else "no step has been looked at"
        return f"{seen}: it is not known whether anything grows"
    if record.status.state is not LoopState.STEADY or not record.stretches:
        return "no growth from step to step is known"
    n_steps = sum(done.last_step - done.first_step for done in record.stretches)
    steps, seconds = record.levels.steps, record.levels.seconds
    periods = find_periods(steps[1:], np.diff(seconds) / np.maximum(np.diff(steps), 1))
    n_periods = n_steps // periods[-1] if periods else 0
    times = f", {n_periods:,} times a period of {periods[-1]:,} steps" if n_periods > 1 else ""
    return f"nothing grew in the {n_steps:,} steps that were looked at{times}"


def _check_line(done: StretchCheck) -> str:
    """Return one check in a line. What grew there is a leak only if it goes on, which the places say."""
    check, runs = done.check, unit_words(done.check.verdict.n_runs, "runs")
    found = str(check.verdict)
    if check.leaks and check.verdict.outcome is Outcome.LEAK:
        found = growth_sentence(check.leaks[0]) + more_words(check.leaks, "place")
    steps = f"steps {done.first_step:,} to {done.last_step:,}"
    return f"{steps} ({runs} of {unit_words(done.steps_per_run, 'steps')}): {found}"


def _cost_words(status: MonitorStatus) -> str:
    """Return what watching took."""
    share = status.own_seconds / status.seconds if status.seconds > 0 else 0.0
    return (
        f"watching took {format_seconds(status.own_seconds)} of {format_seconds(status.seconds)} ({share:.2%}), "
        f"the longest pause {format_seconds(status.longest_seconds)}"
    )


def _level_rows(levels: Levels) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, first level, highest and last level, for the levels that are known.

    The last one may be read when the loop has let go of all that it kept.
    """
    for name, column in (
        ("native heap", levels.heap_bytes),
        ("process (resident)", levels.rss_bytes),
        ("accelerators, allocated", levels.accelerator_bytes),
        ("accelerators, reserved", levels.reserved_bytes),
    ):
        known = [value for value in column if value >= 0]
        if known:
            yield name, format_bytes(known[0]), format_bytes(max(known)), format_bytes(known[-1])


def _notes(record: MonitorRecord) -> Sequence[str]:
    """Return the notes of the monitor, then those of its last check."""
    of_check = record.stretches[-1].check.notes if record.stretches else ()
    return tuple(dict.fromkeys((*record.notes, *of_check)))


def leaks_of(record: MonitorRecord) -> tuple[Leak, ...]:
    """Return the leaks that are certain, rates per step, the largest first."""
    return tuple(p.leak for p in record.places if p.leak is not None and p.state is LoopState.LEAK)


@dataclass(frozen=True, slots=True, repr=False)
class MonitorReport(Report[MonitorRecord]):
    """What is known of a loop at one moment.

    It holds the record and nothing else, so it can be pickled and keeps nothing of the user's alive.

    Attributes:
        record: The record, with every figure.
    """

    _forms: ClassVar = Forms(
        kind=MonitorRecord,
        format="leaklab monitor",
        schema=MONITOR_SCHEMA,
        document=document_of,
    )
    record: MonitorRecord

    @property
    def leaked(self) -> bool:
        """Whether a leak is certain: it was found, and found again at twice the steps."""
        return self.record.status.state is LoopState.LEAK

    @property
    def leaks(self) -> tuple[Leak, ...]:
        """The leaks that are certain, the largest first; their rates are per step."""
        return leaks_of(self.record)

    @property
    def changes(self) -> tuple[StateChange, ...]:
        """The states that were come to, oldest first."""
        return self.record.changes

    @property
    def checks(self) -> tuple[LeakReport, ...]:
        """The reports of the checks of stretches, oldest first; their rates are per run of several steps."""
        return tuple(LeakReport(done.check) for done in self.record.stretches)

    def __repr__(self) -> str:
        return f"<MonitorReport {monitor_line(self.record)}>"
