"""The records of a check of many processes: what each of them found."""

from __future__ import annotations

from dataclasses import dataclass

from leaklab.model.check import Check, Leak
from leaklab.model.loop import MonitorRecord

RANKS_SCHEMA = 1
"""Raised whenever the record changes so that older files cannot be read any more."""

UNNUMBERED = -1
"""The rank of a process that nobody gave a number."""


@dataclass(frozen=True, slots=True)
class RankRecord:
    """What one process of many found.

    Attributes:
        rank: Its number in the group, from 0; `UNNUMBERED` until `leaklab.merge` gives it one.
        world_size: How many processes the group has; 0 where nobody said so (files of a folder, engines).
        host: The name of its machine.
        pid: Its process number there.
        label: How people call it where it is no rank: ``engine 3``, the address of a worker; empty for a rank.
        check: Its check, also a partial one; None if it has none.
        monitor: Its monitor's record, where a loop was watched; None if none was.
        error: One sentence on why it has no answer, or only a partial one; empty if it has one.
    """

    rank: int
    world_size: int
    host: str
    pid: int
    label: str = ""
    check: Check | None = None
    monitor: MonitorRecord | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class RanksRecord:
    """What all of them found.

    Attributes:
        ranks: In the order of their numbers.
        notes: What the reader should know of how they were gathered, one sentence each: files that could not be read,
            answers that came twice.
    """

    ranks: tuple[RankRecord, ...]
    notes: tuple[str, ...] = ()
    schema: int = RANKS_SCHEMA


@dataclass(frozen=True, slots=True)
class SharedLeak:
    """One leak, known by its fingerprint, with the processes that have it.

    Attributes:
        leak: As the process with the highest rate tells it.
        ranks: Those that have it.
        is_certain: Whether one of them calls it a leak; else it only grows so far.
        lowest: The lowest rate among them, in bytes each turn.
        highest: The highest.
        bounded: The ranks where the same place grew and stopped.
        turn: ``run`` or ``step``.
    """

    leak: Leak
    ranks: tuple[int, ...]
    is_certain: bool
    lowest: float
    highest: float
    bounded: tuple[int, ...] = ()
    turn: str = "run"
