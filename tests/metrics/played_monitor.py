"""A monitor whose state is set by hand, and the programs of Prometheus."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace

import pytest

from leaklab.model.loop import LoopState, MonitorStatus, StateChange

MIB = 2**20
LEAKING = MonitorStatus(
    name="train",
    step=1_200,
    seconds=60.0,
    state=LoopState.LEAK,
    is_alarm=True,
    n_checks=2,
    bytes_per_step=4.0 * MIB,
    kept_bytes=800.0 * MIB,
    n_survivors=25,
    n_tensors=1_300,
    full_at_step=9_000,
    total_steps=10_000,
    heap_bytes=900 * MIB,
    rss_bytes=1_000 * MIB,
    own_seconds=1.5,
    longest_seconds=0.4,
    holder="history",
)
CLEAN = replace(
    LEAKING, state=LoopState.STEADY, is_alarm=False, bytes_per_step=0.0, kept_bytes=0.0, full_at_step=None, holder=""
)


class PlayedReport:
    def __str__(self):
        return "verdict: leak\nhistory keeps _one_ tensor"

    def to_html(self):
        return "<!DOCTYPE html><p>history keeps one tensor</p>"


class PlayedMonitor:
    """What the metrics see of a monitor."""

    def __init__(self, status=LEAKING, changes=()):
        self.status = status
        self.changes = tuple(changes)
        self.report = PlayedReport()
        self.on_change = None

    def come_to(self, state, step, words, **more):
        change = StateChange(step, state, words, step, **more)
        self.changes += (change,)
        self.status = replace(self.status, state=state, step=step)
        if self.on_change is not None:
            self.on_change(change)


def promtool(*arguments, text=None):
    """Return what promtool answered."""
    program = required("promtool")
    return subprocess.run([program, *arguments], input=text, capture_output=True, text=True, check=False)


def required(name):
    """Return the path of a program of Prometheus; skip without it, or fail where it is required."""
    program = shutil.which(name)
    if program is None:
        what = f"{name} is not installed: apt-get install prometheus"
        if os.environ.get("LEAKLAB_REQUIRE_PROMETHEUS"):
            pytest.fail(what)
        pytest.skip(what)
    return program
