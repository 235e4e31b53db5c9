"""What a plug-in of pytest keeps for itself is told; the screen of a suite checks what leaves something behind."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import samples

from leaklab.model import Status
from leaklab.model.paths import RootPath, Step
from leaklab.testing.checking import annotation_of, kept_by_plugin, leaves_something


def leak_below(*kinds: str):
    steps = tuple(Step(f".a{number}", kind, "", Status.EXPECTED) for number, kind in enumerate(kinds))
    return replace(samples.hook_leak(), path=RootPath("module 'test_one'", steps))


@pytest.mark.parametrize(
    ("kinds", "theirs"),
    [
        (("_pytest.config.Config", "pytest_benchmark.session.BenchmarkSession", "list", "Metadata"), True),
        (("_pytest.config.Config", "list", "Metadata"), False),
        (("pytest_benchmark.session.BenchmarkSession", "list", "Metadata"), False),
        (("_pytest.fixtures.FixtureDef", "mine.Store", "dict", "pytest_benchmark.Metadata"), False),
    ],
    ids=["found through pytest only", "the suite's on Config", "not found through pytest", "the suite's in a fixture"],
)
def test_only_what_a_plugin_keeps_below_pytest_is_its_own(kinds, theirs):
    assert kept_by_plugin(leak_below(*kinds), {"pytest_benchmark"}) is theirs


def test_an_annotation_is_one_line_on_the_line_that_keeps():
    leak = replace(samples.hook_leak(), sites=("tests/test_a.py:7 in test_a: keep(x)  # keeps it",))
    assert annotation_of(leak).startswith("::error file=tests/test_a.py,line=7,title=leak::")
    assert annotation_of(replace(leak, sites=())).startswith("::error::")


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


@pytest.mark.untraced
@pytest.mark.parametrize("name", ["arrays", "numbers", "texts", "objects"])
def test_what_every_run_leaves_is_seen(name):
    assert leaves_something(getattr(Kept(), name))


@pytest.mark.untraced
@pytest.mark.parametrize("name", ["nothing", "rings", "much_for_a_while"])
def test_what_is_gone_after_the_run_is_not(name):
    assert not leaves_something(getattr(Kept(), name))
