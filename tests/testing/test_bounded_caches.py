"""Caches with a limit that a test fills: they are emptied after each turn, and what grows beside them is seen."""

from __future__ import annotations

import functools
import itertools
from collections import OrderedDict

import pytest
from jinja2.utils import LRUCache
from test_plugin import run

from leaklab.testing.bounded_caches import BoundedCaches
from leaklab.testing.screen import leaves_something

pytestmark = pytest.mark.untraced
MOST = 120
"""Runs that are enough where the cache is emptied; the caches below take 400 runs or more until they are full."""


class Own(OrderedDict):
    """A cache of the user's: what its class may call a limit is not believed."""

    capacity = 400

    def put(self, key, value):
        self[key] = value
        if len(self) > self.capacity:
            self.popitem(last=False)


@functools.lru_cache(maxsize=400)
def of_functools(number):
    return [number]


@functools.lru_cache(maxsize=100_000)
def too_large(number):
    return bytearray(4096 + number)


of_library, own, log = LRUCache(400), Own(), []


def fill(which, number):
    if which == "functools":
        of_functools(number)
    elif which == "library":
        of_library[number] = [number]
    elif which == "too large":
        too_large(number)
    elif which == "own":
        own.put(number, [number])
    else:
        of_functools(number)
        log.append([number])


def screened(which):
    """Return whether something is left, the caches, and how many runs it took to know."""
    caches, numbers = BoundedCaches(), itertools.count()

    def turn():
        fill(which, next(numbers))
        caches.empty()

    try:
        return leaves_something(turn, 60.0, caches), caches, next(numbers)
    finally:
        for cache in (of_functools, too_large):
            cache.cache_clear()
        of_library.clear()
        own.clear()
        log.clear()


@pytest.mark.parametrize("which", ["functools", "library"])
def test_a_cache_with_a_limit_is_emptied_and_is_no_suspect(which):
    is_left, caches, n_runs = screened(which)
    assert caches.are_emptied
    assert not is_left
    assert n_runs < MOST


def test_what_grows_beside_a_cache_is_left():
    is_left, caches, _n_runs = screened("a cache and a log")
    assert caches.are_emptied
    assert is_left


@pytest.mark.parametrize("which", ["own", "too large"])
def test_the_users_own_and_what_is_too_large_when_it_is_full_stay_as_they_are(which):
    _is_left, caches, n_runs = screened(which)
    assert not caches.are_emptied
    assert n_runs > MOST


class Disturbing(BoundedCaches):
    """What is made for a look, and let go of in the runs behind it, as much as what these leave."""

    def __init__(self):
        super().__init__()
        self.ballast = []

    def look(self):
        super().look()
        self.ballast += [[number] for number in range(40)]


def test_what_is_let_go_of_after_a_look_hides_nothing():
    caches = Disturbing()

    def turn():
        log.append([0])
        del caches.ballast[-3:]

    try:
        assert leaves_something(turn, 60.0, caches)
    finally:
        log.clear()


SUITE = """
import functools
import itertools

numbers = itertools.count(1)


@functools.lru_cache(maxsize=90)
def cached(number):
    return [number] * 40


def test_that_needs_what_it_has_put_there():
    number = next(numbers)
    cached(number)
    assert cached.cache_info().currsize == min(number, 90)
"""


def test_a_test_that_needs_its_cache_gets_another_copy_with_the_cache_as_it_is(tmp_path):
    (tmp_path / "test_it.py").write_text(SUITE, "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", "utf-8")
    done = run(tmp_path, "--leakcheck=all", "-rA")
    assert "leakcheck: 1 clean" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
