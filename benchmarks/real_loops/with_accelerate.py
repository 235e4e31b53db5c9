"""Loops of Accelerate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torchmetrics
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import leaklab
from real_loops.truth import OVERHEAD, RealLoop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaklab.loop.monitor import Monitor


def _prepared() -> tuple[Accelerator, Any, Any, Any]:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(TensorDataset(torch.randn(4_000, 32)), batch_size=8, shuffle=True)
    return accelerator, *accelerator.prepare(model, optimizer, loader)


def _batches(loader: Any, n_steps: int) -> Iterator[torch.Tensor]:
    made = 0
    while made < n_steps:
        for (batch,) in loader:
            if made == n_steps:
                return
            made += 1
            yield batch


def growing_graph(n_steps: int) -> Monitor:
    """The mean loss is summed up with its graph."""
    accelerator, model, optimizer, loader = _prepared()
    total: Any = 0.0
    with leaklab.monitor(
        f"rank {accelerator.process_index}", total_steps=n_steps, overhead=OVERHEAD, quiet=True
    ) as watch:
        for batch in _batches(loader, n_steps):
            with accelerator.accumulate(model):
                loss = model(batch).pow(2).mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                total = total + loss
            watch.step()
    return watch


def metric_never_reset(n_steps: int) -> Monitor:
    """A metric that keeps all it has seen is asked at the end of the training only."""
    accelerator, model, optimizer, loader = _prepared()
    everything = torchmetrics.CatMetric()
    with leaklab.monitor(
        f"rank {accelerator.process_index}", total_steps=n_steps, overhead=OVERHEAD, quiet=True
    ) as watch:
        for batch in _batches(loader, n_steps):
            with accelerator.accumulate(model):
                outputs = model(batch)
                accelerator.backward(outputs.pow(2).mean())
                optimizer.step()
                optimizer.zero_grad()
                everything.update(outputs.detach().repeat(1, 20).flatten())
            watch.step()
    return watch


def curriculum(n_steps: int) -> Monitor:
    """Batches get larger in five stages, the last of them in the middle of the training."""
    accelerator, model, optimizer, loader = _prepared()
    with leaklab.monitor(
        f"rank {accelerator.process_index}", total_steps=n_steps, overhead=OVERHEAD, quiet=True
    ) as watch:
        for step, batch in enumerate(_batches(loader, n_steps)):
            larger = batch.repeat(1 + min(10 * step // n_steps, 5), 1)
            with accelerator.accumulate(model):
                accelerator.backward(model(larger).pow(2).mean())
                optimizer.step()
                optimizer.zero_grad()
            watch.step()
    return watch


LOOPS = (
    RealLoop(growing_graph, "accelerate", "total", "total = total + loss"),
    RealLoop(metric_never_reset, "accelerate", "everything", "everything.update"),
    RealLoop(curriculum, "accelerate"),
)
