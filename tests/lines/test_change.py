"""The line named is the one during which a place changed; a watchpoint's numbers change then, and only then."""

from __future__ import annotations

import array
import collections
import inspect
import io
import json
import subprocess
import sys
import textwrap
import threading
import weakref

import pytest
import torch

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


def appends_and_sorts():
    THINGS.append(-1)
    THINGS.sort(
        key=lambda number: number,
    )
    THINGS.reverse()


def test_a_line_that_sorts_is_not_named_beside_the_one_that_appends():
    assert lines_of(appends_and_sorts) == [(1, "appends_and_sorts")]


def takes_out_and_appends():
    THINGS.append(1)
    THINGS.append(2)
    THINGS.pop(0)


def test_a_line_that_takes_out_is_not_named_beside_those_that_append():
    assert lines_of(takes_out_and_appends) == [(1, "takes_out_and_appends"), (2, "takes_out_and_appends")]


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


class Holder:
    """An instance with an attribute that is replaced."""

    def __init__(self, value: object) -> None:
        self.value = value


class Hostile(list):
    def __len__(self):
        raise AssertionError

    def __getitem__(self, place):
        raise AssertionError

    def __eq__(self, other):
        raise AssertionError

    __hash__ = None


def changes(chain, act, *, grows=False) -> bool:
    point = watchpoint("print", chain, grows=grows)
    before = point.token()
    assert not point.has_changed(before)
    act()
    assert point.has_changed(before) == (point.token() != before)
    return point.has_changed(before)


GROWING = {
    "list": ([1], lambda things: things.append(2)),
    "dict": ({1: 1}, lambda things: things.update({2: 2})),
    "set": ({1}, lambda things: things.add(2)),
    "deque": (collections.deque([1]), lambda things: things.append(2)),
    "bytearray": (bytearray(b"1"), lambda things: things.extend(b"2")),
    "array": (array.array("i", [1]), lambda things: things.append(2)),
    "StringIO": (io.StringIO(), lambda stream: stream.write("2")),
    "a list with methods of its own": (Hostile([1]), lambda things: list.append(things, 2)),
}


@pytest.mark.parametrize("name", GROWING)
def test_a_container_that_gets_longer_has_changed(name):
    thing, act = GROWING[name]
    assert changes([Holder(thing), thing], lambda: act(thing), grows=True)


def test_an_attribute_that_is_replaced_has_changed_and_another_one_has_not():
    value = [1]
    holder = Holder(value)
    assert not changes([holder, value], lambda: setattr(holder, "other", 3), grows=True)
    assert changes([holder, value], lambda: setattr(holder, "value", [1]), grows=True)


def test_a_key_that_is_replaced_has_changed_and_another_one_has_not():
    value = [1]
    names = {"other": 0, "value": value}
    assert not changes([names, value], lambda: names.update(other=1), grows=True)
    assert changes([names, value], lambda: names.update(value=[1]), grows=True)


def test_an_entry_of_an_old_container_is_watched_by_the_containers_length():
    entry = object()
    things = [entry]
    assert changes([things, entry], lambda: things.append(1))


def test_a_tensor_written_in_place_and_a_new_gradient_are_changes():
    weight = torch.ones(2, requires_grad=True)
    unseen = object()  # the graph's node: nothing that the collector reports refers to it
    assert changes([Holder(weight), weight, unseen], lambda: weight.sum().backward())
    total = torch.zeros(2)
    assert changes([Holder(total), total], lambda: total.add_(1), grows=True)


def test_the_newest_entries_are_handed_out():
    things = {"a": [1]}
    point = watchpoint("print", [things, things["a"]], grows=False)
    before, new = point.token(), [2]
    things["b"] = new
    assert [thing for thing in point.new_entries(before, point.token()) if thing is new] == [new]


def test_a_key_that_is_an_object_counts_as_an_entry():
    key, value = Holder(1), [1]
    things = {"a": [0]}
    point = watchpoint("print", [things, things["a"]], grows=False)
    before = point.token()
    things[key] = value
    assert any(thing is key for thing in point.new_entries(before, point.token()))


def test_a_place_that_cannot_be_read_has_no_watch():
    assert watchpoint("print", [object(), object()], grows=False) is None


GOES_ON = """
    import contextlib, os, threading
    import leaklab

    timers, stack = [], contextlib.ExitStack()

    def watchdog():
        timer = threading.Timer(3600.0, print)
        timer.daemon = True
        timer.start()
        timers.append(timer)

    @contextlib.contextmanager
    def lease():
        block = bytearray(9000)
        yield block
        block.clear()

    def enter():
        return stack.enter_context(lease())

    for step in (watchdog, enter):
        report = leaklab.leakcheck(step, runs=16, cure=False)
        assert report.leaked, report
    stack.close()
    print("closed", flush=True)
    os._exit(0)
"""


def test_threads_that_traced_runs_have_started_are_traced_no_more(tmp_path):
    """CPython 3.12.1 crashed: generators that had been suspended were resumed while such a thread was still traced."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(GOES_ON))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr
