"""Make one report of what many processes found, sent home or left in a folder, a file for each rank.

Where this process stands among those that run the same program is asked of torch, else of the environment.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from leaklab.errors import ReportError
from leaklab.files import FilePath
from leaklab.model.check import Check
from leaklab.model.loop import MonitorRecord
from leaklab.model.ranks import UNNUMBERED, RankRecord, RanksRecord
from leaklab.render.base import read_bytes, write_text
from leaklab.render.json import format_of
from leaklab.reports.check import LeakReport
from leaklab.reports.loop import MonitorReport
from leaklab.reports.rank_answers import spans
from leaklab.reports.ranks import RanksReport, rank_to_json
from leaklab.text import shorten

_NAME = "rank_{}.json"
_NUMBERED = re.compile(r"rank_(\d{1,9})\.json")
_N_NAMED = 5


def write_rank(folder: FilePath, record: RankRecord) -> Path:
    """Write *record* to ``rank_{n}.json`` in *folder* and return the path; the folder is made if it is missing.

    Raises:
        ReportError: if the file cannot be written.
    """
    path = Path(folder) / _NAME.format(record.rank)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"cannot make the folder {os.fspath(folder)!r}: {error.strerror}; give one that can be written"
        raise ReportError(msg) from error
    write_text(path, rank_to_json(record))
    return path


def read_folder(folder: FilePath) -> tuple[list[RankRecord], list[str]]:
    """Return the records in *folder*, or in a file of many ranks, and a sentence for each file that holds none.

    Read are files named ``rank_0.json``, ``rank_1.json``, ...; where there are none, all files ``*.json``. A rank whose
    file cannot be read has a record that says why.

    Raises:
        ReportError: if there is no such folder, or nothing in it that can be read.
    """
    place = Path(folder)
    if place.is_file():
        report = RanksReport.load(place)
        return list(report.record.ranks), list(report.record.notes)
    try:
        names = sorted(entry.name for entry in place.iterdir() if entry.name.endswith(".json"))
    except OSError as error:
        msg = f"cannot read the folder {os.fspath(place)!r}: {error.strerror}; give the one that has the ranks' files"
        raise ReportError(msg) from error
    of_ranks = sorted(filter(_NUMBERED.fullmatch, names), key=_number)
    records = [record for name in of_ranks or names for record in _read(place / name)]
    notes = []
    if of_ranks and len(of_ranks) < len(names):
        others = _listed(name for name in names if name not in of_ranks)
        notes.append(f"these files were ignored, because they are not named rank_N.json: {others}")
    if not of_ranks:  # somebody else's files, most likely: they stand for no rank
        notes += [record.error for record in records if _is_empty(record)]
        records = [record for record in records if not _is_empty(record)]
    if not records:
        found = f"none of its files is a report of leaklab ({_listed(names)})" if names else "it has no .json file"
        msg = f"nothing to merge in {os.fspath(place)!r}: {found}; each rank writes its rank_0.json, rank_1.json, ..."
        raise ReportError(msg)
    return records, notes


def _read(path: Path) -> list[RankRecord]:
    try:
        return records_in(read_bytes(path), path.name)
    except ReportError as error:
        return [RankRecord(_number(path.name), 0, "", 0, error=f"{path.name} cannot be used: {error}")]


def _is_empty(record: RankRecord) -> bool:
    return record.check is None and record.monitor is None and record.rank == UNNUMBERED


def records_in(data: bytes, name: str = "") -> list[RankRecord]:
    """Return the records in *data*: one rank's, those of many that were merged before, or a report's alone.

    Args:
        data: JSON.
        name: Of the file; a report alone has its rank from there.

    Raises:
        ReportError: if it is none of these, damaged, or of another version.
    """
    form, rank = format_of(data), _number(name)
    if form == "leaklab check":
        return [RankRecord(rank, 0, "", 0, check=LeakReport.from_json(_text(data)).record)]
    if form == "leaklab monitor":
        return [RankRecord(rank, 0, "", 0, monitor=MonitorReport.from_json(_text(data)).record)]
    return list(RanksReport.from_json(_text(data)).record.ranks)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        msg = f"this is not JSON, or the file is damaged: {error}; save the report again with report.to_json(path)"
        raise ReportError(msg) from error


def _number(name: str) -> int:
    found = _NUMBERED.fullmatch(name)
    return int(found[1]) if found else UNNUMBERED


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _N_NAMED:,} more" if len(listed) > _N_NAMED else ""
    return f"{', '.join(listed[:_N_NAMED])}{more}"


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
        told.append(f"{n_same:,} of the answers came twice and are identical: each is counted once")
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
            yield f"rank {rank} sent {len(same)} different answers: all are shown; some may come from an earlier run"
    sizes = sorted({record.world_size for record in records if record.world_size})
    if len(sizes) > 1:
        listed = " and ".join(map(str, sizes))
        yield f"the answers come from groups of {listed} processes: some may come from an earlier run"
    ranks = {record.rank for record in records if not record.label} - {UNNUMBERED}
    gaps = [] if sizes or not ranks else sorted(set(range(max(ranks))) - ranks)
    if gaps:
        yield f"there is an answer of rank {max(ranks)}, but none of rank{'s' if len(gaps) > 1 else ''} {spans(gaps)}"


def record_here(
    *,
    check: Check | None = None,
    monitor: MonitorRecord | None = None,
    error: str = "",
    label: str = "",
    rank: int | None = None,
) -> RankRecord:
    """Return what this process found, with its place.

    Args:
        check: Its check.
        monitor: The record of its loop.
        error: Why it has no answer, or only a part of one.
        label: What people call this process where it is no rank.
        rank: Its number; None asks torch.distributed, then the variables that torchrun and others set.
    """
    found, world_size = rank_here()
    number = found if rank is None else rank
    return RankRecord(number, world_size, socket.gethostname(), os.getpid(), label, check, monitor, error)


def rank_here() -> tuple[int, int]:
    """Return rank and world size of this process; `UNNUMBERED` and 0 where nobody says them."""
    distributed = sys.modules.get("torch.distributed")  # whoever has a process group has imported it
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    try:
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return UNNUMBERED, 0
    return (rank, world_size) if 0 <= rank < world_size else (UNNUMBERED, 0)
