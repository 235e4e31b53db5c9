"""Judge what grows in native memory beyond what the leaks found take of it."""

from __future__ import annotations

from dataclasses import dataclass

from leaklab.decide.finding import Growth
from leaklab.model import Outcome
from leaklab.model.native import NativeParts

CPP_DOUBT = 0.4
"""The C++ objects of one operation cost up to so much more or less than `explain.autograd.native_parts` estimates."""

DATA_DOUBT = 0.05
"""malloc rounds a block up: by 16 bytes, by 64 for the alignment of a storage, a large one to pages of 4 KiB. Of blocks
of more than 128 KiB, which get pages of their own, that is 3 %; smaller ones of tensors are part of the C++ figures."""

THREAD_DOUBT_BYTES = 1024 * 1024
"""What C code keeps for a living thread: 5 KiB for one that only waits, 32 KiB after torch added two tensors in it, 216
KiB after a product of two 64 x 64 matrices, 0.8 MiB after one of 300 x 300 (measured; the workspace of MKL)."""

DEVICE_DOUBT = 1.0
"""torch counts an accelerator's blocks as it cut them: up to 1 MiB that is left over stays part of its block."""

LEAST_SHARE = 0.9
"""So much of the floor is enough: where the level is noisy, a leak of exactly the floor is read a little smaller."""


@dataclass(frozen=True, slots=True)
class NativeRest:
    """Growth of native memory that the leaks found do not explain.

    Attributes:
        bytes_per_run: The growth without what is explained.
        explained_bytes: What is explained, per run.
        doubt_bytes: By so much the explained part may be wrong.
        floor_bytes: The growth per run that can be told from what caches and allocators do.
    """

    bytes_per_run: float
    explained_bytes: float
    doubt_bytes: float
    floor_bytes: int

    @property
    def is_small(self) -> bool:
        """Whether it cannot be told from what caches and allocators do."""
        return self.bytes_per_run < LEAST_SHARE * self.floor_bytes

    @property
    def is_leak(self) -> bool:
        """Whether it is a leak of its own: not small, and more than the explained part can be wrong by."""
        return not self.is_small and self.bytes_per_run > self.doubt_bytes


def malloc_rest(growth: Growth | None, explained: NativeParts, floor_bytes: int) -> NativeRest | None:
    """Return what remains of the growth of malloc's heap; None if the heap does not leak."""
    doubt_bytes = (
        CPP_DOUBT * explained.cpp_bytes + DATA_DOUBT * explained.data_bytes + THREAD_DOUBT_BYTES * explained.n_threads
    )
    return _rest(growth, explained.malloc_bytes, doubt_bytes, floor_bytes)


def device_rest(growth: Growth | None, explained: NativeParts, floor_bytes: int) -> NativeRest | None:
    """Return what remains of the growth of accelerator memory; None if that does not leak."""
    return _rest(growth, explained.device_bytes, DEVICE_DOUBT * explained.device_bytes, floor_bytes)


def _rest(growth: Growth | None, explained_bytes: float, doubt_bytes: float, floor_bytes: int) -> NativeRest | None:
    if growth is None or growth.outcome is not Outcome.LEAK:
        return None
    return NativeRest(growth.rate - explained_bytes, explained_bytes, doubt_bytes, floor_bytes)
