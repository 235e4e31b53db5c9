"""Loops of transformers."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import torch
from transformers import Trainer, TrainingArguments

from leaklab.frameworks.transformers import TransformersMonitor
from real_loops.truth import OVERHEAD, RealLoop

if TYPE_CHECKING:
    from leaklab.loop.monitor import Monitor

KEPT: list[torch.Tensor] = []


class Regression(torch.nn.Module):
    """A small regression."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return loss and outputs."""
        outputs = self.layers(x)
        return {"loss": outputs.pow(2).mean(), "logits": outputs}


class Keeping(Trainer):
    """Keeps the outputs of every step, for a plot."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:  # noqa: FBT001, FBT002
        """Return the loss."""
        outputs = model(**inputs)
        KEPT.append(outputs["logits"])
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]


def _trained(trainer: type[Trainer], n_steps: int, **options: Any) -> Monitor:
    with tempfile.TemporaryDirectory() as folder, TransformersMonitor(overhead=OVERHEAD, quiet=True) as watch:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=n_steps,
            per_device_train_batch_size=8,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            log_level="error",
            **{"logging_steps": 500, "save_strategy": "no", **options},
        )
        data = [{"x": row} for row in torch.randn(2_000, 32)]
        trainer(
            model=Regression(), args=arguments, train_dataset=data, eval_dataset=data[:80], callbacks=[watch]
        ).train()
    assert watch.monitor is not None
    return watch.monitor


def outputs(n_steps: int) -> Monitor:
    """Every step's outputs are kept with their graph."""
    return _trained(Keeping, n_steps)


def log_history(n_steps: int) -> Monitor:
    """The trainer logs every 20 steps, evaluates and saves every 1,000; its log is never emptied."""
    return _trained(
        Trainer,
        n_steps,
        logging_steps=20,
        eval_strategy="steps",
        eval_steps=1_000,
        save_strategy="steps",
        save_steps=1_000,
        save_total_limit=1,
    )


LOOPS = (
    RealLoop(outputs, "transformers", "KEPT", "KEPT.append"),
    RealLoop(log_history, "transformers"),
)
