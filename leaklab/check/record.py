"""From what was measured and found to the record of a check, and what the reader should know about it."""

from __future__ import annotations

import platform
from dataclasses import replace

import psutil

from leaklab.check.cures import with_cures
from leaklab.check.findings import Explained
from leaklab.check.line_search import with_lines
from leaklab.check.memory import with_rests
from leaklab.check.process_leaks import children_note
from leaklab.check.session import CheckSession, new_threads_note, thread_words
from leaklab.check.stacks import allocation_stacks
from leaklab.decide.verdict import conclude
from leaklab.measure.measurement import Measurement
from leaklab.model import Check, Run
from leaklab.model.cure import Cure
from leaklab.model.sentences import growth_sentence, pile_words
from leaklab.version import environment


def record_of(session: CheckSession, explained: Explained) -> Check:
    """Return the record of what was measured."""
    failure = "" if session.loop is not None and session.loop.has_ended else session.failure
    verdict = conclude(
        explained.leaks,
        explained.bounded,
        explained.open_questions,
        session.measurement.n_runs,
        psutil.virtual_memory().available,
        failure,
        explained.n_aside,
        explained.suspects,
        session.run_seconds,
        explained.logs,
        (len(explained.small), session.settings.min_bytes),
    )
    found = (*explained.leaks, *explained.small)
    return Check(
        settings=session.settings,
        verdict=verdict,
        leaks=explained.leaks,
        bounded=explained.bounded,
        objects=explained.objects,
        tensors=explained.tensors,
        containers=explained.containers,
        runs=_run_rows(session.measurement, explained),
        notes=(*explained.notes, *_notes(session), *_withdrawn(session, explained)),
        failure=failure,
        environment=(*environment(), ("system", platform.platform(terse=True))),
        shares=tuple(with_rests(explained.shares, found, explained.bounded, explained.charged)),
        noted=explained.noted,
        undecided=() if session.loop is not None else explained.suspects,  # of a loop nothing is told that is in doubt
    )


def _withdrawn(session: CheckSession, explained: Explained) -> list[str]:
    """Say of what was shown as growing, and is in the report nowhere, that it did not go on; a loop's watch does so."""
    if session.loop is not None:
        return []
    told = (*explained.leaks, *explained.bounded, *explained.suspects, *explained.noted)
    known = {leak.holder for leak in told}
    gone = [growth_sentence(leak) for leak in session.shown if leak.holder not in known]
    if session.piles and not told:
        gone.append(pile_words(session.piles))
    return [f"while the check was running, it showed: {words}; this growth did not go on" for words in gone[:1]]


def _run_rows(measurement: Measurement, explained: Explained) -> tuple[Run, ...]:
    """Return the figures of every measured run."""
    rows = []
    for number in range(1, len(explained.kept) + 1):  # one whose count was given up is not told
        figures = measurement.meters.row(number)
        rows.append(
            Run(
                number=number,
                seconds=float(figures["seconds"] or 0.0),
                n_born=int(figures["born"] or 0),
                n_kept=explained.kept[number - 1],
                n_tensors_kept=explained.tensors_kept[number - 1],
                tensor_bytes_kept=explained.tensor_bytes_kept[number - 1],
                heap_bytes=_whole(figures["heap"]),
                python_blocks=_whole(figures["blocks"]),
                accelerator_bytes=_whole(figures["accelerator"]),
                rss_bytes=int(figures["rss"] or 0),
            )
        )
    return tuple(rows)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def completed(
    check: Check, explained: Explained, cures: dict[str, tuple[Cure, ...]], restored: tuple[str, ...] = ()
) -> Check:
    """Return *check* with the lines, statements and cures that were found, and with what was put back at the end."""
    notes = [*check.notes, *explained.later_notes]
    if restored:
        notes.append(f"the cell changed the garbage collector; put back: {', '.join(restored)}")
    leaks, bounded = with_lines(check.leaks, explained.lines), with_lines(check.bounded, explained.lines)
    return replace(
        check,
        leaks=with_cures(leaks, cures),
        bounded=bounded,
        notes=tuple(notes),
        statements=explained.statements,
        stacks=allocation_stacks(leaks, explained.lines),
    )


def _notes(session: CheckSession) -> tuple[str, ...]:
    """Say what the reader should know about how it was measured."""
    notes, measurement, judgement = [], session.measurement, session.judgement
    if session.full:
        notes.append(f"the check stopped after run {measurement.n_runs}, because the runs had kept {session.full}")
    if judgement is not None and judgement.slowdown is not None:
        notes.append(f"the last runs took {judgement.slowdown:.1f} times as long as the first")
    if not measurement.collects and not session.cell_freezes:
        notes.append("the garbage collector is off, so cyclic garbage piles up and is counted")
    if session.cell_freezes:
        notes.append("the cell calls gc.freeze(): its objects were thawed for counting and frozen again")
    notes += filter(None, (new_threads_note(measurement), children_note(measurement)))
    if judgement is not None and judgement.says_anything and (busy := session.clocks.busy()):
        notes.append(
            f"{thread_words(busy)} ran during the check: objects that other threads leave behind are counted too"
        )
    if judgement is not None and judgement.native is None:
        notes.append("the native heap could not be measured: this system's C library does not report its size")
    return tuple(notes)
