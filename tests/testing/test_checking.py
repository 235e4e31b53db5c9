"""What a plug-in of pytest keeps for itself is told, and fails no test."""

from __future__ import annotations

from dataclasses import replace

import pytest
import samples

from leaklab.model import Status
from leaklab.model.paths import RootPath, Step
from leaklab.testing.checking import annotation_of, kept_by_plugin


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
