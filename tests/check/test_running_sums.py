"""Tensors that each run adds to with its graph: every one of them is named, and what is computed from them is not."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import leaklab

pytestmark = pytest.mark.untraced

NET, BATCH = nn.Sequential(nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 1)), torch.ones(8, 20)
HEADS = nn.Sequential(nn.Linear(20, 20), nn.Linear(20, 20), nn.Linear(20, 1))


def loss_of(network: nn.Module = NET) -> torch.Tensor:
    loss = network(BATCH).square().mean()
    loss.backward()
    return loss


def two_in_a_dict(kept: SimpleNamespace) -> None:
    kept.sums = getattr(kept, "sums", None) or {"squares": 0.0, "sizes": 0.0}
    loss = loss_of()
    kept.sums["squares"] += loss
    kept.sums["sizes"] += NET(BATCH).abs().mean()


def three_in_a_list(kept: SimpleNamespace) -> None:
    kept.sums = getattr(kept, "sums", None) or [torch.zeros(()) for _ in HEADS]
    for number, head in enumerate(HEADS):
        kept.sums[number] = kept.sums[number] + loss_of(head)


def a_sum_and_a_moving_mean(kept: SimpleNamespace) -> None:
    loss = loss_of()
    kept.total = getattr(kept, "total", 0.0) + loss
    kept.moving = 0.9 * getattr(kept, "moving", loss) + 0.1 * loss


def of_two_networks(kept: SimpleNamespace) -> None:
    kept.first = getattr(kept, "first", 0.0) + loss_of(HEADS[0])
    kept.second = getattr(kept, "second", 0.0) + loss_of(HEADS[1])


def means_of_parameters(kept: SimpleNamespace) -> None:
    loss_of(HEADS)
    kept.means = getattr(kept, "means", None) or {name: one.detach().clone() for name, one in HEADS.named_parameters()}
    for name, parameter in HEADS.named_parameters():
        kept.means[name] = 0.9 * kept.means[name] + 0.1 * parameter


def a_sum_and_its_mean(kept: SimpleNamespace) -> None:
    kept.total = getattr(kept, "total", 0.0) + loss_of()
    kept.mean = kept.total / 7


def one_that_is_cut_and_one_that_is_not(kept: SimpleNamespace) -> None:
    kept.total = getattr(kept, "total", 0.0) + loss_of()
    kept.cut = (getattr(kept, "cut", torch.zeros(())) + loss_of(HEADS[2])).detach()


def both_are_cut(kept: SimpleNamespace) -> None:
    kept.total = getattr(kept, "total", 0.0) + loss_of().item()
    kept.cut = (getattr(kept, "cut", torch.zeros(())) + loss_of(HEADS[2])).detach()


def new_sums_in_each_run(kept: SimpleNamespace) -> None:
    kept.sums = [torch.zeros(()) for _ in HEADS]
    for _ in range(4):
        for number, head in enumerate(HEADS):
            kept.sums[number] = kept.sums[number] + loss_of(head)


@pytest.mark.parametrize(
    ("run", "holders"),
    [
        (two_in_a_dict, {"kept.sums['squares']", "kept.sums['sizes']"}),
        (three_in_a_list, {"kept.sums[0]", "kept.sums[1]", "kept.sums[2]"}),
        (a_sum_and_a_moving_mean, {"kept.total", "kept.moving"}),
        (of_two_networks, {"kept.first", "kept.second"}),
        (a_sum_and_its_mean, {"kept.total"}),
        (one_that_is_cut_and_one_that_is_not, {"kept.total"}),
        (both_are_cut, set()),
        (new_sums_in_each_run, set()),
    ],
)
@pytest.mark.parametrize("runs", [12, None])
def test_every_graph_that_gets_longer_is_named(run: Callable[[SimpleNamespace], None], holders: set[str], runs):
    kept = SimpleNamespace()
    report = leaklab.leakcheck(lambda: run(kept), namespace={"kept": kept}, runs=runs, sites=False, cure=False)
    assert {leak.holder for leak in report.leaks} == holders, str(report)
    assert report.leaked is bool(holders)
    assert {leak.cause for leak in report.leaks} <= {"graph-kept"}


@pytest.mark.parametrize("runs", [12, None])
def test_one_graph_speaks_for_those_of_all_parameters(runs):
    kept = SimpleNamespace()
    report = leaklab.leakcheck(
        lambda: means_of_parameters(kept), namespace={"kept": kept}, runs=runs, sites=False, cure=False
    )
    (leak,) = report.leaks
    assert leak.holder.startswith("kept.means['")
    assert leak.n_places == 6
    assert leak.count_per_run == pytest.approx(6 * 3, rel=0.2), "two products and a sum for each parameter"


def test_the_nodes_of_several_graphs_add_up_to_what_was_counted():
    kept = SimpleNamespace()
    report = leaklab.leakcheck(
        lambda: three_in_a_list(kept), namespace={"kept": kept}, runs=24, sites=False, cure=False
    )
    one = loss_of(HEADS[0])
    n_nodes = 0
    todo, seen = [one.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            n_nodes += type(node).__name__ != "AccumulateGrad"
            todo += [following for following, _place in node.next_functions]
    assert [leak.count_per_run for leak in report.leaks] == pytest.approx([n_nodes + 1] * 3, rel=0.2)


WINDOW = 16
"""So many runs go by before a backward pass goes through all of them."""


def gradients_of_many_runs(kept: SimpleNamespace) -> None:
    kept.n_runs = getattr(kept, "n_runs", 0) + 1
    kept.total = getattr(kept, "total", 0.0) + NET(BATCH).square().mean()
    if kept.n_runs % WINDOW == 0:
        kept.total.backward()
        kept.total = 0.0


def several_of_many_runs(kept: SimpleNamespace) -> None:
    kept.n_runs = getattr(kept, "n_runs", 0) + 1
    kept.sums = getattr(kept, "sums", None) or [torch.zeros(()) for _ in HEADS]
    for number in range(len(kept.sums)):
        kept.sums[number] = kept.sums[number] + HEADS[:2](BATCH).square().mean()
    if kept.n_runs % WINDOW == 0:
        sum(kept.sums).backward()
        kept.sums = [torch.zeros(()) for _ in HEADS]


def state_that_is_cut_now_and_then(kept: SimpleNamespace) -> None:
    kept.n_runs = getattr(kept, "n_runs", 0) + 1
    kept.state = torch.tanh(HEADS[0](getattr(kept, "state", BATCH)))
    if kept.n_runs % WINDOW == 0:
        kept.state.sum().backward()
        kept.state = kept.state.detach()


def state_that_is_cut_in_place(kept: SimpleNamespace) -> None:
    kept.n_runs = getattr(kept, "n_runs", 0) + 1
    kept.state = torch.tanh(HEADS[1](getattr(kept, "state", BATCH)))
    if kept.n_runs % WINDOW == 0:
        kept.state.detach_()


@pytest.mark.parametrize(
    "run",
    [gradients_of_many_runs, several_of_many_runs, state_that_is_cut_now_and_then, state_that_is_cut_in_place],
)
@pytest.mark.parametrize("runs", [6, 12, None])
def test_a_graph_over_more_runs_than_were_made_is_not_called_a_leak(run: Callable[[SimpleNamespace], None], runs):
    kept = SimpleNamespace()
    report = leaklab.leakcheck(lambda: run(kept), namespace={"kept": kept}, runs=runs, sites=False, cure=False)
    assert not report.leaked, str(report)
    if runs == 12:
        assert "has not run yet" in str(report.verdict)


def state_carried_through_steps(kept: SimpleNamespace) -> None:
    for _ in range(60):
        kept.state = torch.tanh(DEEP(getattr(kept, "state", BATCH)))


def mean_of_all_steps(kept: SimpleNamespace) -> None:
    for _ in range(60):
        kept.total = getattr(kept, "total", 0.0) + DEEP(BATCH).square().mean()
        kept.mean = kept.total / 60


DEEP = nn.Sequential(*(nn.Linear(20, 20) for _ in range(12)))


@pytest.mark.parametrize(
    ("run", "holder", "per_step"),
    # a product and a transposed weight for each layer of the 12, and what the step itself computes
    [(state_carried_through_steps, "kept.state", 25), (mean_of_all_steps, "kept.total", 27)],
)
@pytest.mark.parametrize("seconds", [0, 0.15])
def test_a_graph_of_more_nodes_than_may_be_read_is_held_by_what_gets_longer(
    run: Callable[[SimpleNamespace], None], holder: str, per_step: int, seconds: float
) -> None:
    kept = SimpleNamespace()
    report = leaklab.leakcheck(
        lambda: (run(kept), time.sleep(seconds)), namespace={"kept": kept}, runs=24, sites=False, cure=False
    )
    assert [leak.holder for leak in report.leaks] == [holder], str(report)
    (leak,) = report.leaks
    if leak.unit == "objects":  # the check ended while the tensors in the graph could all be read
        assert leak.count_per_run == 60 * 12
        return
    assert leak.unit == "graph nodes"
    assert leak.count_per_run == pytest.approx(60 * per_step, rel=0.01)
    assert "too many to be counted" in leak.reason


@pytest.mark.parametrize("seconds", [0, 0.15])
def test_a_graph_that_was_too_large_before_the_check_is_found_by_its_newest_nodes(seconds: float) -> None:
    """Of slow runs something is told early: each look at the graph leaves less of it to be read by the next."""
    kept = SimpleNamespace()
    for _ in range(10):
        state_carried_through_steps(kept)
    report = leaklab.leakcheck(
        lambda: (state_carried_through_steps(kept), time.sleep(seconds)),
        namespace={"kept": kept},
        runs=24,
        sites=False,
        cure=False,
    )
    assert [(leak.holder, leak.unit) for leak in report.leaks] == [("kept.state", "graph nodes")], str(report)
    assert "from the start" in report.leaks[0].reason


def test_exceptions_that_keep_more_of_a_graph_than_can_be_read_are_one_leak_with_its_memory():
    errors: list[BaseException] = []

    def run() -> None:
        value = torch.ones(1, requires_grad=True)
        for _ in range(2_500):
            value = value * 1.0
        try:
            int("no number")
        except ValueError as error:
            errors.append(error)

    report = leaklab.leakcheck(run, runs=24, namespace={"errors": errors}, sites=False, cure=False)
    (leak,) = report.leaks
    assert (leak.holder, leak.cause, leak.also_causes) == ("errors", "traceback-kept", ("graph-kept",))
    rise = [run.heap_bytes for run in report.check.runs]
    assert leak.bytes_per_run == pytest.approx((rise[-1] - rise[8]) / (len(rise) - 9), rel=0.15)
