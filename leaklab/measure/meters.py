"""Keep the process-wide figures of every run: native heap, Python's blocks, accelerators, resident set.

The caches of torch's libraries can be switched off, to see whether these are what grows: oneDNN keeps a compiled
primitive for each new shape (1,024 of them by default; 52 KiB each for a small convolution), MKL keeps buffers for
each thread. Neither gives memory back, both stop: growth by them is no leak.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil

from leaklab.measure.gauges import accelerator_bytes, free_accelerator_bytes, native_heap_bytes, rss_bytes
from leaklab.runtime.objects import loaded_variables

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
        """Fill in the blocks that Python's allocator has handed out; to tell, it walks all its pools."""
        self._rows[row, _COLUMNS.index("blocks")] = sys.getallocatedblocks()

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
