"""The limit of the container, and what of it is taken: control groups of both versions, as files that a test wrote."""

from __future__ import annotations

import psutil
import pytest

from leaklab.measure import gauges
from leaklab.measure.gauges import free_host_bytes, memory_limit

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
