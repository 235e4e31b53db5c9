"""Make one report of what many processes found."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from leaklab.errors import ReportError
from leaklab.files import FilePath
from leaklab.model.ranks import UNNUMBERED, RankRecord, RanksRecord
from leaklab.ranks.files import read_folder, records_in
from leaklab.reports.check import LeakReport
from leaklab.reports.monitor import MonitorReport
from leaklab.reports.rank_answers import spans
from leaklab.reports.ranks import RanksReport
from leaklab.text import shorten

_MESSAGE_LIMIT = 300


def merge(records: FilePath | Iterable[Any] | Mapping[Any, Any]) -> RanksReport:
    """Make one report of what many workers found: which of them leak, and which leaks they have in common.

    Args:
        records: A folder with files ``rank_0.json``, ``rank_1.json``, ...; or what the workers sent home, as a list or
            as a dict by the workers' names. Each is what `leaklab.remote.check` returned, a `LeakReport`, a
            `MonitorReport`, their JSON, or the exception that came instead.

    Returns:
        The report. A worker whose answer cannot be read is told in it, with the reason.

    Raises:
        ReportError: if there is nothing to merge.
        TypeError: if one of *records* is none of these.
    """
    if isinstance(records, (str, os.PathLike)):
        return RanksReport(_merged(*read_folder(records)))
    sent: Iterable[tuple[object, object]]
    sent = records.items() if isinstance(records, Mapping) else (("", value) for value in records)
    found = [record for name, value in sent for record in _records_of(value, str(name))]
    if not found:
        msg = "there is nothing to merge: give a folder with files of ranks, or what the workers returned"
        raise ReportError(msg)
    return RanksReport(_merged(found))


def _records_of(value: object, name: str) -> Iterator[RankRecord]:
    """Yield the records in what one worker sent; *name* is what people call it."""
    if isinstance(value, RankRecord):
        yield value if not name or value.label else replace(value, label=name)
    elif isinstance(value, RanksReport):
        yield from value.record.ranks
    elif isinstance(value, LeakReport):
        yield RankRecord(UNNUMBERED, 0, "", 0, name, check=value.record)
    elif isinstance(value, MonitorReport):
        yield RankRecord(UNNUMBERED, 0, "", 0, name, monitor=value.record)
    elif isinstance(value, BaseException):
        yield RankRecord(UNNUMBERED, 0, "", 0, name, error=error_words(value))
    elif isinstance(value, (str, bytes)):
        try:
            found = records_in(value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass"))
        except ReportError as error:
            yield RankRecord(UNNUMBERED, 0, "", 0, name, error=f"what it sent cannot be used: {error}")
            return
        for record in found:
            yield from _records_of(record, name)
    else:
        msg = f"merge takes what leaklab.remote.check returned, reports or exceptions, not {type(value).__name__}"
        raise TypeError(msg)


def error_words(error: BaseException) -> str:
    """Return type and message of *error* in one line."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the user's own __str__
        message = ""
    first = next(iter(message.strip().splitlines()), "")
    return shorten(": ".join(filter(None, (type(error).__name__, first))), _MESSAGE_LIMIT)


def _merged(records: Iterable[RankRecord], notes: Iterable[str] = ()) -> RanksRecord:
    """Return *records* as one, each with a number, in the order of these; what is odd about them is a note."""
    known: list[RankRecord] = []
    by_rank: dict[int, list[RankRecord]] = {}
    n_same = 0
    for record in records:
        same = by_rank.setdefault(record.rank, [])
        if record.rank != UNNUMBERED and record in same:
            n_same += 1
            continue
        same.append(record)
        known.append(record)
    told = [*notes, *_oddities(known, by_rank)]
    if n_same:
        told.append(f"{n_same:,} of the answers came twice, alike in everything: they are counted once")
    return RanksRecord(tuple(sorted(_numbered(known), key=lambda one: one.rank)), tuple(told))


def _numbered(records: Sequence[RankRecord]) -> Iterator[RankRecord]:
    taken = {record.rank for record in records}
    free = iter(number for number in range(len(records) + len(taken)) if number not in taken)
    for record in records:
        if record.rank == UNNUMBERED:
            number = next(free)
            yield replace(record, rank=number, label=record.label or f"worker {number}")
        else:
            yield record


def _oddities(records: Sequence[RankRecord], by_rank: Mapping[int, Sequence[RankRecord]]) -> Iterator[str]:
    for rank, same in sorted(by_rank.items()):
        if rank != UNNUMBERED and len(same) > 1:
            yield f"rank {rank} has {len(same)} different answers: all are shown, one of them may be of an earlier run"
    sizes = sorted({record.world_size for record in records if record.world_size})
    if len(sizes) > 1:
        listed = " and ".join(map(str, sizes))
        yield f"the answers come from groups of {listed} processes: some of them may be left of an earlier run"
    ranks = {record.rank for record in records if not record.label} - {UNNUMBERED}
    gaps = [] if sizes or not ranks else sorted(set(range(max(ranks))) - ranks)
    if gaps:
        yield f"there is an answer of rank {max(ranks)}, but none of rank{'s' if len(gaps) > 1 else ''} {spans(gaps)}"
