"""What the plug-in keeps for itself, the screen of a suite, and the file of known leaks."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import sys
import time
import types
import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import samples
from hypothesis import given
from hypothesis import strategies as st

import leaklab
from leaklab.errors import ReportError
from leaklab.measure.process_counts import Children
from leaklab.model import Status
from leaklab.model.paths import RootPath, Step
from leaklab.testing import assert_no_leak
from leaklab.testing.baseline import KnownLeak, read_baseline, stale_entries, write_baseline
from leaklab.testing.checking import kept_by_plugin
from leaklab.testing.code_hosts import PlacedLeak, code_quality, github_command, sarif
from leaklab.testing.screen import leaves_something


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
        (("_pytest.config.Config", "_pytest.stash.Stash", "dict", "_pytest.junitxml.LogXML", "list", "tuple"), True),
        (("_pytest.config.Config", "_pytest.stash.Stash", "dict", "list", "mine.Row"), False),
    ],
    ids=[
        "found through pytest only",
        "the suite's on Config",
        "not found through pytest",
        "the suite's in a fixture",
        "JUnit's",
        "in a stash",
    ],
)
def test_only_what_a_plugin_keeps_below_pytest_is_its_own(kinds, theirs):
    assert kept_by_plugin(leak_below(*kinds), {"pytest_benchmark"}) is theirs


def test_an_annotation_is_one_line_on_the_line_that_keeps():
    leak = replace(samples.hook_leak(), sites=("tests/test_a.py:7 in test_a: keep(x)  # keeps it",))
    assert github_command(PlacedLeak.of(leak)).startswith("::error file=tests/test_a.py,line=7,title=leak::")
    nowhere = PlacedLeak.of(replace(leak, sites=())).within(Path.cwd(), ("tests/test_b.py", 3))
    assert github_command(nowhere).startswith("::error file=tests/test_b.py,line=3,title=leak::")


def test_the_place_of_a_leak_is_a_file_of_the_repository_or_that_of_the_test(tmp_path, monkeypatch):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.py").write_text("x")
    monkeypatch.chdir(tmp_path / "lib")
    leak = PlacedLeak("`x` grows", "container-growth", "0123456789ab", "a.py", 7)
    test = "tests/test_a.py", 3
    assert leak.within(tmp_path, test).file == "lib/a.py"
    for elsewhere in ("/usr/lib/python3/site.py", "gone.py", "", "../../../../etc/passwd"):
        placed = replace(leak, file=elsewhere).within(tmp_path, test)
        assert (placed.file, placed.line) == test


def test_hosts_of_code_get_each_leak_once_in_their_own_formats():
    first = PlacedLeak("`x` grows, 10 % more", "container-growth", "0123456789ab", "a.py", 7)
    again = replace(first, file="b.py")
    other = PlacedLeak("`y` grows", "hook-left", "ba9876543210", "c.py", 0)
    assert code_quality([first, again, other]) == [
        {
            "description": "`x` grows, 10 % more",
            "check_name": "leaklab/container-growth",
            "fingerprint": "0123456789ab",
            "severity": "major",
            "location": {"path": "a.py", "lines": {"begin": 7}},
        },
        {
            "description": "`y` grows",
            "check_name": "leaklab/hook-left",
            "fingerprint": "ba9876543210",
            "severity": "major",
            "location": {"path": "c.py", "lines": {"begin": 1}},
        },
    ]
    (run,) = sarif([first, again, other])["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rules[one["ruleIndex"]]["id"] for one in run["results"]] == ["container-growth", "hook-left"]
    assert rules[0]["shortDescription"] == {"text": "Memory leak: a container grows"}
    places = [one["locations"][0]["physicalLocation"] for one in run["results"]]
    assert [one["artifactLocation"]["uri"] for one in places] == ["a.py", "c.py"]
    assert code_quality([]) == sarif([])["runs"][0]["results"] == []


def start_child() -> int:
    return os.posix_spawn("/bin/true", ["true"], {})


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

    def every_third_run(self):
        if next(self._numbers) % 3 == 0:
            self.rows.append([])

    def every_second_run(self):
        if next(self._numbers) % 2 == 0:
            self.names.add(f"row {next(self._numbers) // 2}")

    def descriptors(self):
        self.rows.append(os.dup(0))

    def child_that_is_waited_for(self):
        os.waitpid(start_child(), 0)

    def native_memory(self):
        malloc = ctypes.CDLL(None).malloc
        malloc(32 * 1024)

    def nothing(self):
        json.loads('{"a": [1, 2, 3]}')

    def rings(self):
        ring = []
        ring.append(ring)

    def much_for_a_while(self):
        return [np.zeros(10) for _ in range(100)]

    def text_files(self):
        Path(os.devnull).open("w").close()

    def the_last_row_only(self):
        self.rows[:] = [[next(self._numbers)]]


@pytest.mark.untraced
@pytest.mark.parametrize(
    "name",
    [
        *("arrays", "numbers", "texts", "objects"),
        *("every_third_run", "every_second_run", "descriptors", "native_memory"),
    ],
)
def test_what_runs_leave_is_seen(name):
    kept = Kept()
    try:
        assert leaves_something(getattr(kept, name))
    finally:
        if name == "descriptors":
            for number in kept.rows:
                os.close(number)


@pytest.mark.untraced
@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell children")
def test_children_that_are_left_are_seen_before_they_fill_the_machine():
    before = Children().numbers()
    try:
        assert leaves_something(start_child)
        left = set(Children().numbers()) - set(before)
        assert 0 < len(left) < 50
    finally:
        for number in set(Children().numbers()) - set(before):
            os.waitpid(number, 0)


@pytest.mark.untraced
@pytest.mark.parametrize(
    "name", ["nothing", "rings", "much_for_a_while", "text_files", "the_last_row_only", "child_that_is_waited_for"]
)
def test_what_is_gone_after_the_run_is_not_and_a_slow_test_is_run_four_times_for_that(name):
    run, times = getattr(Kept(), name), []

    def slow():
        times.append(None)  # filled before anything is counted, and no object for the collector
        time.sleep(0.02)
        run()

    assert not leaves_something(slow)
    assert len(times) == 4, "one to warm up, three to measure"


@pytest.mark.untraced
def test_what_fills_up_and_stops_is_run_further_and_is_no_suspect():
    table, numbers = {}, itertools.count(1000)

    def fills():
        if len(table) < 15:
            table[next(numbers)] = object()

    assert not leaves_something(fills)


@pytest.mark.untraced
def test_what_could_not_be_run_often_enough_counts_as_left():
    times = []
    assert leaves_something(lambda: times.append(None), seconds=0.0)
    assert len(times) == 1


NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=20).filter(
    lambda name: not name.startswith("#")
)


LEAKS = NAMES.map(KnownLeak) | st.builds(
    KnownLeak, NAMES, st.integers(0, 10**12).map(float), st.integers(0, 999).map(float)
)


@given(
    st.dictionaries(NAMES, st.dictionaries(st.text("0123456789abcdef", min_size=12, max_size=12), LEAKS, min_size=1))
)
def test_what_is_written_is_read(tmp_path_factory, known):
    path = tmp_path_factory.mktemp("baseline") / "known.txt"
    write_baseline(path, known)
    assert read_baseline(path) == known


def test_a_baseline_of_before_it_held_rates_is_read_and_accepts_any_rate(tmp_path):
    path = tmp_path / "known.txt"
    path.write_text("test_a.py::test_b\n    0123456789ab  `KEPT` grows by 1 list (64 B) every run\n", "utf-8")
    leak = read_baseline(path)["test_a.py::test_b"]["0123456789ab"]
    assert leak == KnownLeak("`KEPT` grows by 1 list (64 B) every run")
    assert not leak.worse(KnownLeak("", 1e9, 1e6))


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ((800_000, 1), "640 B every run in the baseline, 800,000 B now"),
        ((640, 5), "1 every run in the baseline, 5 now"),
        ((1200, 1.9), ""),
        ((0, 0), ""),
    ],
)
def test_a_known_leak_is_worse_from_twice_its_rate_on(now, words):
    assert KnownLeak("", 640.0, 1.0).worse(KnownLeak("", *now)) == words


def test_entries_are_stale_only_for_tests_that_were_checked():
    known = {"a": {"1": "x", "2": "y"}, "b": {"3": "z"}}
    assert stale_entries(known, {"a": {"1": ""}}) == [("a", "2")]


@pytest.mark.parametrize(
    ("text", "words"), [("    0123  x\n", "line 1 .* is a fingerprint before any test"), (None, "cannot read")]
)
def test_a_file_that_cannot_be_understood_is_refused(tmp_path, text, words):
    path = tmp_path / "known.txt"
    if text is not None:
        path.write_text(text, "utf-8")
    with pytest.raises(ReportError, match=words):
        read_baseline(path)


@pytest.mark.untraced
def test_the_assertion_fails_with_the_report_and_accepts_what_is_known():
    kept = []
    with pytest.raises(AssertionError, match="kept") as caught:
        assert_no_leak(lambda: kept.append([0]), runs=12)
    fingerprint = str(caught.value).partition("  id          ")[2].split()[0]
    assert assert_no_leak(lambda: kept.append([0]), runs=12, known=[fingerprint]).leaked
    assert not assert_no_leak(lambda: [0], runs=8).leaked


@pytest.mark.untraced
def test_modules_under_names_of_their_own_are_one_leak_of_a_baseline():
    def make():
        made = types.ModuleType(f"rules_{uuid.uuid4().hex}")
        names.append(made.__name__)
        sys.modules[made.__name__] = made

    names: list[str] = []
    try:
        reports = [leaklab.leakcheck(make, runs=16) for _ in range(2)]
    finally:
        for name in names:
            del sys.modules[name]
    of_modules = [leak for report in reports for leak in report.leaks if leak.holder == "sys.modules"]
    assert len(of_modules) == 2
    assert of_modules[0].fingerprint == of_modules[1].fingerprint
    assert "sys.modules[made.__name__] = made" in of_modules[0].sites[0]
