"""A process that runs out of memory leaves a report: on the host, on a device, at the limit of its container."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import torch

import leaklab
from leaklab.measure.gauges import MemoryLimit
from leaklab.process import last_moments, out_of_memory
from leaklab.process.last_moments import LimitThread, is_out_of_memory

TIMEOUT_SECONDS = 100
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is held to on Linux")

DYING = """
import resource, sys, threading
import torch, leaklab

def train(history):
    outputs = []
    while True:
        outputs.append(torch.ones(1 << 16))
        history.append({"loss": torch.ones(1 << 19)})

history = []
watch = leaklab.on_oom(sys.argv[1])
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (200 << 20),) * 2)
"""


def die(folder, code):
    """What a process that runs out of memory leaves: its exit status, stderr, text and page."""
    asked = [sys.executable, "-c", DYING + textwrap.dedent(code), str(folder)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    texts, pages = (list(folder.glob(f"*.{suffix}")) for suffix in ("txt", "html"))
    assert len(texts) == len(pages) == 1, done.stderr
    return done, texts[0], pages[0].read_text("utf-8")


@linux_only
def test_death_under_a_limit_leaves_a_readable_report(tmp_path):
    done, file, page = die(tmp_path, "train(history)")
    text = file.read_text("utf-8")
    assert done.returncode == 1
    assert "DefaultCPUAllocator: can't allocate memory" in done.stderr  # the program's own traceback, and after it:
    assert done.stderr.endswith(f"leaklab: the report on who held the memory is in {file}\n")
    assert text.startswith("the program ran out of memory: RuntimeError: ")
    rows = text.partition("Largest tensors and arrays by holder")[2].splitlines()
    assert rows[1].split()[-1] == "history"
    assert "the largest 2.00 MiB: torch.Tensor (524288,) float32 cpu" in rows[2]
    assert "outputs in train()" in text  # a variable of a function that the error had ended by then
    assert re.search(r"<string>:\d+ in train$", text, re.MULTILINE)
    assert "history" in page
    assert "<html" in page


@linux_only
def test_death_of_a_thread_leaves_one_too(tmp_path):
    code = "thread = threading.Thread(target=train, args=(history,)); thread.start(); thread.join(); watch.stop()"
    done, file, _page = die(tmp_path, code)
    assert done.returncode == 0
    assert "the report on who held the memory is in" in done.stderr
    assert "\n             from module variable: history  [0]  ['loss']\n" in file.read_text("utf-8")


@linux_only
def test_last_words_of_a_monitor_whose_block_the_error_has_ended_are_in_the_report(tmp_path):
    code = """
    class Trainer: outputs = []
    def watched():
        with leaklab.monitor(quiet=True) as loop:
            for step in range(10**9):
                Trainer.outputs.append(torch.ones(1 << 13))  # until there is not even room for a buffer to read with
                loop.step()
    watched()
    """
    text = die(tmp_path, code)[1].read_text("utf-8")
    assert re.search(r"the monitor at step [\d,]+: `Trainer.outputs` grows by 1 tensor", text)
    limit = re.search(r"limit of the address space \(ulimit -v\) +(\S+ \S+) of (\S+ \S+)", text)
    assert limit
    assert limit[1].endswith(("MiB", "GiB"))
    assert "0 B of" not in text


GROUPS = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
"""Version 1 has a tree of its own for memory."""
KILLED = """
import os, sys
with open(sys.argv[2] + "/cgroup.procs", "w") as group:
    group.write(str(os.getpid()))
import torch, leaklab

def train(history):
    while True:
        history.append(torch.ones(1 << 19))

