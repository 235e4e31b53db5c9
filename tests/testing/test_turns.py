"""Tests of every kind are run again and again as pytest runs them once, and nothing of it is left for the last run."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from test_plugin import ROOT, run

SUITE = '''
import asyncio
import itertools
import unittest
import warnings
from pathlib import Path

import anyio
import pytest
import torch

KEPT = []
times = itertools.count()
parts = itertools.count()


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.mark.anyio
async def test_anyio_clean():
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 0)


@pytest.mark.anyio
async def test_anyio_leak():
    await anyio.sleep(0)
    KEPT.append({"of": [1]})


class Isolated(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.queue = asyncio.Queue()

    async def test_async_clean(self):
        await self.queue.put(1)


class Plain(unittest.TestCase):
    times = itertools.count()

    @classmethod
    def setUpClass(cls):
        cls.store = []

    @pytest.mark.slow
    def test_store_leak(self):
        self.addCleanup(lambda: None)
        self.store.append([1])

    def test_second_run_once(self):
        self.assertNotEqual(next(self.times), 1)

    def test_skipped_once(self):
        self.skipTest("no")

    @unittest.expectedFailure
    def test_expected_once(self):
        self.assertTrue(0)

    def test_parts_clean(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertLess(number, 4)


def test_parts_once(request):
    if (subtests := getattr(pytest, "Subtests", None)) is None:
        pytest.skip("from pytest 9 on")
    number = next(parts)
    with request.getfixturevalue("subtests").test(number=0):
        assert number != 1


def test_exit_once():
    if next(times) == 1:
        raise SystemExit(3)


def test_warns_clean():
    warnings.warn(f"at {id(object())}")


def test_noted_clean(record_property, request):
    record_property("size", [1])
    request.getfixturevalue("closing")


@pytest.fixture(scope="module")
def closing():
    yield [1]
    Path("closed.txt").open("a").write("closed once\\n")


def test_module_fixture_clean(closing):
    assert closing


class TestMethods:
    def setup_method(self):
        self.rows = [1]

    def test_method_clean(self):
        self.rows.append(2)
        assert self.rows == [1, 2]


def test_it_asks_leak(leakcheck):
    model = torch.nn.Linear(2, 2)
    leakcheck(lambda: model.register_forward_hook(lambda *_: None), runs=8)


def test_it_asks_clean(leakcheck):
    assert leakcheck(lambda: [1], runs=6).verdict.outcome.value == "clean"


def examples_leak():
    """
    >>> KEPT.append([1])
    """


def examples_clean():
    """
    >>> torch.ones(2).sum().item()
    2.0
    """
'''
WITH_ASYNCIO = """
import asyncio

import pytest
import pytest_asyncio

KEPT = []


@pytest_asyncio.fixture
async def connection():
    yield {"open": [1]}


@pytest.mark.asyncio
async def test_asyncio_clean(connection):
    await asyncio.sleep(0)


@pytest.mark.asyncio(loop_scope="module")
async def test_task_of_a_wider_loop_leak():
    KEPT.append(asyncio.ensure_future(asyncio.Event().wait()))
    await asyncio.sleep(0)
"""
TRUTH = {"leak": {"LEAKED"}, "clean": {"PASSED"}, "once": {"PASSED", "SKIPPED", "XFAIL"}}


def words_of(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return the word that pytest has for each test."""
    found = re.findall(
        r"^test_kinds.py::(?:\S+::)?(\S+) (PASSED|LEAKED|SKIPPED|XFAIL|FAILED|ERROR)\b", done.stdout, re.MULTILINE
    )
    return dict(found)


@pytest.mark.untraced
def test_every_kind_of_test_is_repeated_or_passes(tmp_path):
    (tmp_path / "test_kinds.py").write_text(SUITE, "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n", "utf-8")
    options = ("-v", "-rA", "--leakcheck=all", "--doctest-modules", "--leakcheck-seconds=1")
    done = run(tmp_path, *options, "-W", "ignore::pytest.PytestUnknownMarkWarning")
    words = words_of(done)
    assert len(words) == 18, done.stdout
    wrong = {name: word for name, word in words.items() if word not in TRUTH[name.rpartition("_")[2]]}
    assert not wrong, done.stdout
    assert "subtests passed" not in done.stdout or "4 subtests passed" in done.stdout  # those of the last run
    assert (tmp_path / "closed.txt").read_text("utf-8") == "closed once\n"
    assert "not repeatable: in run 2 the test fails: AssertionError: 1 == 1" in done.stdout
    assert "not repeatable: in run 2 the test fails: SystemExit: 3" in done.stdout
    assert "`model._forward_hooks in test_it_asks_leak()` grows by 1 function" in done.stdout
    assert "leakcheck: " in done.stdout


