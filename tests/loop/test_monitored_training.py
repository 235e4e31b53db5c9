"""A monitor around trainings: a loop that keeps its losses, and one that does not.

The first optimizer imports half of torch, and every look at the heap takes half as long again: so they have a process
of their own.
"""

from __future__ import annotations

import pytest
import torch

import leaklab
from leaklab.model.loop import LoopState

pytestmark = pytest.mark.untraced


def train(net, optimizer):
    loss = net(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def made():
    net = torch.nn.Linear(16, 16)
    return net, torch.optim.Adam(net.parameters())


def test_a_list_that_keeps_losses_is_found_with_its_line_and_becomes_a_leak():
    net, optimizer = made()
    history = []
    with leaklab.monitor(total_steps=3_600, first_step=20, quiet=True) as watch:
        for _ in range(3_600):
            history.append(train(net, optimizer))  # this line keeps
            watch.step()
    assert [change.state for change in watch.changes] == [LoopState.GROWING, LoopState.LEAK], watch.changes
    leak = watch.report.leaks[0]
    assert "history" in leak.holder
    assert leak.count_per_run == pytest.approx(1, rel=0.05)
    assert "history.append(train(net, optimizer))" in leak.sites[0]
    assert "# this line keeps" in leak.sites[0] or "keeps it" in leak.sites[0]
    assert watch.changes[0].since_step == 1
    assert watch.report.leaked


def test_a_clean_loop_with_a_window_and_a_validation_is_steady(capsys):
    net, optimizer = made()
    window = []
    with leaklab.monitor("training", first_step=20) as watch:
        for i in range(1_500):
            window = [*window, train(net, optimizer).item()][-50:]
            if i % 100 == 0:
                with torch.no_grad():
                    net(torch.randn(64, 16))
            watch.step()
    assert watch.status.state is LoopState.STEADY
    assert watch.changes == ()
    printed = capsys.readouterr().out
    assert printed.startswith("leaklab monitor training: checking the steps from 20 on")
    assert printed.count("\n") == 1
