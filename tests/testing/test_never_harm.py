"""The outcome of every test with ``--leakcheck`` is its outcome without, whatever plug-ins are there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from test_plugin import run

from leaklab.testing.outcome import Tally

CONFTEST = '''
import pytest

current = None


def pytest_runtest_setup(item):
    global current
    if current is None and item.getparent(pytest.Class):
        current = item.getparent(pytest.Class)
        current.obj.is_started = True


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """As SQLAlchemy's plug-in does."""
    global current
    yield
    if current is not None and (nextitem is None or nextitem.getparent(pytest.Class) is not current):
        current.obj.is_started = False
        current = None
'''
SUITE = """
import itertools
import os
import signal
import sys
import threading
import time
import unittest
import warnings

import pytest

once, count, own = [], itertools.count(), os.getpid()
lock = threading.Lock()


def test_runs_only_once():
    assert not once
    once.append(1)


def test_counts():
    assert next(count) == 0


def test_counts_on():
    assert next(count) == 1


def test_crashes_when_it_is_repeated():
    if os.getpid() != own:
        os.kill(os.getpid(), signal.SIGSEGV)


def test_ends_the_session_when_it_is_repeated():
    if os.getpid() != own:
        pytest.exit("no more")


@pytest.fixture
def ends_badly():
    yield
    raise ValueError


def test_its_end_fails(ends_badly):
    pass


@pytest.fixture(scope="module")
def store():
    yield []
    raise KeyError


def test_first_in_store(store):
    store.append(1)
    assert store == [1]


def test_second_in_store(store):
    assert store == [1]


def test_no_torch():
    assert "torch" not in sys.modules


@pytest.mark.xfail
def test_passes_unexpectedly():
    pass


@pytest.mark.filterwarnings("error")
def test_warnings_are_errors():
    with pytest.raises(UserWarning):
        warnings.warn("x")


class TestOne:
    def test_a(self):
        assert self.is_started


class TestTwo:
    def test_b(self):
        assert self.is_started


class Case(unittest.TestCase):
    n_classes = itertools.count()

    @classmethod
    def setUpClass(cls):
        cls.number = next(cls.n_classes)

    def test_class_is_made_once(self):
        self.assertEqual(self.number, 0)
"""
TIMES_OUT = """
import signal

import pytest


def fail(*_):
    pytest.fail("too long")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol():
    signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
"""
SLOW = """
import time


def test_half_of_the_time():
    time.sleep(0.4)


def test_too_long():
    time.sleep(5)


def test_at_once():
    pass
"""
RERUNS = """
from _pytest.runner import runtestprotocol


def pytest_runtest_protocol(item, nextitem):
    failed = True
    while failed:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in (reports := runtestprotocol(item, nextitem=nextitem, log=False)):
            if report.failed:
                report.outcome = "rerun"
            item.ihook.pytest_runtest_logreport(report=report)
        failed = any(report.outcome == "rerun" for report in reports)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_report_teststatus(report):
    if report.outcome == "rerun":
        return "rerun", "R", "RERUN"
"""
RERUN = """
times = []


def test_passes_in_the_end():
    times.append(1)
    assert len(times) == 3


def test_after():
    assert len(times) == 3
"""


def outcomes(done: subprocess.CompletedProcess[str]) -> dict[str, list[str]]:
    """Return what pytest says of each test, in order."""
    found: dict[str, list[str]] = {}
    for name, word in re.findall(r"^(test_\S+::\S+) ([A-Z]+)\b", done.stdout, re.MULTILINE):
        found.setdefault(name, []).append(word)
    return found


def both_ways(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Assert that all outcomes are the same with and without checks; return the run with them."""
    without = run(folder, "-v", *options, "--leakcheck=none")
    done = run(folder, "-v", *options, "--leakcheck=all", "--leakcheck-seconds=1")
    assert outcomes(done) == outcomes(without), done.stdout + done.stderr
    assert outcomes(done)
    assert done.returncode == without.returncode
    return done


PLUG_INS_COME_AND_GO = """
import pytest


class Listens:
    def __init__(self):
        self.heard = []

    def pytest_runtest_logreport(self, report):
        self.heard.append(report.nodeid)


@pytest.fixture
def no_logging(pytestconfig):
    logging = pytestconfig.pluginmanager.unregister(name="logging-plugin")
    yield
    pytestconfig.pluginmanager.register(logging, "logging-plugin")


def test_without_the_plug_in_for_logging(no_logging):
    pass


def test_a_plug_in_of_the_test_listens(pytestconfig):
    pytestconfig.pluginmanager.register(Listens(), "listens")


def test_it_has_heard(pytestconfig):
    listens = pytestconfig.pluginmanager.unregister(name="listens")
    assert any("of_the_test_listens" in one for one in listens.heard)
"""


def test_every_outcome_is_that_without_checks_and_what_was_not_checked_is_told(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST, "utf-8")
    (tmp_path / "test_all.py").write_text(SUITE, "utf-8")
    done = both_ways(tmp_path, "-rA")
    last = done.stdout.splitlines()[-1]
    assert re.match(r"leakcheck: \d+ of \d+ tests that pass could not be checked: ", last), done.stdout
    assert "not checked: the copy of the process died" in done.stdout
    assert "not repeatable: in run 2 it ends the session: no more" in done.stdout
    assert "not repeatable: in run 2 the test fails: assert not [1]" in done.stdout


@pytest.mark.parametrize(
    ("conftest", "text", "expected"),
    [
        (TIMES_OUT, SLOW, [["PASSED"], ["FAILED"], ["PASSED"]]),
        (RERUNS, RERUN, [["RERUN", "RERUN", "PASSED"], ["PASSED"]]),
    ],
    ids=["timeouts", "reruns"],
)
def test_limits_of_time_and_reruns_are_those_of_the_first_run(tmp_path, conftest, text, expected):
    """As pytest-timeout and pytest-rerunfailures do."""
    (tmp_path / "conftest.py").write_text(conftest, "utf-8")
    (tmp_path / "test_some.py").write_text(text, "utf-8")
    assert list(outcomes(both_ways(tmp_path)).values()) == expected


def test_where_no_copy_is_possible_the_outcome_is_that_of_the_first_run(tmp_path):
    (tmp_path / "test_one.py").write_text(
        "once = []\ndef test_one():\n    assert not once\n    once.append(1)\n", "utf-8"
    )
    done = run(tmp_path, "-v", "--leakcheck=all", "--leakcheck-strict", LEAKLAB_CHILDREN="0")
    assert outcomes(done) == {"test_one.py::test_one": ["PASSED"]}
    assert done.stdout.splitlines()[-1] == (
        "leakcheck: 1 of 1 tests that pass could not be checked: 1 not repeatable: the test fails: assert not [1]; "
        "--leakcheck-strict fails"
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED


LONG = """
once = []


def test_in_words():
    if once:
        raise ValueError("the executors differ: " + "a thousand words " * 9)
    once.append(1)


def test_in_one_word():
    if len(once) > 1:
        raise ValueError("x" * 200)
    once.append(1)
"""


def test_a_long_reason_ends_with_a_whole_word_where_it_has_any(tmp_path):
    (tmp_path / "test_long.py").write_text(LONG, "utf-8")
    done = run(tmp_path, "-rA", "--leakcheck=all")
    said = [line.partition("the test fails: ")[2] for line in done.stdout.splitlines() if line.startswith("not rep")]
    assert said == [
        "ValueError: the executors differ: " + "a thousand words " * 5 + "a ...",
        "ValueError: " + "x" * 108 + " ...",
    ]


class Report:
    when = "call"

    def __init__(self, outcome: str, reason: str = "") -> None:
        self.user_properties = [("leaklab_outcome", outcome), *([("leaklab_reason", reason)] if reason else [])]


def test_a_test_may_register_and_unregister_plug_ins(tmp_path):
    """Flask's tests of its logger take pytest's own plug-in for logging away while they run."""
    (tmp_path / "test_plug_ins.py").write_text(PLUG_INS_COME_AND_GO, "utf-8")
    result = run(tmp_path, "--leakcheck=all", "-rA")
    assert "3 passed" in result.stdout, result.stdout


def test_a_tenth_may_be_unchecked():
    clean = [Report("clean") for _ in range(9)]
    bad = [Report("not repeatable", f"not repeatable: in run {number} it is skipped") for number in (2, 3)]
    assert not Tally([*clean, bad[0]]).too_many_unchecked
    words = Tally([*clean, *bad]).too_many_unchecked
    assert words == ("leakcheck: 2 of 11 tests that pass could not be checked: 2 not repeatable: it is skipped")