history = []
watch = leaklab.on_oom(sys.argv[1])
train(history)
"""


@pytest.fixture
def small_group():
    """A control group of 900 MiB; skips where none can be made."""
    for mount, name in zip(GROUPS, ("memory.limit_in_bytes", "memory.max"), strict=True):
        group = mount / f"leaklab_test_{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / name).exists():
                (group / name).write_text(str(900 << 20))
                yield group
                return
        finally:
            group.rmdir()
    pytest.skip("no control group can be made here")


def test_process_that_the_kernel_kills_has_left_a_report(small_group, tmp_path):
    asked = [sys.executable, "-c", KILLED, str(tmp_path), str(small_group)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    assert done.returncode == -signal.SIGKILL, done.stderr
    text = next(tmp_path.glob("*.txt")).read_text("utf-8")
    assert text.startswith("the limit of the container is nearly reached: ")
    assert " MiB  history\n" in text or "the process died before its objects could be read" in text


class Told(list):
    """What was told that memory ran out, in order."""

    def make_room(self):
        self.append("make room")

    def on_error(self, error):
        self.append(type(error).__name__)

    def on_device(self, *numbers):
        self.append(numbers)

    def on_limit(self, limit, used):
        self.append(used)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
            True,
        ),
        (RuntimeError("std::bad_alloc"), True),  # of C++, where a small allocation has failed
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."), True),  # on Windows
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)"), True),
        (OSError(12, "Cannot allocate memory"), True),
        (OSError(2, "No such file"), False),
        (RuntimeError("shape mismatch"), False),
        (ValueError("out of memory"), False),
        (KeyboardInterrupt(), False),
        (None, False),
    ],
    ids=repr,
)
def test_errors_that_say_that_memory_ran_out(error, expected):
    assert is_out_of_memory(error) is expected


def test_error_raised_from_one_of_memory_counts():
    """Frameworks wrap what they catch."""
    wrapping = ValueError("training failed")
    wrapping.__cause__ = MemoryError()
    assert is_out_of_memory(wrapping)


def test_own_text_of_an_error_is_never_asked_for():
    class HostileError(RuntimeError):
        def __str__(self):
            raise AssertionError

        __repr__ = __getattribute__ = __str__

    assert not is_out_of_memory(HostileError("x"))


def test_hooks_hand_on_and_are_brought_back(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "excepthook", lambda *_: seen.append("program"))
    monkeypatch.setattr(threading, "excepthook", lambda _: seen.append("thread"))
    before = sys.excepthook, threading.excepthook
    told = Told()
    hooks = last_moments.ErrorHooks(told)
    sys.excepthook(ValueError, ValueError("x"), None)
    sys.excepthook(MemoryError, MemoryError(), None)
    thread = threading.Thread(target=list.__getitem__, args=([], 0))
    thread.start()
    thread.join()
    assert seen == ["program", "program", "thread"]
    assert told == ["make room", "MemoryError"]  # room before the program's own traceback is printed
    hooks.remove()
    assert (sys.excepthook, threading.excepthook) == before


def test_hook_over_which_another_was_put_stays_and_hands_on(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "excepthook", lambda *_: seen.append("first"))
    told = Told()
    hooks = last_moments.ErrorHooks(told)
    ours = sys.excepthook
    monkeypatch.setattr(sys, "excepthook", functools.partial(ours))
    theirs = sys.excepthook
    hooks.remove()
    assert sys.excepthook is theirs
    sys.excepthook(MemoryError, MemoryError(), None)
    assert (seen, told) == (["first"], [])


def end_by(error):
    """Do what the interpreter does with an error that nobody caught."""
    sys.excepthook(type(error), error, error.__traceback__)


@pytest.fixture
def card(device, monkeypatch):
    """A played card whose allocations fail by `fail`; torch calls the observer before the error is raised."""
    observers, waiting = [], []
    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", observers.append, raising=False)
    monkeypatch.setattr(torch.cuda, "_lazy_call", waiting.append)
    monkeypatch.setattr(last_moments, "_attached", [])

    def fail():
        for observe in observers:
            observe(0, 1 << 30, 80 << 30, 1 << 20)

    device.observers, device.waiting, device.fail = observers, waiting, fail
    return device


def test_observer_is_attached_once_when_cuda_is_first_used(card, tmp_path):
    """At once it would initialise CUDA; torch has no call that detaches it."""
    with leaklab.on_oom(tmp_path / "a"), leaklab.on_oom(tmp_path / "b"):
        assert (len(card.waiting), card.observers) == (1, [])
        card.waiting[0]()
        card.fail()
    assert all(len(list((tmp_path / name).glob("*.txt"))) == 1 for name in "ab")
    card.fail()  # the observer stays, and nobody listens


def test_allocation_that_fails_on_a_card_is_told_with_its_snapshot(card, tmp_path):
    held = [torch.ones(1 << 18)]
    with leaklab.on_oom(tmp_path) as watch:
        card.waiting[0]()
        card.fail()
    text = watch.file.read_text("utf-8")
    words = "cuda:0 ran out of memory: an allocation of 1.00 GiB failed with 1.00 MiB of 80.0 GiB free"
    assert text.startswith(words)
    assert " held in test_allocation_that_fails_on_a_card_is_told_with_its_snapshot()" in text
    assert "in test_allocation_that_fails_on_a_card_is_told_with_its_snapshot: card.fail()" in " ".join(text.split())
    name = next(line.strip() for line in text.splitlines() if line.endswith("_cuda.pickle"))
    assert leaklab.load(tmp_path / name).record is not None
    del held


def test_last_of_many_failed_allocations_is_told_and_few_are_looked_into(card, tmp_path):
    """Programs try batch sizes until one fits: looking at the heap each time would cost more than the program."""
    with leaklab.on_oom(tmp_path) as watch:
        card.waiting[0]()
        card.fail()
        first = watch.file.read_text("utf-8")
        began = time.perf_counter()
        for _ in range(20):
            card.fail()
        assert time.perf_counter() - began < 10
        last = watch.file.read_text("utf-8")
        assert "Largest tensors and arrays by holder" in first
        assert "Largest tensors and arrays by holder" not in last
        assert "the objects were reported a moment ago" in last
        assert len(list(tmp_path.iterdir())) == 3
        end_by(torch.OutOfMemoryError("CUDA out of memory"))  # nobody survived it: now there is time
        assert "Largest tensors and arrays by holder" in watch.file.read_text("utf-8")


def test_error_that_the_observer_has_told_is_not_told_again(card, tmp_path, capsys):
    with leaklab.on_oom(tmp_path) as watch:
        card.waiting[0]()
        card.fail()
        end_by(torch.OutOfMemoryError("CUDA out of memory"))
    assert watch.file.read_text("utf-8").startswith("cuda:0 ran out of memory")
    assert capsys.readouterr().err == (
        f"torch.OutOfMemoryError: CUDA out of memory\nleaklab: the report on who held the memory is in {watch.file}\n"
    )


def test_snapshot_that_would_be_too_large_is_a_note(card, tmp_path, monkeypatch):
    monkeypatch.setattr("leaklab.process.stock._MOST_SNAPSHOT_BYTES", 100)
    with leaklab.on_oom(tmp_path) as watch:
        card.waiting[0]()
        card.fail()
    assert "there is no snapshot of the accelerator: it would be larger than" in watch.file.read_text("utf-8")
    assert not list(tmp_path.glob("*.pickle"))


def test_limit_of_the_container_is_told_once_for_each_crossing(monkeypatch):
    monkeypatch.setattr(last_moments, "_SHORTEST_PAUSE", 0.001)
    monkeypatch.setattr(last_moments, "_LONGEST_PAUSE", 0.001)
    uses = iter([100, 840, 950, 960, 890, 960, 700, 990, 995, None])

    class Played:
        n_bytes = 1000

        def used_bytes(self):
            return next(uses)

    told = Told()
    thread = LimitThread(told, Played(), 0.9)
    thread.start()
    thread.join(TIMEOUT_SECONDS)
    assert not thread.is_alive()  # the group is gone
    assert told == [950, 990]  # a level that moves around the limit is told once


def test_main_thread_stands_still_while_another_has_work_done_in_it():
    told = []

    def work():
        told.append(threading.current_thread() is threading.main_thread())

    thread = threading.Thread(target=last_moments.in_main_thread, args=(work, 60))
    thread.start()
    while thread.is_alive():
        sum(range(1000))
    assert told == [True]
    thread = threading.Timer(0.1, last_moments.in_main_thread, args=(work, 0.01))
    thread.start()
    time.sleep(1)  # in C code
    assert told == [True, False]
    sum(range(1000))
    assert told == [True, False]  # not a second time when it comes back


def test_report_at_the_limit_of_the_container(tmp_path, monkeypatch, capsys):
    (tmp_path / "stat").write_text("anon 5\n")
    (tmp_path / "current").write_text(f"{95 << 20}\n")
    limit = MemoryLimit(100 << 20, "limit of the container", tmp_path / "current", tmp_path / "stat", ())
    monkeypatch.setattr(last_moments, "memory_limit", lambda: limit)
    with leaklab.on_oom(tmp_path / "reports") as watch:
        until = time.monotonic() + 30
        while "who held the memory is in" not in capsys.readouterr().err:
            assert time.monotonic() < until
            time.sleep(0.02)
    text = watch.file.read_text("utf-8")
    assert text.startswith("the limit of the container is nearly reached: 95.0 MiB of 100 MiB are used; beyond it, the")
    assert "in test_report_at_the_limit_of_the_container" in text  # where the main thread was


def test_cell_that_runs_out_of_memory_leaves_a_report(notebook, tmp_path, capsys):
    notebook.user["folder"] = tmp_path
    notebook.run("import leaklab, torch\nwatch = leaklab.on_oom(folder)")
    notebook.run("def train():\n    kept = [torch.ones(1 << 18)]\n    raise MemoryError('no room')")
    typed = notebook.run("train()")
    text = notebook.user["watch"].file.read_text("utf-8")
    assert "leaklab: the report on who held the memory is in" in typed.err
    assert "kept in train()" in text
    assert "the program ran out of memory: MemoryError: no room" in text
    notebook.run("watch.stop()")
    notebook.forget_error()


def test_files_of_a_folder_stay_few(tmp_path):
    for number in range(5):
        for suffix in (".txt", ".html", "_cuda.pickle"):
            (tmp_path / f"out_of_memory_2026010{number}T000000_77{suffix}").write_text("older")
    (tmp_path / "notes.txt").write_text("the user's")
    with pytest.raises(MemoryError), leaklab.on_oom(tmp_path, keep=2) as watch:
        raise MemoryError
    left = {file.name for file in tmp_path.iterdir()}
    kept = {f"out_of_memory_20260104T000000_77{suffix}" for suffix in (".txt", ".html", "_cuda.pickle")}
    assert left == kept | {"notes.txt", watch.file.name, watch.file.with_suffix(".html").name}


def test_watch_says_how_it_stands(tmp_path):
    watch = leaklab.on_oom(tmp_path)
    assert repr(watch).endswith(": waiting>")
    watch.stop()
    watch.stop()
    assert repr(watch).endswith(": stopped>")
    assert not list(tmp_path.iterdir())


def test_error_of_another_kind_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), leaklab.on_oom(tmp_path):
        _ = 1 / 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [{"share": 0}, {"share": 1}, {"keep": 0}, {"reserve_bytes": -1}], ids=repr)
def test_numbers_that_make_no_sense_are_refused(wrong, tmp_path):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        leaklab.on_oom(tmp_path, **wrong)


@pytest.mark.untraced
def test_nothing_of_the_program_is_held_afterwards(tmp_path):
    import gc
    import weakref

    class Kept:
        pass

    def dies():
        local = Kept()
        seen.append(weakref.ref(local))
        raise MemoryError

    seen = []
    watch = leaklab.on_oom(tmp_path)
    try:
        dies()
    except MemoryError as error:
        end_by(error)
    watch.stop()
    gc.collect()
    assert seen[0]() is None
    assert out_of_memory.OutOfMemoryWatch is type(watch)


def test_own_thread_is_no_thread_of_the_program(tmp_path):
    from leaklab.heap.running import other_threads

    limit = MemoryLimit(1 << 60, "limit of the container", tmp_path / "current", tmp_path / "stat", ())
    limit.usage.write_text("0")
    limit.statistics.write_text("anon 0\n")
    thread = LimitThread(Told(), limit, 0.9)
    thread.start()
    try:
        assert thread.name not in other_threads().values()
    finally:
        thread.stop()
        thread.join()
