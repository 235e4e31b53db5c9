"""What the heap shows of everything that grows: the record between the explanation and the verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace

from leaklab.check.ranking import counts_by_bytes
from leaklab.collect.measurement import Measurement
from leaklab.explain.groups import LeakAddress
from leaklab.model import ContainerGrowth, Leak, ObjectGrowth, TensorGrowth
from leaklab.model.check import MemoryShare
from leaklab.model.sentences import growth_sentence, more_words
from leaklab.text import format_bytes


@dataclass(frozen=True, slots=True)
class Explained:
    """What the heap shows of everything that grows."""

    leaks: tuple[Leak, ...] = ()
    bounded: tuple[Leak, ...] = ()
    objects: tuple[ObjectGrowth, ...] = ()
    tensors: tuple[TensorGrowth, ...] = ()
    containers: tuple[ContainerGrowth, ...] = ()
    notes: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    suspects: tuple[Leak, ...] = ()
    n_aside: int = 0
    logs: tuple[Leak, ...] = ()
    kept: tuple[int, ...] = ()
    tensors_kept: tuple[int, ...] = ()
    tensor_bytes_kept: tuple[int, ...] = ()
    addresses: tuple[LeakAddress, ...] = ()
    native_bytes: float = 0.0  # what malloc hands out per run for the leaks that Python explains
    shares: tuple[MemoryShare, ...] = ()
    charged: frozenset[str] = frozenset()  # kinds of memory whose rest was taken for that of a leak
    noted: tuple[Leak, ...] = ()
    small: tuple[Leak, ...] = ()  # leaks of fewer bytes than the settings ask for


def apart_from_small(explained: Explained, min_bytes: int) -> Explained:
    """Return *explained* with what leaks less than *min_bytes* per run in the notes, not among the leaks."""
    small = tuple(leak for leak in explained.leaks if leak.bytes_per_run < min_bytes and counts_by_bytes(leak))
    if not small:
        return explained
    shown = "; ".join(growth_sentence(leak) for leak in small[:_N_SHOWN])
    note = f"smaller than --min-bytes {format_bytes(min_bytes)}: {shown}{more_words(small[_N_SHOWN - 1 :], 'leak')}"
    leaks = tuple(leak for leak in explained.leaks if leak not in small)
    return replace(
        explained, leaks=leaks, small=small, notes=(*explained.notes, note), noted=(*explained.noted, *small)
    )


_N_SHOWN = 5
"""A note names so many leaks that are left aside, and counts the others."""


def explain_nothing(measurement: Measurement) -> Explained:
    """Return the explanation of a check that found no growth."""
    none = (0,) * measurement.n_runs
    return Explained(kept=measurement.cohorts.sizes(), tensors_kept=none, tensor_bytes_kept=none)
