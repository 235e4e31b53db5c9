"""The record of a process at one moment: what it holds, who holds it, why somebody asked."""

from __future__ import annotations

from dataclasses import dataclass

from leaklab.model.monitor import MonitorStatus
from leaklab.model.paths import RootPath

PROCESS_SCHEMA = 1
"""Raised whenever the record changes so that older files cannot be read any more."""


@dataclass(frozen=True, slots=True)
class ProcessLevels:
    """Memory of the process at one moment, in bytes; None for what the system does not tell.

    Attributes:
        rss: Resident set.
        heap: Handed out by malloc.
        accelerator: Allocated on all accelerators.
        reserved: Reserved by torch's allocator on all accelerators.
        limit: Of the memory that the process may use, the lowest that is known.
        limit_words: Whose limit that is; empty without one.
        limit_used: What counts towards that limit.
    """

    rss: int
    heap: int | None = None
    accelerator: int | None = None
    reserved: int | None = None
    limit: int | None = None
    limit_words: str = ""
    limit_used: int | None = None


@dataclass(frozen=True, slots=True)
class KindCount:
    """Objects of one type.

    Attributes:
        kind: Qualified name of the type.
        count: How many there are.
    """

    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class HeldTensors:
    """Tensors, or arrays and bytes, that the same place holds; each storage counted once.

    Attributes:
        holder: Python expression for what holds them, or words for it; empty if that was not looked for.
        what: The largest of them: type, shape, dtype, device.
        n_tensors: How many.
        n_bytes: Bytes of their storages.
        largest_bytes: Bytes of the largest storage.
        path: From a root to the largest, or to what refers to it where it is an array; None where none is known.
        unit: What they are: ``tensors`` or ``arrays``.
    """

    holder: str
    what: str
    n_tensors: int
    n_bytes: int
    largest_bytes: int
    path: RootPath | None = None
    unit: str = "tensors"


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """Everything that is known of a process at one moment.

    Attributes:
        occasion: Why the record was made, one sentence.
        made_at: When, in UTC, as ISO 8601 has it.
        pid: Number of the process.
        program: Its command line.
        levels: Its memory.
        stack: Where it was, outermost call first: ``train.py:41 in step: loss.backward()``. Only the asking thread's.
        n_objects: Objects that the collector knows; 0 if the heap was not looked at.
        kinds: The most frequent types.
        n_tensors: Tensors alive.
        tensor_bytes: Bytes of their storages.
        tensors: The largest tensors and arrays by holder, the most bytes first.
        monitors: Where the monitors stand that run in the process.
        notes: Caveats, and what could not be looked at, one sentence each.
        files: Names of the files written beside the report.
        seconds: What it took to make the record; the process stood still for that time.
        environment: Versions, as ``(name, version)``.
    """

    occasion: str
    made_at: str
    pid: int
    program: str
    levels: ProcessLevels
    stack: tuple[str, ...] = ()
    n_objects: int = 0
    kinds: tuple[KindCount, ...] = ()
    n_tensors: int = 0
    tensor_bytes: int = 0
    tensors: tuple[HeldTensors, ...] = ()
    monitors: tuple[MonitorStatus, ...] = ()
    notes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    seconds: float = 0.0
    environment: tuple[tuple[str, str], ...] = ()
    schema: int = PROCESS_SCHEMA
