"""The records of a process at one moment, and of a training run: what is alive, who holds it, what memory it takes."""

from __future__ import annotations

from dataclasses import dataclass

from leaklab.model.loop import MonitorStatus
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


@dataclass(frozen=True, slots=True)
class Survivor:
    """Objects of a run that one place keeps alive.

    Attributes:
        what: The objects that matter most, ``Net``, ``torch.Tensor (64, 128) float32 cpu``.
        models: Names of the types of the outermost modules among them, with how many of each.
        n_optimizers: Optimizers among them.
        n_tensors: Tensors among them.
        n_objects: All of them.
        n_bytes: Bytes of all of them, each storage counted once, those of other owners not counted.
        holder: Expression for the object that keeps them, or words for it.
        path: From a root to one of them.
        cause: Slug of the cause.
        advice: What to change.
    """

    what: str
    models: tuple[tuple[str, int], ...]
    n_optimizers: int
    n_tensors: int
    n_objects: int
    n_bytes: int
    holder: str
    path: RootPath
    cause: str
    advice: str


@dataclass(frozen=True, slots=True)
class MemoryLevels:
    """Memory at one moment, in bytes.

    Attributes:
        tensors: Unique storages of all tensors that Python knows.
        rss: Resident set of the process.
        accelerator: Allocated on all accelerators; None without one.
        peak_rss: Highest resident set since the process began; None where the system does not tell.
        peak_accelerator: Highest allocation since the user's program last reset that figure; None without CUDA.
    """

    tensors: int
    rss: int
    accelerator: int | None = None
    peak_rss: int | None = None
    peak_accelerator: int | None = None


@dataclass(frozen=True, slots=True)
class TrainingRunRecord:
    """Everything that is known of one run after it.

    Attributes:
        name: What the user calls it.
        seconds: Wall time of the block.
        survivors: Places that keep something of the run alive after a full collection, largest first.
        n_tensors: Tensors made inside that are alive.
        tensor_bytes: Their unique storages, those that were there before not counted.
        before: Memory when the run started, after a collection.
        after: Memory when it ended, after a collection.
        earlier: Models and optimizers that were alive when the run started: what runs before it left.
        notes: What could not be told.
        failure: Name of what the block raised; empty if it ended by itself.
    """

    name: str
    seconds: float
    survivors: tuple[Survivor, ...]
    n_tensors: int
    tensor_bytes: int
    before: MemoryLevels
    after: MemoryLevels
    earlier: tuple[Survivor, ...] = ()
    notes: tuple[str, ...] = ()
    failure: str = ""
