"""File descriptors and child processes that every run leaves are a leak; one truth is told once, and with its line."""

from __future__ import annotations

import contextlib
import gc
import mmap
import multiprocessing
import os
import resource
import socket
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import psutil
import pytest
import torch

import leaklab
from leaklab.check.process_leaks import numbers_kept
from leaklab.measure.cheap_counts import open_descriptors
from leaklab.measure.process_counts import CHILDREN, DESCRIPTORS

pytestmark = [
    pytest.mark.untraced,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.skipif(sys.platform != "linux", reason="children are counted on Linux only"),
]


NOTHING = "nothing that Python can see"
STATE = types.SimpleNamespace(kept=[])


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Close and end what a test has left on purpose."""
    before = set(open_descriptors())
    STATE.kept = []
    yield
    STATE.kept = []
    gc.collect()  # what a pool has left closes its descriptors itself
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
            child.wait(5)
    for number in set(open_descriptors()) - before:
        with contextlib.suppress(OSError):
            os.close(number)


def told(report):
    return [(leak.unit, leak.holder, leak.cause) for leak in report.leaks]


def test_a_descriptor_that_no_object_has_is_a_leak_with_the_line_that_opens_it():
    def step():
        number = os.open(os.devnull, os.O_RDONLY)
        os.read(number, 1)

    report = leaklab.leakcheck(step, runs=16, cure=False)
    assert told(report) == [("file descriptors", NOTHING, "descriptor-left")]
    (leak,) = report.leaks
    assert leak.count_per_run == 1
    assert "RLIMIT_NOFILE" in leak.reason
    assert leak.sites[0].endswith("# opens it")
    assert "number = os.open" in leak.sites[0]


def test_two_kinds_of_descriptors_are_two_leaks_each_with_its_own_line():
    def connect():
        return socket.socket().detach()

    def step():
        connect()
        os.close(os.pipe()[0])

    report = leaklab.leakcheck(step, runs=16, cure=False)
    lines = {leak.what: leak.sites[0] for leak in report.leaks}
    assert lines.keys() == {"file descriptors: socket", "file descriptors: pipe"}
    assert "socket.socket()" in lines["file descriptors: socket"]
    assert "os.pipe()" in lines["file descriptors: pipe"]


def test_files_that_are_kept_are_one_leak_which_says_that_they_keep_descriptors():
    def step():
        STATE.kept.append(open(os.devnull))  # noqa: PTH123, SIM115 - kept open on purpose

    report = leaklab.leakcheck(step, runs=16, sites=False)
    assert told(report) == [("objects", "STATE.kept", "container-growth")]
    assert report.leaks[0].also_causes == ("open-descriptors",)
    assert "each run leaves 1 file descriptor with it" in report.leaks[0].reason


def test_a_list_of_numbers_is_named_as_the_place_of_the_descriptors():
    def step():
        STATE.kept.append(os.dup(0))

    report = leaklab.leakcheck(step, runs=16, sites=False)
    assert told(report) == [("file descriptors", "STATE.kept", "descriptor-left")]
    assert "os.close" in report.leaks[0].advice


def test_a_list_of_other_numbers_is_not_taken_for_the_place_of_descriptors():
    def step():
        STATE.kept.append(len(STATE.kept))
        os.dup(0)

    report = leaklab.leakcheck(step, runs=16, sites=False)
    assert told(report) == [("file descriptors", NOTHING, "descriptor-left")]


def test_beside_tensors_that_are_kept_descriptors_are_a_second_leak():
    def step():
        number, path = tempfile.mkstemp()
        Path(path).unlink()
        STATE.kept.append(torch.ones(number % 2 + 100))

    report = leaklab.leakcheck(step, runs=16, sites=False)
    assert [(leak.unit, leak.holder) for leak in report.leaks] == [
        ("objects", "STATE.kept"),
        ("file descriptors", NOTHING),
    ]
    assert report.leaks[0].also_causes == ()


def test_shared_tensors_keep_their_descriptors_themselves():
    def step():
        STATE.kept.append(torch.zeros(1000).share_memory_())

    report = leaklab.leakcheck(step, runs=16, sites=False)
    assert [leak.holder for leak in report.leaks] == ["STATE.kept"]
    assert report.leaks[0].also_causes == ("open-descriptors",)


def test_children_that_nobody_waits_for_are_a_leak_with_the_line_that_starts_them():
    def step():
        os.posix_spawn("/bin/true", ["true"], {})

    report = leaklab.leakcheck(step, runs=20, cure=False)
    assert told(report) == [("child processes", NOTHING, "thread-or-worker-kept")]
    assert report.leaks[0].what == "child processes: ended"
    assert "os.posix_spawn(" in report.leaks[0].sites[0]
    assert len(psutil.Process().children()) >= report.verdict.n_runs  # none of them was waited for


def test_a_child_that_only_a_table_of_the_library_keeps_is_told_as_a_child():
    def step():
        return subprocess.Popen(["/bin/sleep", "60"]).pid

    report = leaklab.leakcheck(step, runs=16, sites=False)
    assert told(report) == [("child processes", "subprocess._active", "thread-or-worker-kept")]
    assert "End it and wait for it" in report.leaks[0].advice


def test_a_child_that_an_object_keeps_is_told_with_that_object():
    def step():
        STATE.kept.append(subprocess.Popen(["/bin/sleep", "60"], stdin=subprocess.PIPE))

    report = leaklab.leakcheck(step, runs=20, sites=False)
    assert [leak.holder for leak in report.leaks] == ["STATE.kept"]
    assert report.leaks[0].also_causes == ("child-processes", "open-descriptors")
    assert "PID" in report.leaks[0].reason


def test_a_change_that_lets_go_of_the_number_and_leaves_the_descriptor_open_is_no_cure():
    def step():
        STATE.kept.append(os.dup(0))

    report = leaklab.leakcheck(step, runs=16)
    assert "cured" not in {cure.outcome.value for cure in report.leaks[0].cures}


def test_what_is_closed_and_waited_for_is_no_leak():
    def step():
        with open(os.devnull) as file:  # noqa: PTH123 - as it is written
            file.read()
        os.close(os.dup(0))
        subprocess.run(["/bin/true"], check=True)

    assert leaklab.leakcheck(step, runs=16).verdict.outcome.value == "clean"


def test_files_of_the_newest_runs_and_a_pool_that_is_full_are_no_leak():
    def step():
        STATE.kept.append(open(os.devnull))  # noqa: PTH123, SIM115 - kept open on purpose
        del STATE.kept[:-3]

    assert not leaklab.leakcheck(step, runs=16).leaks


def test_no_more_runs_are_made_when_many_of_the_descriptors_are_taken():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))

    def step():
        os.dup(0)

    try:
        report = leaklab.leakcheck(step, sites=False, cure=False)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert told(report) == [("file descriptors", NOTHING, "descriptor-left")]
    assert report.verdict.n_runs < 60
    assert any("25% of the file descriptors" in note for note in report.record.notes)


def keep_in_worker(size):
    pages = mmap.mmap(-1, size)  # anew from the system: a fork of a large process has free memory for what it allocates
    pages.write(b"x" * size)  # memory that nobody touches is not resident
    STATE.kept.append(pages)


def test_children_that_grow_are_a_note_and_no_verdict():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.map(keep_in_worker, [300_000])
        report = leaklab.leakcheck(lambda: pool.map(keep_in_worker, [300_000]), runs=16, sites=False)
    assert not report.leaks
    (note,) = (note for note in report.record.notes if "child process" in note)
    assert note.startswith("1 child process grew by ")
    assert "leaklab.watch_calls" in note


class Pipe:
    """Keeps a descriptor and the process behind it."""

    def __init__(self, fd, pid):
        self.read_fd, self.pid, self.count = fd, pid, 70_003


class Reader(Pipe):
    """Fails when it is asked for its process."""

    def __init__(self, fd, pid):
        self.read_fd, self._pid, self.count = fd, pid, 70_003

    @property
    def pid(self):
        raise AssertionError


@pytest.mark.parametrize("kind", [Pipe, Reader])
@pytest.mark.parametrize("looks", [False, True], ids=["inline", "dict"])
def test_numbers_are_read_by_their_names_and_no_dict_is_made(kind, looks):
    pipe = kind(70_001, 70_002)
    if looks:
        assert vars(pipe)
    before = [id(one) for one in gc.get_referents(pipe)]
    wanted = {70_001, 70_002, 70_003}
    assert numbers_kept([pipe], DESCRIPTORS, wanted) == {70_001}
    assert numbers_kept([pipe], CHILDREN, wanted) == {70_002}
    assert [id(one) for one in gc.get_referents(pipe)] == before
