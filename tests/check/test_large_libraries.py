"""Programs with an optimizer, the first of which imports half of torch, or with a table of pandas.

Every look at the heap takes half as long again when these are there: so they have a process of their own.
"""

from __future__ import annotations

import types
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import leaklab

pytestmark = pytest.mark.untraced

RANDOM = np.random.default_rng(0)
STATE = types.SimpleNamespace()


def test_a_table_that_is_joined_with_more_is_named_and_not_what_is_inside_of_it():
    STATE.table = pd.DataFrame({"a": RANDOM.random(10), "b": RANDOM.random(10)})

    def step():
        more = pd.DataFrame({"a": RANDOM.random(2000), "b": RANDOM.random(2000)})
        STATE.table = pd.concat([STATE.table, more], ignore_index=True)

    (leak,) = leaklab.leakcheck(step, sites=False).leaks
    assert leak.holder == "STATE.table"
    assert leak.bytes_per_run == pytest.approx(32_000, rel=0.1)
    assert "STATE.table = STATE.table.tail(1000).copy()" in leak.advice


def test_a_table_that_gets_a_little_larger_by_every_run_is_named_with_its_amount():
    STATE.table = pd.DataFrame({"loss": [0.5]})

    def step():
        STATE.table = pd.concat([STATE.table, pd.DataFrame({"loss": RANDOM.random(100)})])

    (leak,) = leaklab.leakcheck(step, sites=False).leaks
    assert (leak.holder, leak.bytes_per_run) == ("STATE.table", pytest.approx(1600, rel=0.05))


def test_groups_and_state_of_an_optimizer_are_one_leak_of_the_groups():
    optimizer = torch.optim.Adam(torch.nn.Linear(8, 8).parameters())

    def add_head():
        head = torch.nn.Linear(8, 2)
        optimizer.add_param_group({"params": list(head.parameters())})
        head(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    report = leaklab.leakcheck(add_head, namespace={"optimizer": optimizer}, sites=False, cure=False, runs=24)
    (leak,) = report.leaks
    assert leak.holders[:2] == ("optimizer.param_groups", "optimizer.state")
    assert leak.what.startswith("torch.nn.parameter.Parameter")
    assert leak.count_per_run == pytest.approx(2)


OPTIMIZER = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1, momentum=0.9)


def trains_another_head():
    head = torch.zeros(2000, requires_grad=True)
    OPTIMIZER.add_param_group({"params": [head]})  # mark: adds a group
    head.sum().backward()
    OPTIMIZER.step()


def test_the_state_of_an_optimizer_is_kept_by_the_line_that_gave_it_the_parameter():
    report = leaklab.leakcheck(trains_another_head, runs=8, cure=False)
    assert report.leaks[0].cause == "optimizer-state"
    lines = Path(__file__).read_text("utf-8").splitlines()
    number = next(n for n, text in enumerate(lines, 1) if text.endswith("# mark: adds a group"))
    assert f"{Path(__file__).name}:{number} in " in report.leaks[0].sites[0]


def test_an_optimizer_asks_for_the_state_of_a_parameter_that_it_has_never_seen(slow):
    """What looks like a limit in its code, ``len(state) == 0``, is asked of the new parameter's own state."""
    held = {"points": torch.nn.Parameter(torch.randn(50, 100))}
    optimizer = torch.optim.Adam([held["points"]])

    def run():
        optimizer.zero_grad()
        held["points"].square().mean().backward()
        optimizer.step()
        held["points"] = torch.nn.Parameter(held["points"].detach()[torch.randperm(50)])
        optimizer.param_groups[0]["params"][0] = held["points"]

    report = leaklab.leakcheck(slow(run), namespace={"held": held, "optimizer": optimizer}, sites=False)
    assert [(leak.holder, leak.count_per_run) for leak in report.leaks] == [("optimizer.state", 1.0)]


class Fit:
    """Keeps the newest steps in an optimizer."""

    def __init__(self, **options: float) -> None:
        self.x = torch.nn.Parameter(torch.randn(3000))
        self.optimizer = torch.optim.LBFGS([self.x], max_iter=1, **options)

    def step(self):
        def closure():
            self.optimizer.zero_grad()
            loss = (self.x.cos() * torch.arange(3000)).sum()
            loss.backward()
            return loss

        self.optimizer.step(closure)


@pytest.mark.parametrize("seconds", [4.0, 0.3, 0.02])
def test_steps_that_fill_a_history_later_are_no_leak(slow, seconds):
    fit = Fit(history_size=20)
    report = leaklab.leakcheck(slow(fit.step, seconds), namespace={"fit": fit}, cure=False)
    assert not report.leaked, report.verdict


@pytest.mark.parametrize("seconds", [0.01, 0.03, 0.3])
def test_a_limit_that_the_code_names_is_a_doubt_as_long_as_the_code_is_watched(slow, seconds):
    fit = Fit(lr=0.1)  # keeps a hundred steps
    report = leaklab.leakcheck(slow(fit.step, seconds), namespace={"fit": fit}, cure=False)
    assert not report.leaked, report.verdict
