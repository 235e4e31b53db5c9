"""Two reports of one kind side by side: what each has, paired by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from leaklab.model.alive import WhyAliveRecord
from leaklab.model.autograd import AutogradRecord
from leaklab.model.comparison import BEFORE_AFTER_SCHEMA, BeforeAfter, ChangeRow, Fate
from leaklab.model.heap import FoundRecord
from leaklab.model.loop import MonitorRecord
from leaklab.model.process import MemoryLevels, ProcessRecord, TrainingRunRecord
from leaklab.model.ranks import RanksRecord
from leaklab.model.sentences import quoted
from leaklab.render.base import Forms, Report
from leaklab.render.document import Changes, Chapter, Document, DocumentBlock, Either, Headline, Points, notes_of
from leaklab.reports.rank_answers import answers_of, shared_leaks
from leaklab.text import clipped, format_bytes, shorten

_WORDS_LIMIT = 120
_NONE = "none"


def document_of(record: BeforeAfter) -> Document:
    """Return what is said of two reports: their sums, then the single things."""
    record = clipped(record)
    blocks: list[DocumentBlock] = [Headline(_line(record))]
    if record.levels:
        blocks.append(Chapter("Memory", (Changes(record.levels, has_fates=False),)))
    if record.rows:
        blocks.append(Chapter("Changes", (Changes(record.rows),), legend="(- before, = after)"))
    return Document((*blocks, Either(notes_of(record.notes), (Chapter("Notes", (Points(record.notes),)),))))


def _line(record: BeforeAfter) -> str:
    """Return what was compared, and what came of it, in one sentence."""
    fates = _fates_words(record.rows) or "nothing to compare"
    return f"{record.kind}, {record.before or 'the first'} and {record.after or 'the second'}: {fates}"


def _fates_words(rows: Sequence[ChangeRow]) -> str:
    """Return ``2 new, 1 still there``; empty without rows."""
    counts = Counter(row.fate for row in rows)
    return ", ".join(f"{counts[fate]:,} {fate.value}" for fate in Fate if counts[fate])


@dataclass(frozen=True, slots=True, repr=False)
class SideBySide(Report[BeforeAfter]):
    """What became of what one report has in another of its kind: new, still there, gone.

    Attributes:
        record: Every figure.
    """

    _forms: ClassVar = Forms(
        kind=BeforeAfter,
        format="leaklab before and after",
        schema=BEFORE_AFTER_SCHEMA,
        document=document_of,
    )
    record: BeforeAfter

    def __repr__(self) -> str:
        return f"<SideBySide {shorten(_line(self.record), _WORDS_LIMIT)}>"


class _Item(NamedTuple):
    """One thing that a report has.

    Attributes:
        key: The same in both reports.
        name: What it is called.
        amount: How much of it there is.
        words: That in words.
    """

    key: str
    name: str
    amount: float
    words: str


class _RowsOfKind(NamedTuple):
    """How a report of one kind is read: what it is called, its sums, its single things."""

    kind: str
    name: Callable[[Any], str]
    levels: Callable[[Any], Iterable[_Item]]
    items: Callable[[Any], Iterable[_Item]]
    note: str = ""


def side_by_side(before: Report[Any], after: Report[Any]) -> SideBySide | None:
    """Return what became of what *before* has in *after*; None for reports that have no such things.

    Args:
        before: A report.
        after: One of the same class.
    """
    reading = _READINGS.get(type(before.record))
    if reading is None:
        return None
    both = (before.record, after.record)
    names = [reading.name(record) for record in both]
    levels, rows = (tuple(_paired(*map(read, both))) for read in (reading.levels, reading.items))
    notes = (reading.note,) if reading.note else ()
    return SideBySide(BeforeAfter(reading.kind, names[0], names[1], levels, rows, notes))


def _paired(before: Iterable[_Item], after: Iterable[_Item]) -> Iterator[ChangeRow]:
    """Yield what is in either, the largest change first; of several things with one key the sum."""
    old, new = _by_key(before), _by_key(after)
    for key in sorted({**old, **new}, key=lambda key: -abs(_amount(new.get(key)) - _amount(old.get(key)))):
        was, now = old.get(key), new.get(key)
        fate = Fate.NEW if was is None else Fate.GONE if now is None else Fate.STILL
        words = " -> ".join(_NONE if item is None else item.words for item in (was, now))
        yield ChangeRow((now or was or _NOTHING).name, fate, _amount(was), _amount(now), words)


_NOTHING = _Item("", "", 0.0, "")


def _amount(item: _Item | None) -> float:
    return 0.0 if item is None else item.amount


def _by_key(items: Iterable[_Item]) -> dict[str, _Item]:
    found: dict[str, _Item] = {}
    for item in items:
        known = found.get(item.key)
        amount = item.amount + _amount(known)
        found[item.key] = item if known is None else item._replace(amount=amount, words=format_bytes(amount))
    return found


def _bytes(name: str, n_bytes: float | None, per: str = "", key: str = "") -> Iterator[_Item]:
    """Yield *n_bytes*; nothing where they are not known."""
    if n_bytes is not None:
        yield _Item(key or name, name, n_bytes, f"{format_bytes(n_bytes)}{per}")


def _levels_of_run(record: TrainingRunRecord) -> Iterator[_Item]:
    levels: MemoryLevels = record.after
    yield from _bytes("tensors after the run", levels.tensors)
    yield from _bytes("the process after the run", levels.rss)
    yield from _bytes("accelerators after the run", levels.accelerator)
    yield from _bytes("tensors of the run that are alive", record.tensor_bytes)


def _survivors(record: TrainingRunRecord) -> Iterator[_Item]:
    for survivor in record.survivors:
        name = f"{quoted(survivor.holder)} keeps {survivor.what}"
        yield from _bytes(name, survivor.n_bytes, key=survivor.holder)


def _levels_of_loop(record: MonitorRecord) -> Iterator[_Item]:
    status = record.status
    yield from _bytes("all that grows", status.bytes_per_step, " every step")
    yield from _bytes("the native heap", status.heap_bytes)
    yield from _bytes("the process", status.rss_bytes)
    yield from _bytes("accelerators", status.accelerator_bytes)


def _growing_places(record: MonitorRecord) -> Iterator[_Item]:
    for place in record.places:
        name = place.fingerprint if place.leak is None else quoted(place.leak.holder) or place.leak.what
        yield from _bytes(name, place.bytes_per_step, " every step", place.fingerprint)


def _leaks_of_ranks(record: RanksRecord) -> Iterator[_Item]:
    for shared in shared_leaks(answers_of(record)):
        n_ranks = f" on {len(shared.ranks)} of {len(record.ranks)} ranks"
        name = quoted(shared.leak.holder) or shared.leak.what
        yield from _bytes(name, shared.highest, f" every {shared.turn}{n_ranks}", shared.leak.fingerprint)


def _levels_of_process(record: ProcessRecord) -> Iterator[_Item]:
    levels = record.levels
    yield from _bytes("the process", levels.rss)
    yield from _bytes("the native heap", levels.heap)
    yield from _bytes("accelerators", levels.accelerator)
    yield from _bytes("reserved on accelerators", levels.reserved)
    yield from _bytes("tensors", record.tensor_bytes)


def _tensors_of_process(record: ProcessRecord) -> Iterator[_Item]:
    for held in record.tensors:
        yield from _bytes(f"{quoted(held.holder)} keeps {held.what}", held.n_bytes, key=held.holder)


def _found(record: FoundRecord) -> Iterator[_Item]:
    for row in record.rows:
        holder = row.holder or row.place
        yield from _bytes(f"{row.kind} {row.shape} in {quoted(holder)}", row.n_bytes, key=f"{row.kind} {holder}")


def _saved_by_lines(record: AutogradRecord) -> Iterator[_Item]:
    for part in record.lines or record.operations:
        yield from _bytes(part.name, part.n_bytes)


def _holders(record: WhyAliveRecord) -> Iterator[_Item]:
    for path in record.paths:
        yield _Item(path.holder, quoted(path.holder), 1.0, "holds it")


_READINGS: dict[type, _RowsOfKind] = {
    TrainingRunRecord: _RowsOfKind("training runs", lambda run: run.name, _levels_of_run, _survivors),
    MonitorRecord: _RowsOfKind(
        "watches of loops",
        lambda watch: watch.status.name,
        _levels_of_loop,
        _growing_places,
        "a place that is gone is not proven to be fixed: the second loop may have made fewer steps",
    ),
    RanksRecord: _RowsOfKind(
        "reports of ranks",
        lambda ranks: f"{len(ranks.ranks)} ranks",
        lambda _: (),
        _leaks_of_ranks,
        "a leak that is gone is not proven to be fixed: see the verdicts of the ranks",
    ),
    ProcessRecord: _RowsOfKind("processes", lambda process: process.program, _levels_of_process, _tensors_of_process),
    FoundRecord: _RowsOfKind(
        "searches", lambda found: found.where, lambda found: _bytes("all that was found", found.n_bytes), _found
    ),
    AutogradRecord: _RowsOfKind(
        "autograd graphs",
        lambda graph: graph.name,
        lambda graph: _bytes("saved by the graph", graph.saved_bytes),
        _saved_by_lines,
    ),
    WhyAliveRecord: _RowsOfKind(
        "answers to why something is alive",
        lambda alive: alive.asked,
        lambda alive: _bytes("what only it keeps", alive.retained.exclusive_bytes),
        _holders,
    ),
}
