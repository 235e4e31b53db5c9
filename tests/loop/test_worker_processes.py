"""The workers of a pool watch their own calls, and say which of them keeps what."""

from __future__ import annotations

import subprocess
import sys

import pytest

import leaklab

PROGRAM = """
import multiprocessing, sys, leaklab
from concurrent.futures import ProcessPoolExecutor

class Box:
    pass

seen = []
def keeps(n):
    seen.append(Box())
    return n

def lets_go(n):
    return len([Box() for _ in range(n % 7)])

def run(function, folder):
    watched = leaklab.watch_calls(function, folder, first_step=20)
    assert watched(3) == function(3)  # here, where it was made, nothing is watched
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        answers = list(pool.map(watched, range(600), chunksize=10))
    assert answers == [function(n) for n in range(600)]

run(keeps, sys.argv[1])
run(lets_go, sys.argv[2])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="its workers are forked")
def test_a_worker_that_keeps_something_says_what_and_who_holds_it(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, "utf-8")
    folders = [str(tmp_path / name) for name in ("keeps", "lets_go")]
    subprocess.run([sys.executable, str(program), *folders], check=True, timeout=120)
    keeping, clean = (leaklab.merge(folder) for folder in folders)
    (worker,) = keeping.record.ranks
    assert worker.label == f"worker process {worker.pid}"
    assert worker.monitor.status.step == 600
    assert worker.monitor.status.holder == "seen"
    assert worker.monitor.status.state.value in {"growing", "leak"}
    (other,) = clean.record.ranks
    assert other.monitor.status.state.value == "steady"


def test_only_what_can_be_called_is_watched(tmp_path):
    with pytest.raises(TypeError, match="needs a function, not int"):
        leaklab.watch_calls(3, tmp_path)
