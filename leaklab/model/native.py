"""What objects take of the memory that native allocators hand out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NativeParts:
    """What objects take of native memory, by how well it is known.

    Attributes:
        data_bytes: In malloc's heap, known: storages of tensors, and what is too large for Python's own allocator.
        cpp_bytes: In malloc's heap, estimated: the C++ objects behind tensors and autograd nodes.
        device_bytes: On accelerators: storages of tensors.
        n_threads: Threads. What C code keeps in malloc's heap for each of them is unknown.
    """

    data_bytes: float = 0.0
    cpp_bytes: float = 0.0
    device_bytes: float = 0.0
    n_threads: float = 0.0

    @property
    def malloc_bytes(self) -> float:
        """The best estimate of what malloc has handed out for them."""
        return self.data_bytes + self.cpp_bytes

    def __add__(self, other: NativeParts) -> NativeParts:
        return NativeParts(
            self.data_bytes + other.data_bytes,
            self.cpp_bytes + other.cpp_bytes,
            self.device_bytes + other.device_bytes,
            self.n_threads + other.n_threads,
        )

    def scaled(self, factor: float) -> NativeParts:
        """Return so many times as much."""
        return NativeParts(
            self.data_bytes * factor, self.cpp_bytes * factor, self.device_bytes * factor, self.n_threads * factor
        )
