"""The line named is the one during which a place changed: the user's own, whatever it called."""

from __future__ import annotations

import inspect
import json
import sys
import threading
import weakref

import pytest

from leaklab.lines.change import LineWatch, watchpoint

pytestmark = pytest.mark.untraced

THINGS: list[object] = []


def whose(filename: str) -> bool:
    return filename == __file__


def lines_of(function) -> list[tuple[int, str]]:
    """Run *function* under a watch over THINGS; lines are counted from its first."""
    THINGS[:] = [0]
    watch = LineWatch([watchpoint("print", [THINGS, THINGS[0]], grows=False)], whose)
    with watch.installed():
        function()
    first = inspect.getsourcelines(function)[1]
    return [(number - first, name) for (_file, number, name), _count in watch.lines.get("print", {}).items()]


def appends():
    value = 1
    THINGS.append(value)
    value = 2


def test_the_line_that_appends_is_named():
    assert lines_of(appends) == [(2, "appends")]


def at_the_very_end():
    THINGS.append(1)


def test_the_last_line_of_a_function_is_named():
    assert lines_of(at_the_very_end) == [(1, "at_the_very_end")]


def appends_what_a_call_returns():
    def inner():
        return 1

    THINGS.append(inner())


def test_the_line_is_the_callers_when_the_call_inside_it_has_returned():
    assert lines_of(appends_what_a_call_returns) == [(4, "appends_what_a_call_returns")]


def through_a_library():
    json.loads("[1]", object_hook=None, parse_int=lambda text: THINGS.append(text))  # noqa: PLW0108
    THINGS.pop()


def test_a_callback_of_a_library_is_the_users_line():
    assert (1, "through_a_library.<locals>.<lambda>") in lines_of(through_a_library)


def from_a_generator():
    def numbers():
        yield 1
        THINGS.append(2)
        yield 3

    for _ in numbers():
        pass


def test_a_line_of_a_generator_is_named():
    assert lines_of(from_a_generator) == [(3, "from_a_generator.<locals>.numbers")]


def in_another_thread():
    thread = threading.Thread(target=at_the_very_end)
    thread.start()
    thread.join()


def test_a_thread_that_begins_meanwhile_is_watched_too():
    offset = inspect.getsourcelines(at_the_very_end)[1] - inspect.getsourcelines(in_another_thread)[1]
    assert lines_of(in_another_thread) == [(offset + 1, "at_the_very_end")]


def test_tracing_is_off_afterwards_also_after_an_error():
    watch = LineWatch([], whose)
    with pytest.raises(ZeroDivisionError), watch.installed():
        _ = 1 / 0
    assert sys.gettrace() is None
    assert threading.gettrace() is None


class Worker(threading.Thread):
    """Says whether it is traced, whenever it is asked."""

    def __init__(self):
        super().__init__(daemon=True)
        self.asked, self.answered, self.is_traced = threading.Event(), threading.Event(), None

    def run(self):
        while self.asked.wait():
            self.asked.clear()
            self.is_traced = sys.gettrace() is not None
            self.answered.set()

    def says(self):
        self.answered.clear()
        self.asked.set()
        self.answered.wait()
        return self.is_traced


@pytest.mark.parametrize("is_users", [True, False])
def test_a_thread_that_outlives_the_watch_is_traced_no_more(is_users):
    worker = Worker()
    watch = LineWatch([], lambda filename: is_users)
    with watch.installed():
        worker.start()
        assert worker.says()
    assert not worker.says()
    with watch.installed():
        assert not worker.says()


def test_a_thread_that_waits_keeps_nothing_that_it_has_let_go_of():
    class Big:
        pass

    released, may_end, gone = threading.Event(), threading.Event(), []

    def work():
        big = Big()
        weakref.finalize(big, gone.append, True)
        del big
        released.set()
        may_end.wait()

    thread = threading.Thread(target=work, daemon=True)
    with LineWatch([], whose).installed():
        thread.start()
        released.wait()
    assert gone == [True]
    may_end.set()


def test_the_tracer_that_threads_get_from_the_code_inside_is_left_to_it():
    def own(frame, event, arg):
        return None

    try:
        with LineWatch([], whose).installed():
            threading.settrace(own)
        assert threading.gettrace() is own
    finally:
        threading.settrace(None)


def test_a_tracer_that_the_code_installs_itself_is_left_to_it():
    def own(frame, event, arg):
        return None

    try:
        with LineWatch([], whose).installed():
            sys.settrace(own)
        assert sys.gettrace() is own
    finally:
        sys.settrace(None)


def test_the_variables_of_a_suspended_generator_are_not_kept_by_tracing():
    def holds():
        big = Big()
        yield 1
        del big
        yield 2

    class Big:
        n_alive = 0

        def __init__(self):
            Big.n_alive += 1

        def __del__(self):
            Big.n_alive -= 1

    running = holds()
    next(running)
    with LineWatch([], whose).installed():
        next(running)
    assert Big.n_alive == 0
