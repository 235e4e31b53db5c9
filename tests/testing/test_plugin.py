"""The plug-in for pytest, run as a user runs it: in a process of its own, over suites written here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import leaklab

ROOT = Path(leaklab.__file__).parent.parent
FEW = "--leakcheck-runs=12"
SUITE = """
import asyncio
import unittest

import pytest
import torch

KEPT = []


@pytest.fixture(scope="module")
def model():
    return torch.nn.Linear(3, 3)


@pytest.mark.leakcheck
def test_leaks():
    KEPT.append(torch.ones(10))


@pytest.mark.leakcheck
def test_hook(model):
    model.register_forward_hook(lambda *_: None)


@pytest.mark.leakcheck
@pytest.mark.parametrize("rows", [1, 2])
def test_clean(rows, model, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ROWS", str(rows))
    (tmp_path / "file").write_text("x")
    print(model(torch.ones(rows, 3)).sum())


@pytest.mark.leakcheck(known="an old friend")
def test_known():
    KEPT.append(torch.ones(10))


@pytest.mark.leakcheck
def test_fails():
    assert 0


@pytest.mark.leakcheck
def test_skipped():
    pytest.skip("no")


turns = []


@pytest.mark.leakcheck
def test_only_once():
    turns.append(1)
    assert len(turns) != 2


class TestClass:
    @pytest.mark.leakcheck
    def test_method(self):
        self.value = [1]


class Case(unittest.TestCase):
    def setUp(self):
        self.data = torch.ones(4)

    @pytest.mark.leakcheck
    def test_unittest(self):
        self.assertEqual(float(self.data.sum()), 4)


def test_not_marked():
    KEPT.append(torch.ones(10))
"""


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", *arguments]
    if "leaklab" not in _entry_points():  # a checkout that is used without being installed anew
        command += ["-p", "leaklab.testing.plugin"]
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "GITHUB_ACTIONS": "", **environment}
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "COV_CORE_SOURCE"):
        settings.pop(name, None)
    return subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)


def _entry_points() -> set[str]:
    from importlib.metadata import entry_points

    return {point.name for point in entry_points(group="pytest11")}


@pytest.fixture(scope="module")
def suite(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    (folder / "test_some.py").write_text(SUITE, "utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    return folder


@pytest.mark.untraced
def test_marked_tests_are_checked_and_the_others_are_left_alone(suite):
    files = ("--junitxml=results.xml", "--leakcheck-sarif=leaks.sarif", "--leakcheck-gitlab=leaks.json")
    done = run(suite, "-v", "-rA", *files, GITHUB_ACTIONS="true")
    words = {}
    for line in done.stdout.splitlines():
        name, _, rest = line.partition(" ")
        if name.startswith("test_some.py::"):
            words[name.removeprefix("test_some.py::")] = rest.split()[0]
    assert words == {
        "test_leaks": "LEAKED",
        "test_hook": "LEAKED",
        "test_clean[1]": "PASSED",
        "test_clean[2]": "PASSED",
        "test_known": "PASSED",
        "test_fails": "FAILED",
        "test_skipped": "SKIPPED",
        "test_only_once": "PASSED",
        "TestClass::test_method": "PASSED",
        "Case::test_unittest": "PASSED",
        "test_not_marked": "PASSED",
    }, done.stdout
    assert done.returncode == 1
    assert "LEAKED  `model._forward_hooks` grows by 1 function" in done.stdout
    line = 1 + SUITE.splitlines().index("    KEPT.append(torch.ones(10))")
    assert f"test_some.py:{line} in test_leaks: KEPT.append(torch.ones(10))  <- keeps it" in done.stdout
    assert "would free" not in done.stdout, "a few lines for each leak; -vv shows the whole report"
    assert f"::error file=test_some.py,line={line},title=leak::`KEPT` grows by 1 tensor" in done.stdout
    assert "leaked (known): an old friend" in done.stdout
    assert "not repeatable: in run 2 the test fails: assert 2 != 2" in done.stdout
    properties = {
        case.get("name"): {p.get("name"): p.get("value") for p in case.iter("property")}
        for case in ET.parse(suite / "results.xml").iter("testcase")  # noqa: S314 - written a moment ago
    }
    assert properties["test_leaks"]["leaklab_outcome"] == "leak"
    assert int(properties["test_leaks"]["leaklab_bytes_per_run"]) > 40
    assert len(properties["test_leaks"]["leaklab_fingerprints"]) == 12
    assert properties["test_clean[1]"]["leaklab_outcome"] == "clean"
    assert properties["test_not_marked"] == {}
    issues = json.loads((suite / "leaks.json").read_text("utf-8"))
    assert {(one["location"]["path"], one["location"]["lines"]["begin"]) for one in issues} >= {("test_some.py", line)}
    (sarif,) = json.loads((suite / "leaks.sarif").read_text("utf-8"))["runs"]
    of_issues = {one["fingerprint"] for one in issues}
    assert {one["partialFingerprints"]["leaklab/v1"] for one in sarif["results"]} == of_issues
    assert len(of_issues) == len(issues) == 2


@pytest.mark.untraced
def test_a_baseline_is_written_accepted_by_several_processes_and_told_when_it_is_stale(suite):
    chosen = ("-k", "test_leaks or test_hook or test_method", "--leakcheck-baseline=known.txt", FEW)
    assert run(suite, "-q", *chosen, "--leakcheck-update-baseline").returncode == 0
    text = (suite / "known.txt").read_text("utf-8")
    assert "test_some.py::test_hook\n    " in text
    assert "`model._forward_hooks` grows by 1 function" in text
    (suite / "known.txt").write_text(text + "\ntest_some.py::TestClass::test_method\n    0123456789ab  gone\n", "utf-8")
    files = ("--leakcheck-html=leaks.html", "--leakcheck-sarif=known.sarif")
    done = run(suite, "-q", *chosen, "-n", "2", *files)
    assert done.returncode == 0, done.stdout
    assert "leakcheck: test_some.py::TestClass::test_method no longer has the leak 0123456789ab of the baseline" in (
        done.stdout
    )
    assert "test_hook" in (suite / "leaks.html").read_text("utf-8")
    assert json.loads((suite / "known.sarif").read_text("utf-8"))["runs"][0]["results"] == [], "they are known"


@pytest.mark.untraced
def test_a_file_that_cannot_be_written_is_told_and_the_others_are_written(suite):
    files = ("--leakcheck-sarif=no/folder/leaks.sarif", "--leakcheck-html=page.html")
    done = run(suite, "-q", "-k", "test_leaks", "-n", "1", FEW, *files)
    assert "leakcheck: cannot write " in done.stdout, done.stdout
    assert "1 leaked" in done.stdout
    assert (suite / "page.html").exists()
    assert run(suite, "-q", "-k", "test_not_marked", files[0]).returncode == pytest.ExitCode.USAGE_ERROR


@pytest.mark.untraced
def test_small_leaks_do_not_fail_where_that_is_said(suite):
    done = run(suite, "-q", "-k", "test_leaks or test_hook", "-rA", FEW, "-o", "leakcheck_min_bytes=1MiB")
    assert "1 passed" in done.stdout, done.stdout
    assert "1 leaked" in done.stdout, "hooks count however small"
    assert "1 leak is left aside, smaller than --min-bytes 1.00 MiB" in done.stdout


@pytest.mark.untraced
def test_a_whole_suite_is_screened_first(suite):
    done = run(suite, "-q", "--leakcheck", "-k", "test_not_marked or test_method", "-rA", FEW)
    assert "1 passed, " in done.stdout
    assert "1 leaked" in done.stdout, done.stdout


OF_LIBRARY = """
import pytest

TABLE = {}


class Emitter:
    def __init__(self):
        TABLE[f"{len(TABLE)} {id(self)}"] = self


@pytest.mark.parametrize("number", range(3))
def test_emitter(number):
    Emitter()


def test_another_leak_too():
    Emitter()
    TABLE.setdefault("rows", []).append([number for number in range(10)])
"""


@pytest.mark.untraced
def test_a_leak_that_many_tests_have_is_explained_once(tmp_path):
    (tmp_path / "test_library.py").write_text(OF_LIBRARY, "utf-8")
    done = run(tmp_path, "-vv", "--leakcheck")
    assert "4 leaked" in done.stdout, done.stdout
    told = done.stdout.split("_ test_emitter")
    assert len(told) == 4
    assert "explained with" not in told[1]
    assert "LEAK  `" in told[1]
    for short in (told[2], told[3].partition("_ test_another")[0]):
        assert "LEAKED  `TABLE` grows by 1 Emitter object" in short
        assert "    explained with test_library.py::test_emitter[0]\n" in short
        assert "LEAK  `" not in short
    both = done.stdout.partition("_ test_another_leak_too")[2]
    assert "explained with test_library.py::test_emitter[0]" in both
    assert "Leak 1 of 2: `TABLE" in both


WITHOUT_HOLDER = """
import ctypes
import os

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
keep = ctypes.pythonapi.Py_IncRef


def test_copied_descriptor():
    os.dup(1)


def test_opened_file():
    os.open("/dev/null", os.O_RDWR)


def test_list_in_c():
    keep(ctypes.py_object([1, 2, 3]))


def test_other_list_in_c():
    keep(ctypes.py_object([4, 5, 6]))


def test_native_memory():
    libc.malloc(30_000)


def test_other_native_memory():
    libc.malloc(50_000)
"""


@pytest.mark.untraced
def test_what_no_object_of_python_holds_is_explained_with_each_test(tmp_path):
    (tmp_path / "test_unheld.py").write_text(WITHOUT_HOLDER, "utf-8")
    done = run(tmp_path, "-vv", "--leakcheck=all", "--capture=sys", "--leakcheck-gitlab=leaks.json")
    assert "6 leaked" in done.stdout, done.stdout
    assert "explained with" not in done.stdout
    for call in ("os.dup(1)", 'os.open("/dev/null", os.O_RDWR)', "[1, 2, 3]", "[4, 5, 6]"):
        number, line = next(pair for pair in enumerate(WITHOUT_HOLDER.splitlines(), 1) if call in pair[1])
        assert f"test_unheld.py:{number} in {line_above(number)}: {line.strip()}  <- " in done.stdout
    assert done.stdout.count("LEAK  native memory (malloc) grows by") == 2
    issues = json.loads((tmp_path / "leaks.json").read_text("utf-8"))
    assert len({one["fingerprint"] for one in issues}) == len(issues) == 5, "no line tells native memory apart"


def line_above(number: int) -> str:
    return WITHOUT_HOLDER.splitlines()[number - 2].removeprefix("def ").removesuffix("():")


OF_INSTALLED = """
TABLE = {}


class Entry:
    def __init__(self):
        TABLE[len(TABLE)] = self


def test_entry():
    Entry()
"""


@pytest.mark.untraced
def test_a_test_of_an_installed_package_is_the_users_code_and_its_variables_are_no_notebooks(tmp_path):
    package = tmp_path / "site-packages" / "installed"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", "utf-8")
    (package / "test_entries.py").write_text(OF_INSTALLED, "utf-8")
    paths = f"{ROOT}{os.pathsep}{package.parent}"
    done = run(tmp_path, "-vv", "--leakcheck", "--pyargs", "installed.test_entries", PYTHONPATH=paths)
    assert "test_entries.py:7 in Entry.__init__: TABLE[len(TABLE)] = self  <- keeps it" in done.stdout, done.stdout
    assert "from: module variable" in done.stdout
    assert "no line of your code was found" not in done.stdout


def test_a_suite_without_checks_pays_for_neither_torch_nor_leaklab():
    heavy = "('torch', 'leaklab', 'numpy')"
    code = f"import sys, leaklab.testing.plugin; print(sorted(n for n in sys.modules if n.startswith({heavy})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == str(["leaklab", "leaklab.lazy", "leaklab.testing", "leaklab.testing.plugin"])


def test_a_whole_check_of_code_without_torch_does_without_torch():
    code = """if True:
        import sys
        from leaklab.check.api import leakcheck
        kept = []
        report = leakcheck(lambda: kept.append([1]), runs=8, namespace={"kept": kept})
        print(report.verdict.outcome.value, len(report.leaks), "torch" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["leak", "1", "False"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("times=3", "leakcheck takes known, min_bytes, runs, seconds, warmup, each by its name, not times"),
        ("runs='10'", "runs must be a whole number, not '10'"),
        ("min_bytes='1KiB'", "min_bytes must be a whole number of bytes, not '1KiB'"),
        ("seconds=-1", "the time limit must be a positive number of seconds, not -1"),
    ],
)
def test_a_marker_that_allows_no_check_is_refused_before_any_test_runs(tmp_path, given, words):
    text = f"import pytest\n@pytest.mark.leakcheck({given})\ndef test_one(): raise SystemExit(9)\n"
    (tmp_path / "test_one.py").write_text(text, "utf-8")
    done = run(tmp_path, "-q")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert words in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--leakcheck-update-baseline",), "--leakcheck-update-baseline needs the file to write"),
        (("-o", "leakcheck=some"), "leakcheck must be marked, all or none, not 'some'"),
        (("--leakcheck-runs=2",), "the number of runs must be at least 5"),
        (("--leakcheck-min-bytes=few",), "leakcheck-min-bytes: a size is a number with a unit, such as 10MB"),
        (("--leakcheck-seconds=0",), "the time limit must be a positive number of seconds"),
    ],
)
def test_bad_options_are_answered_in_a_sentence(tmp_path, arguments, words):
    (tmp_path / "test_one.py").write_text("def test_one(): pass\n", "utf-8")
    done = run(tmp_path, *arguments)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert words in done.stderr
