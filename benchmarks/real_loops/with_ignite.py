"""Loops of Ignite."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import torch
from ignite.engine import Engine, Events
from ignite.handlers import EarlyStopping
from ignite.metrics import RunningAverage

from leaklab.frameworks.ignite import attach
from real_loops.truth import OVERHEAD, RealLoop

if TYPE_CHECKING:
    from leaklab.loop.monitor import Monitor

_BATCHES = 200
embedded: dict[int, torch.Tensor] = {}


def _trainer() -> Engine:
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters())

    def update(_engine: Engine, batch: torch.Tensor) -> float:
        optimizer.zero_grad()
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    engine = Engine(update)
    RunningAverage(output_transform=lambda loss: loss).attach(engine, "loss")
    return engine


def _ran(engine: Engine, n_steps: int) -> Monitor:
    watch = attach(engine, overhead=OVERHEAD, quiet=True)
    engine.run([torch.randn(8, 32) for _ in range(_BATCHES)], max_epochs=n_steps // _BATCHES)
    assert watch.monitor is not None
    return watch.monitor


def handlers(n_steps: int) -> Monitor:
    """Every epoch adds a handler that compares with the weights of its beginning."""
    engine = _trainer()

    @engine.on(Events.EPOCH_STARTED)
    def compare(engine: Engine) -> None:
        weights = torch.zeros(20_000)
        engine.add_event_handler(Events.EPOCH_COMPLETED(every=1_000), lambda: print(weights.sum()))

    return _ran(engine, n_steps)


def cache_that_fills(n_steps: int) -> Monitor:
    """Embeddings of 2,000 words are looked up once each; an evaluation at every epoch may stop the training."""
    engine, evaluator = _trainer(), Engine(lambda _engine, batch: float(batch.sum()))
    words = random.Random(0)  # noqa: S311 - no secret
    patience = EarlyStopping(patience=10**6, score_function=lambda engine: float(engine.state.output), trainer=engine)
    evaluator.add_event_handler(Events.COMPLETED, patience)

    @engine.on(Events.ITERATION_STARTED)
    def look_up(_engine: Any) -> None:
        word = words.randrange(2_000)
        if word not in embedded:
            embedded[word] = torch.full((300,), float(word))

    @engine.on(Events.EPOCH_COMPLETED)
    def evaluate(_engine: Any) -> None:
        evaluator.run([torch.randn(8, 32)] * 10)

    return _ran(engine, n_steps)


LOOPS = (
    RealLoop(handlers, "ignite", "engine._event_handlers", "add_event_handler"),
    RealLoop(cache_that_fills, "ignite"),
)
