"""On a real card, each path once: ``python -m pytest -m cuda -n 0``. Whatever looks at a whole process has its own."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest
import torch

import leaklab
from leaklab.ask.cuda import live_snapshot
from leaklab.measure.gauges import accelerator_bytes, accelerator_levels, free_accelerator_bytes, peak_accelerator_bytes
from leaklab.model import Outcome

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
MIB = 1 << 20
TIMEOUT_SECONDS = 120


def ones(n_mib):
    return torch.ones(n_mib * MIB // 4, device="cuda")


def alone(code, *words):
    """What a process of its own prints that runs *code*."""
    asked = [sys.executable, "-c", textwrap.dedent(code), *map(str, words)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def last_line(printed):
    """What the last line of *printed*, JSON, says."""
    return json.loads(printed.splitlines()[-1])


def test_levels_follow_every_tensor():
    ones(1)  # the first allocation sets up what stays
    before, peak, free = accelerator_bytes(), peak_accelerator_bytes(), free_accelerator_bytes()
    kept = ones(64)
    assert accelerator_bytes() - before == 64 * MIB == torch.cuda.memory_allocated() - before
    assert accelerator_levels() == (torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
    assert peak_accelerator_bytes() >= max(peak, before + 64 * MIB)
    assert free_accelerator_bytes() <= free
    reserved = accelerator_levels()[1]
    del kept
    assert accelerator_bytes() == before
    assert accelerator_levels()[1] == reserved  # torch keeps what it has reserved,
    assert free_accelerator_bytes() == pytest.approx(free, abs=64 * MIB)  # and it is free for the program all the same


def test_reading_levels_initialises_nothing():
    code = """
        import torch
        from leaklab.measure.gauges import accelerator_bytes, accelerator_levels, free_accelerator_bytes
        print(accelerator_levels(), accelerator_bytes(), free_accelerator_bytes(), torch.cuda.is_initialized())
    """
    assert alone(code) == "None 0 0 False\n"


def test_snapshot_of_the_running_process_adds_up():
    kept = [ones(3), ones(30)]
    taken = live_snapshot()
    assert taken.reserved_bytes == torch.cuda.memory_reserved()
    assert taken.active_bytes == torch.cuda.memory_allocated()
    del kept


CHECK = """
    import json, sys
    import torch, leaklab

    history = []

    def leaks():
        history.append(torch.ones(1 << 18, device="cuda"))

    def keeps_losses():  # four bytes, of which torch's allocator has no less than 512
        losses.append(torch.ones((), device="cuda"))

    def concatenates():  # as many tensors as before, one of them larger
        cache["keys"] = torch.cat([cache["keys"], torch.ones(64, 64, device="cuda")])

    def caches():  # sizes that grow until torch's pools have one of each: reserved, not allocated
        global number
        number += 1
        torch.ones((number % 7 + 1) << 18, device="cuda")

    def trains():
        loss = model(torch.ones(64, 256, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    number = 0
    losses = []
    cache = {"keys": torch.ones(64, 64, device="cuda")}
    model = torch.nn.Linear(256, 256, device="cuda")
    optimizer = torch.optim.Adam(model.parameters())
    report = leaklab.leakcheck(globals()[sys.argv[1]], cure=False)
    print(json.dumps({
        "outcome": report.verdict.outcome.value,
        "holders": [leak.holder for leak in report.leaks],
        "bytes": [leak.bytes_per_run for leak in report.leaks],
        "levels": [run.accelerator_bytes for run in report.check.runs],
    }))
"""


def test_leak_on_a_card_is_found_with_its_holder():
    found = last_line(alone(CHECK, "leaks"))
    assert found["outcome"] == "leak"
    assert found["holders"] == ["history"]
    assert found["bytes"] == [pytest.approx(MIB, rel=0.01)]
    assert found["levels"][-1] > found["levels"][0]


@pytest.mark.parametrize(
    ("step", "holder", "n_bytes"), [("keeps_losses", "losses", 512), ("concatenates", "cache['keys']", 16 << 10)]
)
def test_all_that_a_card_loses_has_its_holder(step, holder, n_bytes):
    found = last_line(alone(CHECK, step))
    assert found["holders"] == [holder]
    assert found["bytes"] == [pytest.approx(n_bytes, abs=512)]  # and what C++ keeps of a tensor


@pytest.mark.parametrize("step", ["caches", "trains"])
def test_pools_and_first_steps_are_no_leak(step):
    found = last_line(alone(CHECK, step))
    assert (found["outcome"], found["holders"]) == ("clean", [])


def test_snapshots_of_a_live_leak_are_judged_end_to_end(tmp_path):
    history = []
    model = torch.nn.Linear(256, 256, device="cuda")

    def step():
        loss = model(torch.ones(64, 256, device="cuda")).square().mean()
        loss.backward()
        history.append(ones(1))

    for _ in range(3):
        step()  # gradients, workspaces
    with leaklab.record_cuda(every=5, keep=4, dir=tmp_path) as recorder:
        for _ in recorder.follow(range(20)):
            step()
    comparison = leaklab.compare_cuda_snapshots(recorder.files)
    assert comparison.verdict.outcome is Outcome.LEAK
    assert comparison.verdict.bytes_per_run == MIB
    assert "ones" in comparison.stacks.iloc[0]["stack"]
    history.clear()


def test_path_to_a_tensor_on_a_card():
    held = {"batch": ones(2)}
    alive = leaklab.whyalive(held["batch"])
    assert "cuda:0" in alive.record.what
    assert alive.retained.exclusive_bytes == pytest.approx(2 * MIB, rel=0.001)  # and what C++ keeps of a tensor


MONITOR = """
    import json
    import torch, leaklab

    history = []
    with leaklab.monitor("on a card", total_steps=100_000) as monitor:
        for _ in range(2_000):
            history.append(torch.ones(1 << 12, device="cuda"))
            monitor.step()
    status = monitor.status
    print(json.dumps({
        "state": status.state.value, "holder": status.holder, "bytes": status.accelerator_bytes,
        "allocated": max(monitor.levels.accelerator_bytes), "reserved": max(monitor.levels.reserved_bytes),
    }))
"""


def test_monitor_checks_a_stretch_on_a_card():
    found = last_line(alone(MONITOR))
    assert found["state"] in ("growing", "leak")  # a verdict takes a second stretch, at twice the steps
    assert found["holder"] == "history"
    assert found["bytes"] >= 2_000 * (16 << 10)
    assert found["reserved"] >= found["allocated"] >= 1_000 * (16 << 10)


OUT_OF_MEMORY = """
    import sys
    import torch, leaklab

    watch = leaklab.on_oom(sys.argv[1])
    assert not torch.cuda.is_initialized()
    torch.cuda.set_per_process_memory_fraction((512 << 20) / torch.cuda.get_device_properties(0).total_memory)
    history = []

    def train():
        outputs = torch.ones(8 << 18, device="cuda")
        while True:
            history.append(torch.ones(16 << 18, device="cuda"))

    for _ in range(2):  # the program survives it, twice
        try:
            train()
        except torch.OutOfMemoryError:
            print(watch.file.read_text())
            history.clear()
    train()
"""


def test_allocation_that_fails_is_told_survived_or_not(tmp_path):
    asked = [sys.executable, "-c", textwrap.dedent(OUT_OF_MEMORY), str(tmp_path)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    assert done.returncode == 1
    assert "OutOfMemoryError" in done.stderr
    file = next(tmp_path.glob("*.txt"))
    assert done.stderr.endswith(f"leaklab: the report on who held the memory is in {file}\n")
    first = done.stdout
    assert first.startswith("cuda:0 ran out of memory: an allocation of 16.0 MiB failed with ")
    assert "outputs in train()" in first  # the function was still running
    assert " MiB  history\n" in first
    snapshot = leaklab.load(next(tmp_path.glob("*_cuda.pickle")))
    assert snapshot.active_bytes >= 400 * MIB
    assert " MiB  history\n" in file.read_text("utf-8")


def test_a_trial_in_this_process_leaves_the_random_numbers_of_a_card_as_they_were():
    code = """
        import gc
        from contextlib import contextmanager
        import torch
        from leaklab.cure.keeping import KeptData

        @contextmanager
        def heap():
            yield gc.get_objects()

        torch.cuda.manual_seed(1)
        kept = KeptData({}, (), heap)
        first = torch.rand(4, device="cuda").tolist()
        kept.put_back()
        print(torch.rand(4, device="cuda").tolist() == first)
    """
    assert alone(code) == "True\n"
