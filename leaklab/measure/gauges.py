"""Read every gauge of memory: malloc, the process, its limit, accelerators; keep their figures of every run.

An accelerator is CUDA, ROCm, XPU, Metal, what `torch.accelerator` has. Nothing is initialised by asking, torch
included. A card that the process has not used is not asked either: to answer how much of it is free, the driver would
set up a context there that takes some hundred MiB, in every process of a machine with eight cards on all eight.

The limit is that of the container, of the process (``ulimit -v``), or the machine's. The pages of files that were read
count as memory of a container, and the kernel takes them back before it kills anything: they are left out. A job that
reads its data from files stands at its limit all the time.

The caches of torch's libraries can be switched off, to see whether these are what grows: oneDNN keeps a compiled
primitive for each new shape (1,024 of them by default; 52 KiB each for a small convolution), MKL keeps buffers for
each thread. Neither gives memory back, both stop: growth by them is no leak.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from leaklab.measure.cheap_counts import native_heap_bytes, python_blocks
from leaklab.runtime.objects import loaded_variables

_BYTES = ("allocated_bytes", "reserved_bytes")
_UNLIMITED = 1 << 60  # what version 1 says for no limit is a little below 2^63
_MEMBERSHIP = Path("/proc/self/cgroup")
_MOUNTS = Path("/sys/fs/cgroup")
_TAKEN_BACK = ("inactive_file", "active_file", "slab_reclaimable")
_TAKEN_BACK_1 = ("total_inactive_file", "total_active_file")


def rss_bytes() -> int:
    """Return the resident set of the process. The first call in a process makes an object that stays."""
    return int(_process(os.getpid()).memory_info().rss)


@cache
def _process(number: int) -> psutil.Process:
    """Return what reads of the process: by its number, because a forked child has another one."""
    return psutil.Process(number)


def peak_rss_bytes() -> int | None:
    """Return the highest resident set of the process; None on systems without ``getrusage``."""
    try:
        import resource  # noqa: PLC0415 - there is none on Windows
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes on macOS, KiB elsewhere


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A limit of memory that the kernel enforces by killing.

    Attributes:
        n_bytes: The limit.
        words: Whose it is.
        usage: The file that says how much is taken.
        statistics: The file that says what of it can be taken back.
        taken_back: Its entries that can.
    """

    n_bytes: int
    words: str
    usage: Path
    statistics: Path
    taken_back: tuple[str, ...]

    def used_bytes(self) -> int | None:
        """Return what is taken and cannot be taken back: two small files are read. None if they are gone."""
        try:
            used = int(self.usage.read_bytes())
            lines = (line.split() for line in self.statistics.read_text().splitlines())
            return max(used - sum(int(size) for name, size in lines if name in self.taken_back), 0)
        except (OSError, ValueError):
            return None


def memory_limit(membership: Path = _MEMBERSHIP, mounts: Path = _MOUNTS) -> MemoryLimit | None:
    """Return the tightest limit of the control groups that this process is in, version 2 or 1; None without one.

    Args:
        membership: Says which groups these are.
        mounts: Where groups are mounted.
    """
    limits: list[MemoryLimit] = []
    with suppress(OSError):
        for line in membership.read_text().splitlines():
            _number, controllers, path = line.split(":", 2)
            if not controllers:
                limits += _limits(mounts, path, "memory.max", "memory.current", _TAKEN_BACK)
            elif "memory" in controllers.split(","):
                names = "memory.limit_in_bytes", "memory.usage_in_bytes"
                limits += _limits(mounts / "memory", path, *names, _TAKEN_BACK_1)
    return min(limits, key=lambda limit: limit.n_bytes, default=None)


@dataclass(frozen=True, slots=True)
class ProcessLimit:
    """A limit that the system sets one process, as ``ulimit -v`` does: beyond it an allocation fails.

    Attributes:
        n_bytes: The limit.
        words: Whose it is.
        field: What of the process counts towards it.
    """

    n_bytes: int
    words: str
    field: str

    def used_bytes(self) -> int:
        """Return what counts towards the limit."""
        return int(getattr(_process(os.getpid()).memory_info(), self.field))


_PROCESS_LIMITS = (
    ("RLIMIT_AS", "limit of the address space (ulimit -v)", "vms"),
    ("RLIMIT_DATA", "limit of the data segment (ulimit -d)", "data"),
)


