"""Descriptors and children are counted as the kernel has them, and no child is waited for."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from leaklab.decide.survivors import survivors_of_level
from leaklab.measure.process_counts import (
    CHILDREN,
    DESCRIPTORS,
    Arrivals,
    Children,
    count_descriptors,
    descriptor_kind,
    open_descriptors,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_an_open_descriptor_is_counted_and_listed_until_it_is_closed():
    before, listed = count_descriptors(), open_descriptors()
    number = os.dup(0)
    assert count_descriptors() == before + 1
    assert set(open_descriptors()) - set(listed) == {number}
    os.close(number)
    assert (count_descriptors(), open_descriptors()) == (before, listed)


def test_without_proc_the_folder_of_devices_is_listed(monkeypatch, tmp_path):
    expected = count_descriptors()
    monkeypatch.setattr("leaklab.measure.cheap_counts.DESCRIPTOR_FOLDER", tmp_path / "nothing")
    assert count_descriptors() == expected


def test_what_a_descriptor_stands_for(tmp_path):
    reading, writing = os.pipe()
    path = tmp_path / "a file"
    with socket.socket() as sock, path.open("w") as file:
        assert descriptor_kind(reading) == ("pipe", "")
        assert descriptor_kind(sock.fileno()) == ("socket", "")
        assert descriptor_kind(file.fileno()) == ("file", str(path))
    os.close(reading)
    os.close(writing)
    assert DESCRIPTORS.kind_of(reading) == ("", "")


def test_children_are_found_and_one_that_has_ended_can_still_be_waited_for():
    children, before = Children(), Children().numbers()
    with subprocess.Popen(["/bin/sleep", "30"]) as process:
        assert set(children.numbers()) - set(before) == {process.pid}
        assert CHILDREN.kind_of(process.pid) == ("running", "sleep")
        process.kill()
        for _ in range(100):
            if CHILDREN.kind_of(process.pid) == ("ended", ""):
                break
            time.sleep(0.01)
        assert CHILDREN.kind_of(process.pid) == ("ended", "")
        assert process.pid in children.numbers()
        assert process.wait() == -9
    assert children.numbers() == before


def test_a_number_has_the_run_after_which_it_first_showed():
    arrivals = Arrivals()
    arrivals.note([0, 1, 2], 0)
    arrivals.note([0, 1, 2, 7], 1)
    arrivals.note([0, 1, 7, 8], 2)
    assert arrivals.since_start([0, 1, 2, 7, 8, 9], 4) == {7: 1, 8: 2, 2: 4, 9: 4}


@pytest.mark.parametrize(
    ("levels", "kept"),
    [
        pytest.param([5, 5, 5, 5], (0, 0, 0), id="nothing rises"),
        pytest.param([5, 6, 7, 8], (1, 1, 1), id="every run adds one"),
        pytest.param([5, 9, 5, 9, 5], (0, 0, 0, 0), id="what falls back counts for nothing"),
        pytest.param([5, 6, 4, 6, 7], (0, 0, 2, 1), id="a fall below the start begins anew"),
    ],
)
def test_what_each_run_adds_to_a_level_for_good(levels, kept):
    assert survivors_of_level(levels) == kept
