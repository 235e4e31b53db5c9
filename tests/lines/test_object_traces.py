"""tracemalloc is as it was afterwards, and no other thread is hurt when it is switched off."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import tracemalloc

import pytest

from leaklab.lines.allocation import N_FRAMES, line_that_made, python_traces

pytestmark = pytest.mark.untraced

# Threads that no Python code has started call Python: each allocates without the interpreter lock. Stopped at once,
# tracemalloc crashed the process in the first of these rounds.
CHILD = """
import ctypes, threading
from leaklab.lines.allocation import python_traces
libc = ctypes.CDLL(None)
work = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: None)
is_over = threading.Event()

def start_native_threads():
    while not is_over.is_set():
        threads = [ctypes.c_ulong() for _ in range(20)]
        started = [thread for thread in threads if not libc.pthread_create(ctypes.byref(thread), None, work, None)]
        for thread in started:
            libc.pthread_join(thread, None)

starters = [threading.Thread(target=start_native_threads) for _ in range(3)]
for starter in starters:
    starter.start()
for _ in range(8):
    with python_traces():
        sum(number * number for number in range(200_000))
is_over.set()
for starter in starters:
    starter.join()
print("alive")
"""


def whose(filename: str) -> bool:
    return filename == __file__


class Plain:
    pass


@pytest.mark.skipif(sys.platform == "win32", reason="needs pthreads")
def test_threads_that_allocate_without_the_lock_survive_the_end():
    ran = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout) == (0, "alive\n"), ran.stderr


@pytest.mark.parametrize("limit", [1, 7, N_FRAMES])
def test_tracemalloc_is_off_again_with_the_limit_that_it_had(limit):
    tracemalloc.start(limit)
    tracemalloc.stop()
    with python_traces() as n_frames:
        assert (n_frames, tracemalloc.get_traceback_limit()) == (N_FRAMES, N_FRAMES)
    assert (tracemalloc.is_tracing(), tracemalloc.get_traceback_limit()) == (False, limit)
    with pytest.raises(ZeroDivisionError), python_traces():
        _ = 1 / 0
    assert (tracemalloc.is_tracing(), tracemalloc.get_traceback_limit()) == (False, limit)
    tracemalloc.start()
    tracemalloc.stop()


def raw_allocator() -> bytes:
    found = (ctypes.c_void_p * 5)()
    ctypes.pythonapi.PyMem_GetAllocator(0, ctypes.byref(found))
    return bytes(found)


MENDED = sys.version_info >= (3, 13, 2) or (3, 12, 9) <= sys.version_info < (3, 13)


@pytest.mark.skipif(MENDED, reason="tracemalloc waits for other threads itself")
def test_what_threads_allocate_without_the_lock_does_not_go_through_tracemalloc():
    before = raw_allocator()
    with python_traces():
        assert raw_allocator() == before
        made = bytearray(100)
        assert tracemalloc.get_object_traceback(made) is not None
    assert raw_allocator() == before


def test_code_that_stops_tracemalloc_leaves_it_off():
    with python_traces():
        tracemalloc.stop()
    assert (tracemalloc.is_tracing(), tracemalloc.get_traceback_limit()) == (False, 1)


def test_code_that_starts_it_anew_for_itself_keeps_it():
    try:
        with python_traces():
            tracemalloc.stop()
            tracemalloc.start(5)
            mine = Plain()
        assert tracemalloc.get_traceback_limit() == 5
        assert tracemalloc.is_tracing()
        assert line_that_made(mine, whose) is not None
    finally:
        tracemalloc.stop()
        tracemalloc.start()
        tracemalloc.stop()


def test_a_running_tracemalloc_keeps_its_settings_and_its_traces():
    tracemalloc.start(3)
    try:
        before = Plain()
        with python_traces() as n_frames:
            assert n_frames == 3
        assert tracemalloc.get_traceback_limit() == 3
        assert line_that_made(before, whose) is not None
    finally:
        tracemalloc.stop()
        tracemalloc.start()
        tracemalloc.stop()


def test_threads_of_python_go_on_undisturbed():
    is_over, n_made = threading.Event(), []

    def make():
        while not is_over.is_set():
            n_made.append([Plain() for _ in range(100)])
            del n_made[:-10]

    other = threading.Thread(target=make)
    other.start()
    for _ in range(5):
        with python_traces():
            [Plain() for _ in range(1_000)]
    is_over.set()
    other.join()
    assert not tracemalloc.is_tracing()