def process_limits() -> Iterator[ProcessLimit]:
    """Yield the limits of this process alone; a program may set them at any time."""
    try:
        import resource  # noqa: PLC0415 - as above
    except ImportError:
        return
    for name, words, field in _PROCESS_LIMITS:
        n_bytes = resource.getrlimit(getattr(resource, name))[0] if hasattr(resource, name) else -1
        if 0 <= n_bytes < _UNLIMITED and n_bytes != resource.RLIM_INFINITY and sys.platform == "linux":
            yield ProcessLimit(n_bytes, words, field)


def nearest_limit() -> MemoryLimit | ProcessLimit | None:
    """Return the limit with the least room, of the container or of the process; None without one."""
    limits: list[MemoryLimit | ProcessLimit] = [*filter(None, (memory_limit(),)), *process_limits()]
    return min(limits, key=lambda limit: limit.n_bytes - (limit.used_bytes() or 0), default=None)


def free_host_bytes() -> int:
    """Return what this process can still take of the host's memory: what the machine has, or a limit if less."""
    free = int(psutil.virtual_memory().available)
    for limit in (_limit(), *process_limits()):
        used = None if limit is None else limit.used_bytes()
        if limit is not None and used is not None:
            free = min(free, max(limit.n_bytes - used, 0))
    return free


@cache
def _limit() -> MemoryLimit | None:
    """Return the limit, which is looked for once: a dozen files, at every reading of a level, would be too dear."""
    return memory_limit()


def _limits(mount: Path, path: str, name: str, usage: str, taken_back: tuple[str, ...]) -> Iterator[MemoryLimit]:
    """Yield the limits of a group and of those around it.

    Inside of a container the path may be that of the host, which is not there: the mount itself is the container's.
    """
    group = mount / path.lstrip("/")
    for folder in (group, *group.parents):
        if not folder.is_relative_to(mount):
            return
        with suppress(OSError, ValueError):
            n_bytes = int((folder / name).read_text())  # "max" is a ValueError
            if n_bytes < _UNLIMITED:
                yield MemoryLimit(n_bytes, "limit of the container", folder / usage, folder / "memory.stat", taken_back)


@dataclass(frozen=True, slots=True)
class _DeviceAllocator:
    """The allocator of the accelerators in use.

    Attributes:
        stats_of: Returns the table that the allocator fills for a device, not the list that ``memory_stats()`` sorts
            out of it.
        info_of: Returns what is free and what there is on a device, in bytes; None where torch does not tell.
        n_devices: How many there are.
        kind: What torch calls them: ``cuda``; empty where only ``torch.accelerator`` knows.
    """

    stats_of: Callable[[int], dict[str, Any]]
    info_of: Callable[[int], tuple[int, int]] | None
    n_devices: int
    kind: str

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
            return _DeviceAllocator(stats_of, module.get("mem_get_info"), module["device_count"](), name)
    accelerator, stats_of = loaded_variables("torch.accelerator"), inner.get("_accelerator_getDeviceStats")
    if stats_of is None or not accelerator["is_available"]() or not inner["_accelerator_isAllocatorInitialized"]():
        return None
    return _DeviceAllocator(stats_of, accelerator.get("get_memory_info"), accelerator["device_count"](), "")


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


def levels_by_device() -> dict[str, tuple[int, int]]:
    """Return the bytes allocated and reserved on each accelerator that the program has used, by torch's name for it."""
    if (metal := _metal_levels()) is not None:
        return {"mps:0": metal} if any(metal) else {}
    allocator = _allocator()
    if allocator is None:
        return {}
    kind = allocator.kind or loaded_variables("torch.accelerator")["current_accelerator"]().type
    levels = {f"{kind}:{index}": allocator.levels(index) for index in range(allocator.n_devices)}
    return {device: level for device, level in levels.items() if any(level)}


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


_COLUMNS = ("seconds", "born", "heap", "blocks", "accelerator", "rss")
_UNKNOWN = -1.0


