"""What the loops of a running function go through is read off its stack, on every Python that leaklab knows."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading

import pytest

from leaklab.runtime.frame_stacks import loops_in, stack_words

IS_READ = sys.version_info < (3, 15)


def numbers():
    yield from range(10)


def iterators_here(depth=1):
    """The iterators of the loops that the caller is in, from the outermost."""
    return iterators_of(sys._getframe(depth))


def iterators_of(frame):
    n_open = sum(begin <= frame.f_lasti < end for begin, end in loops_in(frame.f_code))
    return stack_words(frame).tolist()[:n_open]


@pytest.mark.skipif(not IS_READ, reason="the layout of this Python's frames is not known")
def test_the_iterators_of_nested_loops_lie_on_the_stack_in_their_order():
    outer, inner, text = numbers(), iter([1, 2]), "in a cell"

    def in_a_cell():
        return text

    found = []
    for number in outer:
        with pytest.raises(ZeroDivisionError):
            number // 0
        for _item in inner:
            if not found:
                found = iterators_here()
    after = iterators_here()
    assert in_a_cell() == text
    assert found == [id(outer), id(inner)]
    assert after == []


@pytest.mark.skipif(not IS_READ, reason="the layout of this Python's frames is not known")
def test_a_thread_that_waits_in_a_loop():
    wanted, items = queue.Queue(), numbers()

    def serve():
        for _number in items:
            wanted.get()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    frame = sys._current_frames()[thread.ident]
    while frame.f_code is not serve.__code__:
        frame = frame.f_back or sys._current_frames()[thread.ident]
    found = iterators_of(frame)
    for _number in range(20):
        wanted.put(None)
    thread.join()
    assert found == [id(items)]


DEEP = """
import sys, threading, time
from leaklab.heap.running import running_frames
from leaklab.runtime.frame_stacks import stack_words
def deep(n, *_arguments):
    for _one in (1,):
        if n:
            deep(n - 1, *range(12))
def work():
    while not stop:
        deep(150)
stop = False
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
sys.setswitchinterval(1e-5)
end = time.monotonic() + 8
n_words = 0
while time.monotonic() < end:
    n_words += sum(len(stack_words(one.frame)) for one in running_frames(bodies=True))
stop = True
print(n_words)
"""


def test_threads_that_return_meanwhile_do_no_harm():
    """The memory of a deep stack is given back when its functions return: who reads it late dies of that."""
    done = subprocess.run([sys.executable, "-c", DEEP], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > (1_000 if IS_READ else -1)
