"""What a call is said to have kept is what it has kept."""

from __future__ import annotations

import atexit
from contextlib import contextmanager

from leaklab.check.stores_in_c import StoreCalls
from leaklab.runtime.gc_control import gc_paused


class Thing:
    """Something that a callback belongs to."""

    def close(self):
        pass


def test_an_object_at_the_address_of_another_that_is_gone_was_not_kept_by_the_call():
    things, kept, n_before = [Thing() for _ in range(20)], [], atexit._ncallbacks()

    @contextmanager
    def young():
        if atexit._ncallbacks() > n_before:  # the first are gone, others are in their places, with one reference more
            del things[:]
            things.extend(Thing() for _ in range(20))
            kept.extend(things)
        lent = [*things, callback]
        yield lent
        lent.clear()

    callback = Thing().close
    calls = StoreCalls(young, lambda filename: filename == __file__)
    with calls.watched() as is_on:
        atexit.register(callback)
    atexit.unregister(callback)
    assert is_on
    assert [(call.address, call.function) for call in calls.calls] == [(id(callback), "atexit.register")]


def test_what_is_leaklabs_own_was_not_kept_by_the_call():
    own, callback = gc_paused().__exit__, Thing().close  # a method of leaklab's, which is listed while objects are lent

    @contextmanager
    def young():
        lent = [own, own.__self__, callback]
        yield lent
        lent.clear()

    calls = StoreCalls(young, lambda filename: filename == __file__)
    with calls.watched() as is_on:
        atexit.register(own)
        atexit.register(callback)
    atexit.unregister(own)
    atexit.unregister(callback)
    assert is_on
    assert [call.address for call in calls.calls] == [id(callback)]


def test_what_lends_the_objects_may_be_listed_with_them_once_and_not_the_next_time():
    """A method of leaklab's is made anew for each listing, often at the address of the last one."""
    own, callback = gc_paused().__exit__, Thing().close
    times = iter([1, 1, 3, 0])

    @contextmanager
    def young():
        lent = [*[own] * next(times), callback]
        yield lent
        lent.clear()

    calls = StoreCalls(young, lambda filename: filename == __file__)
    with calls.watched():
        atexit.register(callback)
    atexit.unregister(callback)
    assert [call.address for call in calls.calls] == [id(callback)]
