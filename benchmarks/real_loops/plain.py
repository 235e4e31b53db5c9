"""Loops of torch alone."""

from __future__ import annotations

import collections
import functools
import gc
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import leaklab
from real_loops.truth import OVERHEAD, RealLoop

if TYPE_CHECKING:
    from leaklab.loop.monitor import Monitor

window: collections.deque[torch.Tensor] = collections.deque(maxlen=500)
pending: list[Any] = []
replay: list[torch.Tensor] = []


def network() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a small model and its optimizer."""
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


def update(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> torch.Tensor:
    """Make one step of the training; return the loss without its graph."""
    optimizer.zero_grad()
    loss = model(batch).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def observe(seen: torch.Tensor, _module: nn.Module, gradients: Any) -> None:
    """Add what comes back to what was *seen*."""
    seen += gradients[0].mean()


def hooks(n_steps: int) -> Monitor:
    """Every hundredth step registers a hook that looks at activations, and nobody removes it."""
    model, optimizer = network()
    with leaklab.monitor(total_steps=n_steps, overhead=OVERHEAD, quiet=True) as watch:
        for step in range(n_steps):
            if step % 100 == 0:
                model[1].register_full_backward_pre_hook(functools.partial(observe, torch.zeros(10_000)))
            update(model, optimizer, torch.randn(8, 32))
            watch.step()
    return watch


class Node:
    """Knows itself, as trees with parents do."""

    def __init__(self) -> None:
        self.activations = torch.zeros(400)
        self.parent = self


def cyclic_garbage(n_steps: int) -> Monitor:
    """The collector is off, for speed, and every step leaves a cycle."""
    model, optimizer = network()
    gc.disable()
    with leaklab.monitor(total_steps=n_steps, overhead=OVERHEAD, quiet=True) as watch:
        for _ in range(n_steps):
            Node()
            update(model, optimizer, torch.randn(8, 32))
            watch.step()
    gc.enable()
    return watch


def parameter_groups(n_steps: int) -> Monitor:
    """Every 40th step thaws a layer by a parameter group of its own, whether or not there is one already."""
    model, _ = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with leaklab.monitor(total_steps=n_steps, overhead=OVERHEAD, quiet=True) as watch:
        for step in range(n_steps):
            if step % 40 == 0:
                optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(4_000))]})
            update(model, optimizer, torch.randn(8, 32))
            watch.step()
    return watch


def futures(n_steps: int) -> Monitor:
    """Results are written by a pool of threads; the futures are kept, to look at their errors some day."""
    model, optimizer = network()
    with ThreadPoolExecutor(2) as pool, leaklab.monitor(total_steps=n_steps, overhead=OVERHEAD, quiet=True) as watch:
        for _ in range(n_steps):
            batch = torch.randn(8, 32)
            update(model, optimizer, batch)
            pending.append(pool.submit(batch.clone))
            watch.step()
    return watch


def replay_buffer(n_steps: int) -> Monitor:
    """A buffer of 6,000 transitions fills, then the oldest ones are overwritten."""
    model, optimizer = network()
    capacity = 6_000
    with leaklab.monitor(total_steps=n_steps, overhead=OVERHEAD, quiet=True) as watch:
        for step in range(n_steps):
            transition = torch.randn(8, 32)
            if len(replay) < capacity:
                replay.append(transition)
            else:
                replay[step % capacity] = transition
            update(model, optimizer, replay[step % len(replay)])
            watch.step()
    return watch


def warm_up_and_schedule(n_steps: int) -> Monitor:
    """A warm-up, then cosine; evaluation every 500 steps, the best weights are kept."""
    model, optimizer = network()
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=n_steps + 1)
    best: dict[str, torch.Tensor] = {}
    average = torch.optim.swa_utils.AveragedModel(model)
    with leaklab.monitor(total_steps=n_steps, overhead=OVERHEAD, quiet=True) as watch:
        for step in range(n_steps):
            update(model, optimizer, torch.randn(8, 32))
            schedule.step()
            if step % 500 == 0:
                average.update_parameters(model)
                with torch.no_grad():
                    outputs = [model(torch.randn(64, 32)) for _ in range(20)]
                best = {key: value.clone() for key, value in model.state_dict().items()}
                del outputs
            watch.step()
    del best
    return watch


def persistent_workers(n_steps: int) -> Monitor:
    """Two workers live over all epochs."""
    model, optimizer = network()
    data = TensorDataset(torch.randn(8_000, 32))
    loader = DataLoader(data, batch_size=8, num_workers=2, persistent_workers=True, shuffle=True)
    made = 0
    with leaklab.monitor(total_steps=n_steps, overhead=OVERHEAD, quiet=True) as watch:
        while made < n_steps:
            for (batch,) in loader:
                update(model, optimizer, batch)
                watch.step()
                made += 1
                if made == n_steps:
                    break
    return watch


def windows(n_steps: int) -> Monitor:
    """Losses of the latest 500 steps are averaged, and printed every 1,000."""
    model, optimizer = network()
    recent: list[float] = []
    with leaklab.monitor(total_steps=n_steps, overhead=OVERHEAD, quiet=True) as watch:
        for step in range(n_steps):
            window.append(update(model, optimizer, torch.randn(8, 32)))
            recent.append(float(window[-1]))
            if step % 1_000 == 999:
                recent.clear()
            watch.step()
    return watch


@functools.lru_cache(maxsize=2_000)
def encoded(word: int) -> torch.Tensor:
    """Return what a slow tokenizer makes of a word."""
    return torch.full((64,), float(word))


def least_recently_used(n_steps: int) -> Monitor:
    """Words are encoded once, the least recently used of them forgotten; one such cache is written by hand."""
    model, optimizer = network()
    cache: collections.OrderedDict[int, torch.Tensor] = collections.OrderedDict()
    draws = torch.distributions.Exponential(0.001).sample((n_steps,)).long().tolist()
    with leaklab.monitor(total_steps=n_steps, overhead=OVERHEAD, quiet=True) as watch:
        for word in draws:
            encoded(word)
            cache[word] = cache.pop(word, None) if word in cache else torch.full((64,), float(word))
            if len(cache) > 3_000:
                cache.popitem(last=False)
            update(model, optimizer, torch.randn(8, 32))
            watch.step()
    return watch


LOOPS = (
    RealLoop(hooks, "plain", "_backward_pre_hooks", "register_full_backward_pre_hook"),
    RealLoop(cyclic_garbage, "plain", "", "self.parent = self"),
    RealLoop(parameter_groups, "plain", "optimizer.param_groups", "add_param_group"),
    RealLoop(futures, "plain", "pending", "pending.append"),
    RealLoop(replay_buffer, "plain"),
    RealLoop(warm_up_and_schedule, "plain"),
    RealLoop(persistent_workers, "plain"),
    RealLoop(windows, "plain"),
    RealLoop(least_recently_used, "plain"),
)