class Meters:
    """The figures of every run, in one array that exists before the first of them.

    Kept as numbers: as objects, these records would be what grows from run to run.
    """

    def __init__(self, max_runs: int) -> None:
        self._rows = np.full((max_runs + 1, len(_COLUMNS)), _UNKNOWN)
        self._free_bytes = psutil.virtual_memory().available
        self._free_on_device = free_accelerator_bytes()
        self.own_bytes = 0
        rss_bytes()  # the first call leaves an object, which is to be older than the baseline

    @contextmanager
    def leaving_out(self) -> Iterator[None]:
        """Leave out of the heap's level, from now on, what is allocated inside and stays."""
        before = native_heap_bytes()
        yield
        after = native_heap_bytes()
        if before is not None and after is not None:
            self.own_bytes += after - before

    def read(self, row: int, seconds: float, n_born: int, recorded_bytes: int = 0) -> None:
        """Fill *row* (0: the baseline, k: after run k) with the figures of this moment.

        *recorded_bytes* are what the records of the runs themselves take in the native heap.
        """
        heap, accelerator = native_heap_bytes(), accelerator_bytes()
        self._rows[row] = (
            seconds,
            n_born,
            _UNKNOWN if heap is None else heap - self.own_bytes - recorded_bytes,
            _UNKNOWN,
            _UNKNOWN if accelerator is None else accelerator,
            rss_bytes(),
        )

    def read_blocks(self, row: int) -> None:
        """Fill in the blocks that Python's allocator has handed out."""
        self._rows[row, _COLUMNS.index("blocks")] = python_blocks()

    def seconds(self, n_runs: int) -> tuple[float, ...]:
        """Return the wall time of each run."""
        return tuple(self._rows[1 : n_runs + 1, 0].tolist())

    def heap(self, n_runs: int) -> tuple[float, ...] | None:
        """Return the native heap before the first run and after each; None where it is not known."""
        return self._levels(2, n_runs)

    def accelerator(self, n_runs: int) -> tuple[float, ...] | None:
        """Return the accelerators' allocated bytes before the first run and after each; None without one."""
        return self._levels(4, n_runs)

    def row(self, number: int) -> dict[str, float | None]:
        """Return the figures after run *number* by name; None for what is not known."""
        return {
            name: None if value == _UNKNOWN else value
            for name, value in zip(_COLUMNS, self._rows[number].tolist(), strict=True)
        }

    def share_taken(self, number: int) -> float:
        """Return how much of the memory that was free at first the runs up to *number* took, of host or accelerator."""
        first, now = self._rows[0], self._rows[number]
        heap, accelerator, rss = (_COLUMNS.index(name) for name in ("heap", "accelerator", "rss"))
        on_host = now[rss] - first[rss] if now[heap] == _UNKNOWN else now[heap] - first[heap]
        on_device = now[accelerator] - first[accelerator]
        on_host_share = on_host / max(self._free_bytes, 1)
        return float(max(on_host_share, on_device / self._free_on_device if self._free_on_device else 0.0))

    def _levels(self, column: int, n_runs: int) -> tuple[float, ...] | None:
        levels = self._rows[: n_runs + 1, column]
        return None if (levels == _UNKNOWN).any() else tuple(levels.tolist())


def _nothing() -> None:
    """Stand for MKL where torch was built without it."""


def _is_off() -> bool:
    return False


def _leave(_wanted: bool, /) -> None:  # noqa: FBT001 - as torch's own is called
    """Stand for the switch of oneDNN where torch was built without it."""


@contextmanager
def native_caches_off() -> Iterator[Callable[[], object]]:
    """Switch oneDNN off inside; the value is a function that frees MKL's buffers."""
    inner = loaded_variables("torch._C")
    # Not torch.backends.mkldnn.flags: it sets every flag of oneDNN, and warns of those that a build does not have.
    is_on: Callable[[], bool] = inner.get("_get_mkldnn_enabled", _is_off)
    switch: Callable[[bool], None] = inner.get("_set_mkldnn_enabled", _leave)
    was_on = is_on()
    switch(False)  # noqa: FBT003 - torch's own
    try:
        yield _buffer_freer()
    finally:
        switch(was_on)


def _buffer_freer() -> Callable[[], object]:
    """Return MKL's own function; torch contains MKL, under the names of its service layer."""
    folder = Path(loaded_variables("torch").get("__file__") or "").parent / "lib"
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        if (folder / name).exists():
            library = ctypes.CDLL(str(folder / name))
            for function in ("mkl_serv_free_buffers", "mkl_free_buffers"):
                if hasattr(library, function):
                    free: Callable[[], object] = getattr(library, function)
                    return free
    return _nothing
