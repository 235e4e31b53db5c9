"""The screen of a suite: what leaves objects or blocks of memory behind is checked as a whole, nothing else is."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from leaklab.testing.checking import leaves_something

pytestmark = pytest.mark.untraced


class Kept:
    def __init__(self):
        self.rows, self.table, self.names = [], {}, set()
        self._numbers = itertools.count(10**6)

    def arrays(self):
        self.rows.append(np.zeros(1000))

    def numbers(self):
        self.table[next(self._numbers)] = next(self._numbers)

    def texts(self):
        self.names.add(f"row {next(self._numbers)}")

    def objects(self):
        self.rows.append(object.__new__(Kept))

    def nothing(self):
        json.loads('{"a": [1, 2, 3]}')

    def rings(self):
        ring = []
        ring.append(ring)

    def much_for_a_while(self):
        return [np.zeros(10) for _ in range(100)]


@pytest.mark.parametrize("name", ["arrays", "numbers", "texts", "objects"])
def test_what_every_run_leaves_is_seen(name):
    assert leaves_something(getattr(Kept(), name))


@pytest.mark.parametrize("name", ["nothing", "rings", "much_for_a_while"])
def test_what_is_gone_after_the_run_is_not(name):
    assert not leaves_something(getattr(Kept(), name))
