"""The record of one named training run: what of it survives, who holds it, and the memory while it ran."""

from __future__ import annotations

from dataclasses import dataclass

from leaklab.model.paths import RootPath


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
