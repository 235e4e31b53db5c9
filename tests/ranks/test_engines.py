"""Four workers of real engines on one machine: none leaks, all leak; one is clean, one leaks, one raises, one dies."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import leaklab

FOLDER = Path(__file__).parent / "engines"
ROOT = Path(__file__).parents[2]
CLEAN, LEAKS, MIXED = ["clean"] * 4, ["leaks"] * 4, ["clean", "leaks", "raises", "dies"]
MAX_SECONDS = 300
PACKAGES = {"ray": "ray", "dask": "distributed", "ipyparallel": "ipyparallel"}
HOLDERS = {"ray": "self.kept", "dask": "kept in job()", "ipyparallel": "kept"}

pytestmark = pytest.mark.untraced
_made: dict[str, list[leaklab.RanksReport]] = {}
_shown: dict[str, list[int]] = {}


# One stands for all by day; notebook 6 runs another one.
@pytest.fixture(params=["dask", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("ray", "ipyparallel"))])
def engine(request):
    if importlib.util.find_spec(PACKAGES[request.param]) is None:
        pytest.skip(f"{request.param} is not installed: pip install leaklab[engines]")
    return request.param


def reports_of(engine):
    """Each case's report; the engine is started once."""
    if engine not in _made:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"}
        command = [sys.executable, str(FOLDER / f"on_{engine}.py"), json.dumps([CLEAN, LEAKS, MIXED])]
        for _attempt in range(2):  # an engine that did not start in its own time is no fault of a check
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=MAX_SECONDS, check=False
            )
            if done.returncode == 0:
                break
        assert done.returncode == 0, done.stderr[-3_000:]
        lines = done.stdout.splitlines()
        _made[engine] = [leaklab.RanksReport.from_json(line) for line in lines if line.startswith("{")]
        _shown[engine] = [int(line.removeprefix("shown ")) for line in lines if line.startswith("shown ")]
    return _made[engine]


def verdicts(report):
    """Bounded is no leak, too: workers keep logs of their own, which grow to a limit."""
    words = {"clean": "no leak", "bounded": "no leak"}
    return sorted(words.get(verdict, verdict) for verdict in report.to_frame()["verdict"])


def test_where_none_leaks_no_worker_is_said_to(engine):
    report = reports_of(engine)[0]
    assert verdicts(report) == ["no leak"] * 4, str(report)
    assert [shared for shared in report.leaks if shared.is_certain] == []
    assert report.is_proven


def test_where_all_leak_it_is_one_leak_in_all_of_them(engine):
    report = reports_of(engine)[1]
    assert verdicts(report) == ["leak"] * 4, str(report)
    (shared,) = report.leaks
    assert shared.leak.holder == HOLDERS[engine]
    assert len(shared.ranks) == 4


@pytest.mark.nightly
def test_a_worker_that_raises_and_one_that_dies_take_no_answer_from_the_others(engine):
    report = reports_of(engine)[2]
    assert verdicts(report) == ["ended early", "leak", "no answer", "no leak"], str(report)
    assert [shared.leak.holder for shared in report.leaks] == [HOLDERS[engine]]
    assert "the loader is empty" in str(report) or engine == "ipyparallel"  # its record says ValueError in run 1


def test_each_engine_of_ipyparallel_shows_its_report(engine):
    if engine != "ipyparallel":
        pytest.skip("its workers show nothing")
    reports_of(engine)
    assert _shown[engine][:2] == [4, 4]


def test_of_two_checks_in_one_process_one_is_refused(engine):
    if engine == "ipyparallel":
        pytest.skip("an engine runs one cell at a time")
    report = reports_of(engine)[3]
    errors = [one.error for one in report.record.ranks if one.error]
    assert len(errors) == 1
    assert errors[0].startswith("CheckRunningError: a check is running in the thread")
    assert not report.is_proven
    # Scheduler, worker and client are threads of this one process: what they note is counted, but by its own name.
    assert [leak for leak in report.leaks if "job" in str(leak.leak.path)] == []
