"""One file for each rank, in a folder that all of them can write; read together again."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from leaklab.errors import ReportError
from leaklab.files import FilePath
from leaklab.model.ranks import UNNUMBERED, RankRecord
from leaklab.render.base import read_bytes, write_text
from leaklab.render.json import format_of
from leaklab.reports.check import LeakReport
from leaklab.reports.monitor import MonitorReport
from leaklab.reports.ranks import RanksReport, rank_to_json

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
        notes.append(f"not read, as their names are not those of ranks: {others}")
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
        msg = f"this is no JSON, or a damaged file: {error}; save the report again with report.to_json(path)"
        raise ReportError(msg) from error


def _number(name: str) -> int:
    found = _NUMBERED.fullmatch(name)
    return int(found[1]) if found else UNNUMBERED


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _N_NAMED:,} more" if len(listed) > _N_NAMED else ""
    return f"{', '.join(listed[:_N_NAMED])}{more}"
