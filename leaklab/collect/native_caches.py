"""Switch off the caches that torch's libraries fill outside of Python, to see whether these are what grows.

oneDNN keeps a compiled primitive for each new shape (1,024 of them by default; 52 KiB each for a small convolution),
MKL keeps buffers for each thread. Neither gives memory back, both stop: growth by them is no leak.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def _nothing() -> None:
    """Stand for MKL where torch was built without it."""


def _is_off() -> bool:
    return False


def _leave(_wanted: bool, /) -> None:  # noqa: FBT001 - as torch's own is called
    """Stand for the switch of oneDNN where torch was built without it."""


@contextmanager
def native_caches_off() -> Iterator[Callable[[], object]]:
    """Switch oneDNN off inside; the value is a function that frees MKL's buffers."""
    torch: Any = sys.modules.get("torch")
    # Not torch.backends.mkldnn.flags: it sets every flag of oneDNN, and warns of those that a build does not have.
    is_on: Callable[[], bool] = getattr(getattr(torch, "_C", None), "_get_mkldnn_enabled", _is_off)
    switch: Callable[[bool], None] = getattr(getattr(torch, "_C", None), "_set_mkldnn_enabled", _leave)
    was_on = is_on()
    switch(False)  # noqa: FBT003 - torch's own
    try:
        yield _buffer_freer(torch)
    finally:
        switch(was_on)


def _buffer_freer(torch: Any) -> Callable[[], object]:
    """Return MKL's own function; torch contains MKL, under the names of its service layer."""
    folder = Path(getattr(torch, "__file__", "") or "").parent / "lib"
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        if (folder / name).exists():
            library = ctypes.CDLL(str(folder / name))
            for function in ("mkl_serv_free_buffers", "mkl_free_buffers"):
                if hasattr(library, function):
                    free: Callable[[], object] = getattr(library, function)
                    return free
    return _nothing
