"""A block of code is watched from inside: by which clock, and that nothing of the watch stays."""

from __future__ import annotations

import asyncio
import threading

import pytest
import torch
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, TensorDataset, dataloader

from leaklab.loop.clocks import NO_CLOCK
from leaklab.loop.inside import BlockWatch
from leaklab.model.loop import LoopState

pytestmark = pytest.mark.untraced


def made():
    net = torch.nn.Linear(4, 4)
    return net, torch.optim.SGD(net.parameters(), lr=0.1)


def train(n_steps, history=None):
    net, optimizer = made()
    for _ in range(n_steps):
        loss = net(torch.randn(4, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if history is not None:
            history.append(loss.detach())


def test_a_training_that_calls_nothing_of_leaklabs_is_found_to_leak():
    history = []
    with BlockWatch("cell") as watch:
        train(1_700, history)
    report = watch.report()
    assert watch.clock == "a step of the optimizer torch.optim.sgd.SGD"
    assert report.record.notes[0] == "a step is a step of the optimizer torch.optim.sgd.SGD"
    assert report.record.status.step == 1_700
    assert report.leaked, report.changes
    assert "history" in report.leaks[0].holder
    assert report.leaks[0].count_per_run == pytest.approx(1, rel=0.05)


def test_the_hooks_are_gone_whatever_ends_the_block():
    hooks, following = dict(optimizers._global_optimizer_post_hooks), dataloader._BaseDataLoaderIter.__next__
    for kind in (None, ValueError, KeyboardInterrupt):
        watch = BlockWatch()
        if kind is None:
            with watch:
                train(3)
        else:
            with pytest.raises(kind), watch:
                train(3)
                raise kind
        assert optimizers._global_optimizer_post_hooks == hooks
        assert dataloader._BaseDataLoaderIter.__next__ is following
        assert watch.report().record.failure == ("" if kind is None else kind.__name__)
        train(2)
        assert watch.n_steps == 3


def test_batches_are_the_clock_where_no_optimizer_makes_a_step():
    loader = DataLoader(TensorDataset(torch.randn(40, 4)), batch_size=2)
    with BlockWatch() as watch:
        seen = [batch for (batch,) in loader]
    assert len(seen) == 20
    assert watch.clock == "a batch of a DataLoader"
    assert watch.n_steps == 11  # the twenty batches, and the question whether there are more, less the first ten


def test_batches_of_a_training_are_not_counted_beside_its_optimizer():
    loader = DataLoader(TensorDataset(torch.randn(60, 4)), batch_size=2)
    net, optimizer = made()
    with BlockWatch() as watch:
        for (batch,) in loader:
            net(batch).sum().backward()
            optimizer.step()
    assert (watch.n_steps, watch.clock) == (30, "a step of the optimizer torch.optim.sgd.SGD")


def test_one_of_two_optimizers_is_the_clock_and_the_other_goes_on_after_it():
    _, first = made()
    _, second = made()
    with BlockWatch() as watch:
        for _ in range(20):
            first.step()
            second.step()
        assert watch.n_steps == 20
        for _ in range(30):
            second.step()
    assert watch.n_steps == 41  # after ten of the second alone, one of which came before


def test_of_many_optimizers_that_step_together_one_is_the_clock():
    optimizers_of_layers = [made()[1] for _ in range(14)]
    with BlockWatch() as watch:
        for _ in range(30):
            for optimizer in optimizers_of_layers:
                optimizer.step()
    assert watch.n_steps == 30


def test_an_optimizer_that_each_step_makes_anew_is_the_clock_at_once():
    net, _ = made()
    kept = []
    with BlockWatch() as watch:
        for _ in range(30):
            kept.append(torch.optim.SGD(net.parameters(), lr=0.1))
            kept[-1].step()
    assert watch.n_steps == 30


def losses_of(n_steps):
    history = []
    train(n_steps, history)
    return len(history)


@pytest.mark.parametrize("first", [train, losses_of])
def test_a_second_loop_is_watched_from_its_own_beginning(first):
    """What grows in it alone, and goes with it, is told; what grew in the first is not forgotten nor told again."""
    with BlockWatch() as watch:
        first(400)
        losses_of(500)
    record = watch.report().record
    assert watch.n_steps == 900
    assert [check.last_step for check in record.stretches] == [400, 900]
    told = [(change.step, change.words) for change in record.changes if "`history" in change.words]
    assert [step for step, _ in told] == ([400] if first is losses_of else [900])
    assert not any("native memory" in str(check.check.verdict) for check in record.stretches)


def test_folds_are_not_cut_again_and_again():
    kept = []
    with BlockWatch() as watch:
        for _ in range(6):
            train(220)
            kept.append(made())
    assert watch.report().record.stretches[0].last_step == 220
    assert len(watch.report().record.stretches) == 2


def test_an_optimizer_inside_of_another_is_counted_once():
    class Slow(torch.optim.Optimizer):
        def __init__(self, inner):
            super().__init__(inner.param_groups, {})
            self.inner = inner

        def step(self, closure=None):
            self.inner.step(closure)

    optimizer = Slow(made()[1])
    with BlockWatch() as watch:
        for _ in range(30):
            optimizer.step()
    assert watch.n_steps == 30


def test_steps_of_other_threads_are_not_counted():
    with BlockWatch() as watch:
        other = threading.Thread(target=train, args=(5,))
        other.start()
        other.join()
    assert watch.n_steps == 0


def test_a_block_without_steps_says_so():
    with BlockWatch() as watch:
        sum(range(10))
    report = watch.report()
    assert watch.clock == ""
    assert report.record.notes == (NO_CLOCK,)
    assert report.record.status.state is LoopState.WARMING_UP


def test_what_may_be_repeated_is_not_looked_at():
    with BlockWatch(not_before=600.0) as watch:
        train(400, [])
    assert watch.report().checks == ()
    assert watch.n_steps == 400


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_traces_a_module_sees_what_it_would_see_without_the_watch():
    """``torch.jit.trace`` compares two of its traces: where somebody reads parameters in between, they differ."""

    def trace():
        return torch.jit.trace(torch.nn.Sequential(torch.nn.Linear(4, 4)).eval(), torch.ones(2, 4))

    with BlockWatch("cell"):
        traces = [trace() for _ in range(3)]
    assert [traced(torch.ones(2, 4)).shape for traced in traces] == [(2, 4)] * 3


def in_event_loop():
    """A library's thread, in which tasks of asyncio are made all the time."""
    events = asyncio.new_event_loop()

    async def tick():
        for _ in range(200):
            await asyncio.create_task(asyncio.sleep(0))

    thread = threading.Thread(target=events.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(tick(), events).result()

    def end():
        events.call_soon_threadsafe(events.stop)
        thread.join()
        events.close()

    return end


def in_loader():
    """A thread that makes batches ready."""
    loader = DataLoader(TensorDataset(torch.randn(40, 4)), batch_size=2)
    is_over = threading.Event()

    def fill():
        assert len(list(loader)) == 20
        is_over.wait()

    thread = threading.Thread(target=fill)
    thread.start()

    def end():
        is_over.set()
        thread.join()

    return end


@pytest.mark.parametrize("run", [in_event_loop, in_loader])
def test_the_optimizer_of_one_thread_takes_over_from_what_another_was_heard_to_do(run):
    with BlockWatch(any_thread=True) as watch:
        end = run()
        train(30)
        end()
    assert watch.clock == "a step of the optimizer torch.optim.sgd.SGD"
    assert watch.n_steps >= 29