@pytest.mark.untraced
def test_tests_of_pytest_asyncio_are_repeated(tmp_path):
    pytest.importorskip("pytest_asyncio")
    (tmp_path / "test_kinds.py").write_text(WITH_ASYNCIO, "utf-8")
    ini = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
    (tmp_path / "pytest.ini").write_text(ini, "utf-8")
    done = run(tmp_path, "-v", "--leakcheck=all", "--leakcheck-seconds=2")
    assert words_of(done) == {"test_asyncio_clean": "PASSED", "test_task_of_a_wider_loop_leak": "LEAKED"}, done.stdout


WITH_HYPOTHESIS = """
import unittest

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

KEPT = []
few = settings(max_examples=3, database=None)


class TestMethods:
    @few
    @given(st.integers())
    def test_method_leak(self, number):
        KEPT.append([number])

    @few
    @given(st.integers())
    def test_method_clean(self, number):
        assert [number]

    @pytest.mark.parametrize("rows", [1])
    @few
    @given(st.integers())
    def test_parametrized_clean(self, rows, number):
        assert [number]


class Case(unittest.TestCase):
    @few
    @given(st.integers())
    def test_unittest_leak(self, number):
        KEPT.append([number])


def test_settings_clean():
    for method in (TestMethods.test_method_clean, TestMethods.test_method_leak, Case.test_unittest_leak):
        assert HealthCheck.differing_executors not in method._hypothesis_internal_use_settings.suppress_health_check
    with pytest.raises(Exception, match="multiple different executors"):
        TestMethods().test_method_clean()
"""


@pytest.mark.untraced
@pytest.mark.parametrize("children", ["1", "0"], ids=["in a copy", "here"])
def test_a_method_of_hypothesis_is_repeated_though_each_turn_has_an_instance_of_its_own(tmp_path, children):
    (tmp_path / "test_kinds.py").write_text(WITH_HYPOTHESIS, "utf-8")
    done = run(tmp_path, "-v", "--leakcheck=all", LEAKLAB_CHILDREN=children)
    assert words_of(done) == {
        "test_method_leak": "LEAKED",
        "test_method_clean": "PASSED",
        "test_parametrized_clean[1]": "PASSED",
        "test_unittest_leak": "LEAKED",
        "test_settings_clean": "PASSED",
    }, done.stdout
    assert "leakcheck: 3 clean, 2 leak" in done.stdout


NOTES_EVERY_TEST = """
import pytest

class Notes:
    def __init__(self):
        self.outcomes, self.by_name = [], {}

    @pytest.hookimpl
    def pytest_runtest_teardown(self, item):
        self.outcomes.append({"of": [item.name]})
        self.by_name[item.name, len(self.by_name)] = [item]

def pytest_configure(config):
    config.pluginmanager.register(Notes(), "notes of tests")
    config._notes = Notes()

@pytest.fixture
def notes(request):
    request.config._notes.outcomes.append({"of": [request.node.name]})
"""
WITH_NOTES = """
import importlib
import pytest

KEPT = []

class Listens:
    pass

def test_noted_clean(notes, pytestconfig):
    assert pytestconfig.pluginmanager.get_plugin("notes of tests").outcomes is not None

def test_plug_in_registered_clean(pytestconfig):
    name = pytestconfig.pluginmanager.register(Listens())
    pytestconfig.pluginmanager.unregister(name=name)

def test_folder_of_its_own_clean(tmp_path, monkeypatch):
    (tmp_path / "made_here.py").write_text("number = 3")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "made_here", raising=False)
    assert importlib.import_module("made_here").number == 3

def test_own_list_leak(notes):
    KEPT.append({"of": [1]})
"""


@pytest.mark.untraced
def test_what_plug_ins_note_of_each_test_is_taken_away_after_each_turn(tmp_path):
    (tmp_path / "notes_every_test.py").write_text(NOTES_EVERY_TEST, "utf-8")
    installed = tmp_path / "notes_every_test-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: notes-every-test\nVersion: 1\n", "utf-8")
    (installed / "entry_points.txt").write_text("[pytest11]\nnotes = notes_every_test\n", "utf-8")
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "test_kinds.py").write_text(WITH_NOTES, "utf-8")
    done = run(suite, "-v", "-rA", "--leakcheck=all", PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}")
    assert words_of(done) == {
        "test_noted_clean": "PASSED",
        "test_plug_in_registered_clean": "PASSED",
        "test_folder_of_its_own_clean": "PASSED",
        "test_own_list_leak": "LEAKED",
    }, done.stdout
    assert "leakcheck: 3 clean, 1 leak" in done.stdout
    assert "a pytest plug-in keeps" not in done.stdout
