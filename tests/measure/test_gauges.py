"""The limit of the container, as files that a test wrote; the memory of accelerators, as played ones tell it."""

from __future__ import annotations

import json
import subprocess
import sys
import types

import psutil
import pytest

from leaklab.measure import gauges
from leaklab.measure.gauges import (
    accelerator_bytes,
    accelerator_levels,
    free_accelerator_bytes,
    free_host_bytes,
    memory_limit,
    peak_accelerator_bytes,
)

MIB = 1 << 20


@pytest.fixture
def groups(tmp_path):
    """Writes the files of a control group; the value also says in which groups the process is."""

    class Groups:
        membership, mounts = tmp_path / "cgroup", tmp_path / "mounts"

        def write(self, folder, **files):
            place = self.mounts / folder
            place.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                (place / name.replace("_", ".", 1)).write_text(f"{text}\n")

        def limit(self, *lines):
            self.membership.write_text("".join(f"{line}\n" for line in lines))
            return memory_limit(self.membership, self.mounts)

    return Groups()


def test_limit_and_use_of_version_2(groups):
    stat = (
        f"anon {300 * MIB}\nfile {500 * MIB}\ninactive_file {200 * MIB}\nactive_file {90 * MIB}\nslab_reclaimable {MIB}"
    )
    groups.write("job", memory_max=1000 * MIB, memory_current=700 * MIB, memory_stat=stat)
    limit = groups.limit("0::/job")
    assert limit.n_bytes == 1000 * MIB
    assert limit.used_bytes() == (700 - 200 - 90 - 1) * MIB  # what was read from files can be taken back


def test_tightest_limit_around_the_process_counts(groups):
    for folder, size in (("slice", 500), ("slice/pod", 2000), ("slice/pod/job", "max")):
        words = size if size == "max" else size * MIB
        groups.write(folder, memory_max=words, memory_current=MIB, memory_stat="anon 0")
    assert groups.limit("0::/slice/pod/job").n_bytes == 500 * MIB


def test_inside_of_a_container_the_mount_is_its_group(groups):
    """With version 1, or without a namespace of groups, the path is that of the host, and is not there."""
    groups.write("", memory_max=800 * MIB, memory_current=MIB, memory_stat="anon 0")
    assert groups.limit("0::/kubepods/pod1/abc").n_bytes == 800 * MIB


def test_limit_and_use_of_version_1(groups):
    folder = groups.mounts / "memory" / "docker" / "abc"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text(f"{600 * MIB}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{500 * MIB}\n")
    (folder / "memory.stat").write_text(f"total_inactive_file {100 * MIB}\ntotal_active_file {MIB}\n")
    limit = groups.limit("5:cpu,cpuacct:/docker/abc", "4:memory:/docker/abc", "0::/")
    assert limit.n_bytes == 600 * MIB
    assert limit.used_bytes() == 399 * MIB


def test_no_limit_is_none(groups):
    groups.write("job", memory_max="max", memory_current=MIB, memory_stat="anon 0")
    assert groups.limit("0::/job") is None
    folder = groups.mounts / "memory"
    folder.mkdir()
    (folder / "memory.limit_in_bytes").write_text("9223372036854771712\n")  # version 1 has a number for it
    assert groups.limit("4:memory:/") is None
    assert memory_limit(groups.mounts / "none", groups.mounts) is None  # no Linux


def test_group_that_is_gone_tells_nothing(groups):
    groups.write("job", memory_max=MIB, memory_current=MIB, memory_stat="anon 0")
    limit = groups.limit("0::/job")
    limit.usage.unlink()
    assert limit.used_bytes() is None


def test_free_is_what_the_container_has_left_where_that_is_less(groups, monkeypatch):
    groups.write("job", memory_max=1000 * MIB, memory_current=700 * MIB, memory_stat=f"inactive_file {200 * MIB}")
    limit = groups.limit("0::/job")
    monkeypatch.setattr(gauges, "_limit", lambda: limit)
    assert free_host_bytes() == 500 * MIB
    groups.write("job", memory_current=1200 * MIB, memory_stat="anon 0")
    assert free_host_bytes() == 0
    limit.usage.unlink()  # the group is gone
    assert free_host_bytes() > 500 * MIB
    monkeypatch.setattr(gauges, "_limit", lambda: None)
    assert free_host_bytes() == pytest.approx(psutil.virtual_memory().available, rel=0.2)


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


@pytest.mark.skipif(sys.platform != "linux", reason="these limits are held to on Linux")
def test_free_is_what_the_limit_of_the_process_has_left_where_that_is_less():
    code = """
import json, resource
from leaklab.measure.gauges import free_host_bytes, nearest_limit
before = free_host_bytes()
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
limit = nearest_limit()
print(json.dumps([limit.words, limit.n_bytes, limit.used_bytes(), before, free_host_bytes()]))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    words, n_bytes, used, before, free = json.loads(done.stdout)
    assert (words, n_bytes) == ("limit of the address space (ulimit -v)", 1 << 30)
    assert 0 < used < n_bytes
    assert free == pytest.approx(n_bytes - used, abs=1 << 20)
    assert free < before
