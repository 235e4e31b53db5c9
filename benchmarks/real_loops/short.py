"""Loops of 300 steps, of which half leak: a training that a person waits for has no more.

An epoch has 60 steps. The loops are called as people write them, with their lists as locals of a function; how many
steps are to come is not told to the monitor.
"""

from __future__ import annotations

import collections
import copy
import functools
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import leaklab
from real_loops.plain import network, update
from real_loops.truth import RealLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaklab.loop.monitor import Monitor

EPOCH = 60
log: dict[str, list[torch.Tensor]] = {}
callbacks: list[Callable[[], torch.Tensor]] = []
shapes: dict[tuple[int, ...], torch.Tensor] = {}


def kept_losses(n_steps: int) -> Monitor:
    """Every loss is kept, and its graph with it."""
    model, optimizer = network()
    history = []
    with leaklab.monitor(quiet=True) as watch:
        for _ in range(n_steps):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 32)).pow(2).mean()
            loss.backward()
            optimizer.step()
            history.append(loss)
            watch.step()
    return watch


def validation_outputs(n_steps: int) -> Monitor:
    """The outputs of every epoch's validation are kept."""
    model, optimizer = network()
    outputs = []
    with leaklab.monitor(quiet=True) as watch:
        for step in range(1, n_steps + 1):
            update(model, optimizer, torch.randn(8, 32))
            if step % EPOCH == 0:
                with torch.no_grad():
                    for _ in range(20):
                        outputs.append(model(torch.randn(64, 32)))  # noqa: PERF401 - as people write it
            watch.step()
    return watch


def hooks_of_epochs(n_steps: int) -> Monitor:
    """Every epoch registers the hook of its statistics anew."""
    model, optimizer = network()
    with leaklab.monitor(quiet=True) as watch:
        for step in range(n_steps):
            if step % EPOCH == 0:
                seen = torch.zeros(1_000)
                model[1].register_forward_hook(functools.partial(count_activations, seen))
            update(model, optimizer, torch.randn(8, 32))
            watch.step()
    return watch


