"""What accelerators tell of their memory, against played ones: which functions are called, and which are not."""

from __future__ import annotations

import sys
import types

import pytest

from leaklab.measure.gauges import accelerator_bytes, accelerator_levels, free_accelerator_bytes, peak_accelerator_bytes

NAMES = ("torch._C", "torch.cuda", "torch.xpu", "torch.mps", "torch.accelerator")
STATS = [(100, 1000, 150), (0, 0, 0), (40, 50, 45)]
"""Of three devices: allocated, reserved, the most allocated so far. The second is not used."""
FREE = [500, 7, 300]


def table(index):
    allocated, reserved, peak = STATS[index]
    return {
        "allocated_bytes": {"all": {"current": allocated, "peak": peak}},
        "reserved_bytes": {"all": {"current": reserved, "peak": reserved}},
    }


def info(index):
    assert STATS[index][1], "a card that is not used was asked: the driver would set up a context on it"
    return FREE[index], 10_000


@pytest.fixture
def play(monkeypatch):
    """Replaces torch by modules with these functions only."""

    def played(**modules):
        for name in NAMES:
            module = types.ModuleType(name)
            vars(module).update(modules.get(name.removeprefix("torch."), {}))
            monkeypatch.setitem(sys.modules, name, module if name.removeprefix("torch.") in modules else None)

    return played


def in_use(*, is_used=True):
    return {"is_initialized": lambda: is_used, "is_available": lambda: True, "device_count": lambda: 3}


CUDA = {"_C": {"_cuda_memoryStats": table}, "cuda": {**in_use(), "mem_get_info": info}}
XPU = {"_C": {"_xpu_memoryStats": table}, "xpu": {**in_use(), "mem_get_info": info}}
OTHER = {
    "_C": {"_accelerator_getDeviceStats": table, "_accelerator_isAllocatorInitialized": lambda: True},
    "accelerator": {"is_available": lambda: True, "device_count": lambda: 3, "get_memory_info": info},
}


@pytest.mark.parametrize("modules", [CUDA, XPU, OTHER], ids=["CUDA", "XPU", "any other"])
def test_devices_in_use_are_added_up_and_the_tightest_counts(play, modules):
    play(**modules)
    assert accelerator_levels() == (140, 1050)
    assert accelerator_bytes() == 140
    assert peak_accelerator_bytes() == 195
    assert free_accelerator_bytes() == 300 + 50 - 40  # what torch has reserved and not allocated is free, too


def test_metal_tells_other_figures(play):
    inner = {"_mps_currentAllocatedMemory": lambda: 30, "_mps_is_available": lambda: True}
    metal = {
        "current_allocated_memory": lambda: 30, "driver_allocated_memory": lambda: 70,
        "recommended_max_memory": lambda: 100,
    }  # fmt: skip
    play(_C=inner, mps=metal)
    assert (accelerator_levels(), accelerator_bytes(), free_accelerator_bytes()) == ((30, 70), 30, 70)
    assert peak_accelerator_bytes() is None


def test_before_the_first_use_nothing_is_taken_and_nothing_initialised(play):
    play(_C={}, cuda=in_use(is_used=False))
    assert accelerator_levels() is None
    assert accelerator_bytes() == 0
    assert peak_accelerator_bytes() is None
    assert free_accelerator_bytes() == 0


def test_older_torch_tells_nothing_of_what_is_free(play):
    """Before 2.9, `torch.accelerator` has no such function."""
    accelerator = {name: value for name, value in OTHER["accelerator"].items() if name != "get_memory_info"}
    play(_C=OTHER["_C"], accelerator=accelerator)
    assert accelerator_bytes() == 140
    assert free_accelerator_bytes() == 0


def test_without_torch_there_is_none(play):
    play()
    assert accelerator_levels() is None
    assert accelerator_bytes() is None
    assert free_accelerator_bytes() == 0
