"""What the loops of a running function go through is read off its stack, on every Python that leaklab knows."""

from __future__ import annotations

import queue
import sys
import threading

import pytest

from leaklab.runtime.frame_stacks import n_open_loops, stack_words

IS_READ = sys.version_info < (3, 15)


def numbers():
    yield from range(10)


def iterators_here(depth=1):
    """The iterators of the loops that the caller is in, from the outermost."""
    frame = sys._getframe(depth)
    return stack_words(frame).tolist()[: n_open_loops(frame.f_code, frame.f_lasti)]


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
    found = stack_words(frame).tolist()[: n_open_loops(frame.f_code, frame.f_lasti)]
    for _number in range(20):
        wanted.put(None)
    thread.join()
    assert found == [id(items)]
