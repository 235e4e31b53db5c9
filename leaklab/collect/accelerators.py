"""Read how much memory of accelerators is taken and free: CUDA and ROCm, XPU, Metal, what `torch.accelerator` has.

Nothing is initialised by asking, torch included. A card that the process has not used is not asked either: to answer
how much of it is free, the driver would set up a context there that takes some hundred MiB, in every process of a
machine with eight cards on all eight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leaklab.runtime.objects import loaded_variables

_BYTES = ("allocated_bytes", "reserved_bytes")


@dataclass(frozen=True, slots=True)
class _DeviceAllocator:
    """The allocator of the accelerators in use.

    Attributes:
        stats_of: Returns the table that the allocator fills for a device, not the list that ``memory_stats()`` sorts
            out of it.
        info_of: Returns what is free and what there is on a device, in bytes; None where torch does not tell.
        n_devices: How many there are.
    """

    stats_of: Callable[[int], dict[str, Any]]
    info_of: Callable[[int], tuple[int, int]] | None
    n_devices: int

    def levels(self, index: int, moment: str = "current") -> tuple[int, int]:
        """Return what is allocated and reserved on one device; ``peak`` for the highest so far."""
        table = self.stats_of(index)
        allocated, reserved = (int(table[kind]["all"][moment]) for kind in _BYTES)
        return allocated, reserved

    def all_levels(self, moment: str = "current") -> tuple[int, int]:
        """Return the same for all devices together."""
        levels = [self.levels(index, moment) for index in range(self.n_devices)]
        return sum(allocated for allocated, _ in levels), sum(reserved for _, reserved in levels)

    def free_bytes(self) -> list[int]:
        """Return what the program can still allocate on each device that it uses.

        What torch has reserved and not allocated is free for it as well.
        """
        free = []
        for index in range(self.n_devices):
            allocated, reserved = self.levels(index)
            if self.info_of is not None and reserved:
                free.append(int(self.info_of(index)[0]) + reserved - allocated)
        return free


def _allocator() -> _DeviceAllocator | None:
    """Return the allocator of the accelerators in use; None while the program has used none."""
    inner = loaded_variables("torch._C")
    for name in ("cuda", "xpu"):  # torch.accelerator has no memory before torch 2.9
        module = loaded_variables(f"torch.{name}")
        stats_of = inner.get(f"_{name}_memoryStats")
        if stats_of is not None and "is_initialized" in module and module["is_initialized"]():
            return _DeviceAllocator(stats_of, module.get("mem_get_info"), module["device_count"]())
    accelerator, stats_of = loaded_variables("torch.accelerator"), inner.get("_accelerator_getDeviceStats")
    if stats_of is None or not accelerator["is_available"]() or not inner["_accelerator_isAllocatorInitialized"]():
        return None
    return _DeviceAllocator(stats_of, accelerator.get("get_memory_info"), accelerator["device_count"]())


def _metal_levels() -> tuple[int, int] | None:
    inner, metal = loaded_variables("torch._C"), loaded_variables("torch.mps")
    if "_mps_currentAllocatedMemory" not in inner or not inner["_mps_is_available"]():
        return None
    return int(metal["current_allocated_memory"]()), int(metal["driver_allocated_memory"]())


def accelerator_levels() -> tuple[int, int] | None:
    """Return the bytes allocated and reserved on all accelerators; None where the program has used none so far.

    Made to be asked often.
    """
    if (metal := _metal_levels()) is not None:
        return metal
    allocator = _allocator()
    return None if allocator is None else allocator.all_levels()


def accelerator_bytes() -> int | None:
    """Return the bytes allocated on all accelerators of the machine: 0 before the first use, None without one."""
    levels = accelerator_levels()
    if levels is not None:
        return levels[0]
    return 0 if _has_accelerator() else None


def _has_accelerator() -> bool:
    for name in ("torch.accelerator", "torch.cuda", "torch.xpu"):  # the first came with torch 2.6
        ask = loaded_variables(name).get("is_available")
        if ask is not None and ask():
            return True
    return False


def peak_accelerator_bytes() -> int | None:
    """Return the allocator's own peak over all devices; None where there is none. It is not reset: it is the user's."""
    allocator = _allocator()
    return None if allocator is None else allocator.all_levels("peak")[0]


def free_accelerator_bytes() -> int:
    """Return what the program can still allocate on the accelerator with the least room among those that it uses.

    0 without one, or where nobody tells.
    """
    if (metal := _metal_levels()) is not None:
        most = loaded_variables("torch.mps").get("recommended_max_memory")
        return 0 if most is None else max(int(most()) - metal[0], 0)
    allocator = _allocator()
    return 0 if allocator is None else min(allocator.free_bytes(), default=0)
