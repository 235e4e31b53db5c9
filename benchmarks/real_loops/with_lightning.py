"""Loops of Lightning."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
import torch
import torchmetrics
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

from leaklab.frameworks.lightning import LightningMonitor
from real_loops.truth import OVERHEAD, RealLoop

if TYPE_CHECKING:
    from leaklab.loop.monitor import Monitor

_BATCHES = 500


class Regression(pl.LightningModule):
    """A small regression."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
        self.error = torchmetrics.MeanSquaredError()

    def training_step(self, batch: Any, _number: int) -> torch.Tensor:
        """Return the loss."""
        loss = self.layers(batch[0]).pow(2).mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, _number: int) -> None:
        """Update the metric, which Lightning resets."""
        outputs = self.layers(batch[0])
        self.error(outputs, torch.zeros_like(outputs))
        self.log("error", self.error)

    def configure_optimizers(self) -> Any:
        """Return the optimizer and its schedule."""
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=3)]


class Diary(Regression):
    """Notes what every step saw, number by number."""

    def __init__(self) -> None:
        super().__init__()
        self.diary: list[dict[str, Any]] = []

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        """Return the loss, and note the inputs."""
        self.diary.append({"number": number, "inputs": batch[0].flatten().tolist()})
        return super().training_step(batch, number)


class KeptOutputs(Regression):
    """Collects the outputs of validations and never clears them."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[torch.Tensor] = []

    def validation_step(self, batch: Any, number: int) -> None:
        """Keep the outputs."""
        super().validation_step(batch, number)
        self.outputs.append(self.layers(batch[0]).repeat(1, 50))


def _fitted(module: Regression, n_steps: int, *callbacks: Any, logger: Any = False, saves: bool = False) -> Monitor:
    def loader(n_batches: int) -> DataLoader[Any]:
        return DataLoader(TensorDataset(torch.randn(8 * n_batches, 32)), batch_size=8)

    watch = LightningMonitor(overhead=OVERHEAD, quiet=True)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=n_steps,
        val_check_interval=200 if saves else 100,
        callbacks=[watch, *callbacks],
        logger=logger,
        enable_checkpointing=saves,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, loader(_BATCHES), loader(10))
    assert watch.monitor is not None
    return watch.monitor


def logs(n_steps: int) -> Monitor:
    """Every step's inputs go into a list of numbers."""
    return _fitted(Diary(), n_steps)


def validation_outputs(n_steps: int) -> Monitor:
    """Every hundredth step validates, and keeps the outputs."""
    return _fitted(KeptOutputs(), n_steps)


def checkpoints(n_steps: int) -> Monitor:
    """The best three of all checkpoints stay on the disk, figures go to a file."""
    with tempfile.TemporaryDirectory() as folder:
        saver = ModelCheckpoint(dirpath=folder, every_n_train_steps=500, save_top_k=3, monitor="loss")
        return _fitted(Regression(), n_steps, saver, LearningRateMonitor(), logger=CSVLogger(folder), saves=True)


LOOPS = (
    RealLoop(logs, "lightning", "pl_module.diary", "self.diary.append"),
    RealLoop(validation_outputs, "lightning", "pl_module.outputs", "self.outputs.append"),
    RealLoop(checkpoints, "lightning"),
)
