"""Send every public function over a heap of unfinished objects: a program, because the process may die of it."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from half_built_heap import KINDS, half_built_heap

import leaklab
from leaklab.explorer.session import Session

HEAP: dict[str, list[object]] = {}
DICE = random.Random()
LOSSES: list[torch.Tensor] = []


def check() -> None:
    """Check a cell that makes some of it anew and keeps some, in every run."""

    def keep_some() -> None:
        for make in (KINDS["tables"], KINDS["weak_tables"], KINDS["parsers"], KINDS["arrays"]):
            list(make())
        HEAP["kept"].append([next(KINDS["sequences"]()), *KINDS["frames"](), *KINDS["walks"]()])

    HEAP["kept"] = []
    report = leaklab.leakcheck(keep_some, runs=8, namespace=globals())
    assert report.leaked, report.verdict
    report.to_html()
    HEAP["kept"] = []


def take_snapshots() -> None:
    """Moments with and without references, saved, read and compared."""
    with tempfile.TemporaryDirectory() as folder:
        first = leaklab.snapshot("first")
        HEAP["later"] = list(KINDS["sequences"]())
        str(leaklab.diff(first))
        file = Path(folder) / "half.heap"
        leaklab.snapshot(references=True).save(file)
        saved: Any = leaklab.load(file)
        str(saved), saved.to_html()
        str(saved.find("list", limit=5))
        del HEAP["later"]


def ask_for_some() -> None:
    """Why some are alive, and what those that carry a graph keep."""
    for kind in DICE.sample(list(KINDS), 3):
        # An object of which the interpreter has one for all code, as the empty frozenset, is refused as such.
        with contextlib.suppress(leaklab.LeaklabError, TypeError):
            leaklab.whyalive(DICE.choice(HEAP[kind]), namespace=globals()).to_html()
    str(leaklab.autograd(HEAP["tensors"], name="tensors", namespace=globals()))


def find() -> None:
    """Objects of a type."""
    str(leaklab.find("list", "bytes > 8", namespace=globals()))
    str(leaklab.find("torch.*", namespace=globals()))


def watch() -> None:
    """A stretch of a loop, a run that is watched, a monitor."""
    with leaklab.watch(quiet=True):
        HEAP["more"] = list(KINDS["tables"]())
    with leaklab.training_run("half", show=False), leaklab.monitor("half", first_step=4, quiet=True) as monitor:
        for _ in range(40):
            LOSSES.append(torch.ones(2, requires_grad=True).sum())
            monitor.step()
    str(monitor.report)
    LOSSES.clear()
    del HEAP["more"]


def explore() -> None:
    """What the explorer's page asks for."""
    session = Session(None, None, globals())
    session.data()
    moment = session.answer("memory", {})["memory"]["moment"]
    for kind in ("list", "tuple", "torch.*"):
        numbers = session.answer("search", {"kind": kind, "where": "bytes > 60"})["found"]["numbers"]
        for number in DICE.sample(numbers, min(4, len(numbers))):
            for question in ("inspect", "values", "look"):
                with contextlib.suppress(leaklab.LeaklabError):
                    session.answer(question, {"target": f"object {moment} {number}"})
    session.close()


def answer_and_end() -> None:
    """A signal that asks for a report; running out of memory."""
    with tempfile.TemporaryDirectory() as folder:
        listener = leaklab.listen(signal.SIGUSR1, folder)
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.01)
        assert listener.file is not None
        listener.stop()
        watch = leaklab.on_oom(folder)
        sys.excepthook(MemoryError, MemoryError(), None)
        assert watch.file is not None
        watch.stop()
    with contextlib.suppress(leaklab.LeaklabError):
        leaklab.cut_cycles()


QUESTIONS: tuple[Callable[[], None], ...] = (check, take_snapshots, ask_for_some, find, watch, explore, answer_and_end)


def ask_everything(times: int, seed: int) -> None:
    """Ask all questions so often, of a heap that is new each time."""
    for turn in range(times):
        DICE.seed(seed + turn)
        HEAP.update(half_built_heap())
        for ask in QUESTIONS:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                ask()
        HEAP.clear()
        gc.collect()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    ask_everything(*map(int, sys.argv[1:]))
    sys.stdout.write("asked everything\n")
