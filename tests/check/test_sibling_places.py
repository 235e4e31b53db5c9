"""Attributes of one library object that one call fills together are one leak; those of the user's own are not."""

from __future__ import annotations

import pytest
import torch

import leaklab

pytestmark = pytest.mark.untraced


def check(cell, **namespace):
    return leaklab.leakcheck(cell, namespace=namespace, sites=False, cure=False, runs=24)


def test_groups_and_state_of_an_optimizer_are_one_leak_of_the_groups():
    optimizer = torch.optim.Adam(torch.nn.Linear(8, 8).parameters())

    def add_head():
        head = torch.nn.Linear(8, 2)
        optimizer.add_param_group({"params": list(head.parameters())})
        head(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    (leak,) = check(add_head, optimizer=optimizer).leaks
    assert leak.holders[:2] == ("optimizer.param_groups", "optimizer.state")
    assert leak.what.startswith("torch.nn.parameter.Parameter")
    assert leak.count_per_run == pytest.approx(2)


class Trainer:
    """A class of the user's with two lists."""

    def __init__(self):
        self.losses, self.records = [], []


def test_two_lists_of_the_users_own_are_two_leaks():
    trainer = Trainer()

    def step():
        tensors = [torch.ones(100) for _ in range(3)]
        trainer.losses.append({"tensors": tensors})
        trainer.records.append({"tensors": tensors, "more": torch.ones(400)})

    leaks = check(step, trainer=trainer).leaks
    assert {leak.holder for leak in leaks} == {"trainer.losses", "trainer.records"}