def count_activations(seen: torch.Tensor, _module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
    """Add what is active to what was *seen*."""
    seen += (output > 0).sum()


def figures(n_steps: int) -> Monitor:
    """Every tenth step draws the weights, and closes no figure."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    mpl.rcParams["figure.max_open_warning"] = 0
    model, optimizer = network()
    with leaklab.monitor(quiet=True) as watch:
        for step in range(n_steps):
            update(model, optimizer, torch.randn(8, 32))
            if step % 10 == 0:
                plt.figure()
                plt.hist(model[0].weight.detach().flatten().tolist(), bins=4)
            watch.step()
    return watch


def exceptions(n_steps: int) -> Monitor:
    """Every third batch is broken; the errors are kept to be told at the end, with the frames that had the batch."""
    model, optimizer = network()
    errors = []

    def load(step: int) -> torch.Tensor:
        batch = torch.randn(8, 32)
        if step % 3 == 0:
            raise ValueError(step)
        return batch

    with leaklab.monitor(quiet=True) as watch:
        for step in range(n_steps):
            try:
                update(model, optimizer, load(step))
            except ValueError as error:
                errors.append(error)
            watch.step()
    return watch


def summed_losses(n_steps: int) -> Monitor:
    """The mean loss is summed up with its graph."""
    model, optimizer = network()
    total: Any = 0.0
    with leaklab.monitor(quiet=True) as watch:
        for _ in range(n_steps):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 32)).pow(2).mean()
            loss.backward()
            optimizer.step()
            total = total + loss
            watch.step()
    return watch


def logged_tensors(n_steps: int) -> Monitor:
    """The log of losses and norms gets tensors, not numbers."""
    model, optimizer = network()
    with leaklab.monitor(quiet=True) as watch:
        for _ in range(n_steps):
            loss = update(model, optimizer, torch.randn(8, 32))
            log.setdefault("loss", []).append(loss)
            watch.step()
    return watch


def features_by_step(n_steps: int) -> Monitor:
    """Features are cached under a key that never comes again."""
    model, optimizer = network()
    cache = {}
    with leaklab.monitor(quiet=True) as watch:
        for step in range(n_steps):
            batch = torch.randn(8, 32)
            if (step, "features") not in cache:
                cache[step, "features"] = batch.repeat(4, 1)
            update(model, optimizer, cache[step, "features"])
            watch.step()
    return watch


def registered_closures(n_steps: int) -> Monitor:
    """Every second step leaves a callback for the end of the training."""
    model, optimizer = network()
    with leaklab.monitor(quiet=True) as watch:
        for step in range(n_steps):
            batch = torch.randn(8, 32)
            update(model, optimizer, batch)
            if step % 2:
                callbacks.append(lambda batch=batch: batch.mean())
            watch.step()
    return watch


def loader_iterators(n_steps: int) -> Monitor:
    """The iterator of every epoch is kept, as it would be to go on after a pause."""
    model, optimizer = network()
    loader = DataLoader(TensorDataset(torch.randn(8 * EPOCH, 32)), batch_size=8, shuffle=True)
    iterators = []
    with leaklab.monitor(quiet=True) as watch:
        for _ in range(n_steps // EPOCH):
            batches = iter(loader)
            iterators.append(batches)
            for (batch,) in batches:
                update(model, optimizer, batch)
                watch.step()
    return watch


def window(n_steps: int) -> Monitor:
    """The latest 100 losses are averaged."""
    model, optimizer = network()
    latest: collections.deque[torch.Tensor] = collections.deque(maxlen=100)
    with leaklab.monitor(quiet=True) as watch:
        for _ in range(n_steps):
            latest.append(update(model, optimizer, torch.randn(8, 32)))
            watch.step()
    return watch


@functools.lru_cache(maxsize=512)
def encoded(word: int) -> torch.Tensor:
    """Return what a slow tokenizer makes of a word."""
    return torch.full((64,), float(word))


def least_recently_used(n_steps: int) -> Monitor:
    """A cache with a limit gets a new word in every step, and is not full at the end."""
    model, optimizer = network()
    with leaklab.monitor(quiet=True) as watch:
        for step in range(n_steps):
            encoded(step)
            update(model, optimizer, torch.randn(8, 32))
            watch.step()
    return watch


def replay_buffer(n_steps: int) -> Monitor:
    """A buffer of 120 transitions fills, then the oldest ones are overwritten."""
    model, optimizer = network()
    replay: list[torch.Tensor] = []
    with leaklab.monitor(quiet=True) as watch:
        for step in range(n_steps):
            if len(replay) < 2 * EPOCH:
                replay.append(torch.randn(8, 32))
            else:
                replay[step % len(replay)] = torch.randn(8, 32)
            update(model, optimizer, replay[step // 2 % len(replay)])
            watch.step()
    return watch


def moments_and_averages(n_steps: int) -> Monitor:
    """Adam makes its state in the first step, an average of the weights begins in the second epoch."""
    model, optimizer = network()
    average: Any = None
    with leaklab.monitor(quiet=True) as watch:
        for step in range(n_steps):
            update(model, optimizer, torch.randn(8, 32))
            if step == EPOCH:
                average = copy.deepcopy(model)
            elif average is not None:
                for mean, weight in zip(average.parameters(), model.parameters(), strict=True):
                    mean.data.lerp_(weight.data, 0.01)
            watch.step()
    return watch


def growing_batches(n_steps: int) -> Monitor:
    """Batches get larger with every epoch."""
    model, optimizer = network()
    with leaklab.monitor(quiet=True) as watch:
        for step in range(n_steps):
            update(model, optimizer, torch.randn(64 * (1 + step // EPOCH), 32))
            watch.step()
    return watch


def best_weights(n_steps: int) -> Monitor:
    """The weights of the best epoch are kept, and the optimizer's state with them."""
    model, optimizer = network()
    best: dict[str, Any] = {}
    with leaklab.monitor(quiet=True) as watch:
        for step in range(n_steps):
            loss = update(model, optimizer, torch.randn(8, 32))
            if step % EPOCH == EPOCH - 1:
                best = {"loss": loss, "model": copy.deepcopy(model.state_dict()), "optimizer": optimizer.state_dict()}
            watch.step()
    del best
    return watch


def log_of_numbers(n_steps: int) -> Monitor:
    """Losses are logged as numbers."""
    model, optimizer = network()
    losses = []
    with leaklab.monitor(quiet=True) as watch:
        for _ in range(n_steps):
            losses.append(float(update(model, optimizer, torch.randn(8, 32))))
            watch.step()
    return watch


def buckets_of_shapes(n_steps: int) -> Monitor:
    """A mask is made once for each of 24 lengths, which come at random."""
    model, optimizer = network()
    with leaklab.monitor(quiet=True) as watch:
        for _ in range(n_steps):
            length = int(torch.randint(1, 25, ()))
            mask = shapes.get((length, 32))
            if mask is None:
                mask = shapes[length, 32] = torch.ones(length, 32)
            update(model, optimizer, torch.randn(length, 32) * mask)
            watch.step()
    return watch


def outputs_of_an_epoch(n_steps: int) -> Monitor:
    """The outputs are collected for a metric, and thrown away when the epoch ends."""
    model, optimizer = network()
    outputs: list[torch.Tensor] = []
    with leaklab.monitor(quiet=True) as watch:
        for step in range(1, n_steps + 1):
            outputs.append(update(model, optimizer, torch.randn(8, 32)))
            if step % EPOCH == 0:
                torch.stack(outputs).mean()
                outputs.clear()
            watch.step()
    return watch


def epochs_of_a_loader(n_steps: int) -> Monitor:
    """Every epoch has an iterator of its own, a validation, a step of the schedule."""
    model, optimizer = network()
    loader = DataLoader(TensorDataset(torch.randn(8 * EPOCH, 32)), batch_size=8, shuffle=True)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    recent: list[float] = []
    with leaklab.monitor(quiet=True) as watch:
        for _ in range(n_steps // EPOCH):
            for (batch,) in loader:
                recent = [*recent, float(update(model, optimizer, batch))][-20:]
                watch.step()
            with torch.no_grad():
                sum(model(batch).sum() for (batch,) in loader)
            schedule.step()
    return watch


LOOPS = (
    RealLoop(kept_losses, "plain", "history", "history.append"),
    RealLoop(validation_outputs, "plain", "outputs", "outputs.append"),
    RealLoop(hooks_of_epochs, "plain", "_forward_hooks", "register_forward_hook"),
    RealLoop(figures, "plain", "figs", "plt.figure"),
    RealLoop(exceptions, "plain", "errors", "errors.append"),
    RealLoop(summed_losses, "plain", "total", "total = total + loss"),
    RealLoop(logged_tensors, "plain", "log", ".append(loss)"),
    RealLoop(features_by_step, "plain", "cache", "cache[step"),
    RealLoop(registered_closures, "plain", "callbacks", "callbacks.append"),
    RealLoop(loader_iterators, "plain", "iterators", "iterators.append"),
    RealLoop(window, "plain"),
    RealLoop(least_recently_used, "plain"),
    RealLoop(replay_buffer, "plain"),
    RealLoop(moments_and_averages, "plain"),
    RealLoop(growing_batches, "plain"),
    RealLoop(best_weights, "plain"),
    RealLoop(log_of_numbers, "plain"),
    RealLoop(buckets_of_shapes, "plain"),
    RealLoop(outputs_of_an_epoch, "plain"),
    RealLoop(epochs_of_a_loader, "plain"),
)
