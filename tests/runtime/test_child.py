"""A child does a part of the work: it answers, and leaves nothing behind in the process that began it."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from leaklab.runtime.child import RunRequest, begin_child, wait_for, why_no_child

pytestmark = pytest.mark.skipif(bool(why_no_child()), reason=f"no child: {why_no_child()}")
Steps = Generator[Any, tuple[float, str], Any]


def drive(steps: Steps, run_once: Callable[[int], object]) -> Any:
    """Run as often as *steps* wants, as the driver of a check does."""
    try:
        wanted = next(steps)
        while True:
            failure = ""
            try:
                if isinstance(wanted, RunRequest):
                    with wanted.around:
                        pass
                else:
                    run_once(wanted)
            except BaseException as raised:  # noqa: BLE001 - told
                failure = type(raised).__name__
            wanted = steps.send((0.0, failure))
    except StopIteration as stop:
        return stop.value


def runs(n_runs: int, look: Callable[[], Any]) -> Steps:
    failures = []
    for number in range(n_runs):
        _seconds, failure = yield number
        failures.append(failure)
    return look(), failures


def in_children(works: list[Callable[[], Steps]], **limits: float) -> Steps:
    children = []
    for work in works:
        children.append((yield from begin_child(work, **limits)))
    ended_by = yield from wait_for(children, 1)
    return [(child.answer, child.failure) for child in children], ended_by


def test_what_runs_in_a_child_is_told_and_not_done():
    kept: list[int] = []
    random.seed(7)
    state = random.getstate()
    ((answer, failure),), ended_by = drive(
        in_children([partial(runs, 3, lambda: (len(kept), random.random()))]), kept.append
    )
    assert (kept, failure, ended_by) == ([], "", "")
    assert random.getstate() == state
    assert answer == ((3, random.random()), ["", "", ""])  # as this process would draw it


def test_children_work_side_by_side_and_may_tell_much():
    works = [partial(runs, 1, lambda size=size: "x" * size) for size in (10, 3_000_000)]
    answers, _ended_by = drive(in_children(works), lambda _number: None)
    assert [(len(answer[0]), failure) for answer, failure in answers] == [(10, ""), (3_000_000, "")]


def test_an_error_of_a_run_is_told_to_the_one_who_asked_for_it():
    ((answer, _failure),), _ended_by = drive(in_children([partial(runs, 2, lambda: None)]), lambda number: 1 // number)
    assert answer == (None, ["ZeroDivisionError", ""])


@pytest.mark.parametrize(
    ("look", "words"),
    [
        (lambda: 1 // 0, "the copy of the process raised ZeroDivisionError: "),
        (lambda: (_ for _ in ()), "the copy of the process could not send its answer: "),
        (lambda: os.kill(os.getpid(), 9), "the copy of the process died"),
        (lambda: sys.exit(3), "the copy of the process raised SystemExit: 3"),
    ],
)
def test_a_child_without_an_answer_says_why(look, words):
    ((answer, failure),), _ended_by = drive(in_children([partial(runs, 1, look)]), lambda _number: None)
    assert answer is None
    assert failure.startswith(words)


def test_what_does_not_end_is_ended_with_all_that_it_started(tmp_path):
    told = tmp_path / "pid"

    def start_and_hang(_number: int) -> None:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        told.write_text(str(process.pid), "utf-8")
        time.sleep(600)

    ((answer, failure),), _ended_by = drive(in_children([partial(runs, 1, lambda: 1)], seconds=2.0), start_and_hang)
    assert (answer, failure) == (None, "the copy of the process had not ended after 2 s")
    state = Path(f"/proc/{told.read_text('utf-8')}/stat")
    assert not state.exists() or state.read_text("utf-8").rpartition(")")[2].split()[0] == "Z"


def test_what_waits_for_ever_is_ended_and_what_another_process_computes_is_waited_for():
    def compute_elsewhere(_number: int) -> None:
        subprocess.run([sys.executable, "-c", "while __import__('time').process_time() < 4: pass"], check=True)

    works = [partial(runs, 1, lambda: 1)]
    ((_, failure),), _ended_by = drive(in_children(works, idle_seconds=2.0), lambda _number: threading.Event().wait())
    assert failure == "the copy of the process hung"
    ((answer, failure),), _ended_by = drive(in_children(works, idle_seconds=3.0), compute_elsewhere)
    assert (answer, failure) == ((1, [""]), "")


def test_an_interrupt_of_the_wait_ends_the_children(monkeypatch):
    def interrupted(*_args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("leaklab.runtime.child.select.select", interrupted)
    answers, ended_by = drive(in_children([partial(runs, 1, lambda: time.sleep(600))]), lambda _number: None)
    assert (answers, ended_by) == ([(None, "the copy of the process was ended")], "KeyboardInterrupt")


def test_files_that_are_open_for_writing_are_the_parents_own(tmp_path, capfd):
    path = tmp_path / "log"
    handler = logging.FileHandler(path)
    logger = logging.getLogger("test of a child")
    logger.addHandler(handler)
    with (tmp_path / "pending").open("w", encoding="utf-8") as pending:
        pending.write("once")

        def write(_number: int) -> None:
            logger.warning("from the child")
            sys.stdout.write("from the child")
            pending.write(", and in the child")
            pending.flush()

        logger.warning("before")
        drive(in_children([partial(runs, 1, lambda: None)]), write)
        logger.warning("after")
    logger.removeHandler(handler)
    handler.close()
    assert path.read_text("utf-8") == "before\nafter\n"
    assert (tmp_path / "pending").read_text("utf-8") == "once"
    assert "from the child" not in "".join(capfd.readouterr())


def test_children_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("LEAKLAB_CHILDREN", "0")
    assert why_no_child() == "child processes are switched off"
