"""A monitor as a callback of Lightning: ``Trainer(callbacks=[LightningMonitor()])``.

Imports ``lightning.pytorch``, or ``pytorch_lightning`` where the program uses that one, or only that is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from leaklab.errors import MissingExtraError
from leaklab.frameworks.watched_fit import WatchedFit


def _find_callback_class() -> Any:
    names = ["lightning.pytorch", "pytorch_lightning"]
    loaded = [name for name in names if name in sys.modules]
    installed = [name for name in names if importlib.util.find_spec(name.partition(".")[0]) is not None]
    if not (loaded or installed):
        msg = "leaklab.frameworks.lightning needs Lightning, which is not installed: pip install lightning"
        raise MissingExtraError(msg)
    return importlib.import_module((loaded or installed)[0]).Callback


if TYPE_CHECKING:
    Callback = object
else:
    Callback = _find_callback_class()


class LightningMonitor(WatchedFit, Callback):
    """Watches the training of a `Trainer`: a step is a training batch.

    How many steps are to come is taken from the trainer. What grows in the trainer or in the module is named
    ``trainer. ...`` or ``pl_module. ...``. With several processes each of them watches its own.

    Example::

        watch = LightningMonitor()
        Trainer(callbacks=[watch]).fit(model)
        watch.report
    """

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to watch."""
        rank = trainer.global_rank if trainer.world_size > 1 else None
        self.begin_fit(_batches_to_come(trainer), {"trainer": trainer, "pl_module": pl_module}, rank)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count a step."""
        del trainer, pl_module, outputs, batch, batch_idx  # not one more reference to them while the heap is looked at
        self.count_step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the watch."""
        del trainer, pl_module
        self.end_fit()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the watch over a fit that dies."""
        failure = type(exception).__name__
        del trainer, pl_module, exception
        self.end_fit(failure)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """End the watch, in case nothing before did."""
        del trainer, pl_module, stage
        self.end_fit()


def _batches_to_come(trainer: Any) -> float | None:
    """Return the batches that are still to come; None where the trainer cannot tell."""
    try:
        updates = float(trainer.estimated_stepping_batches) - trainer.global_step
    except Exception:  # noqa: BLE001 - it raises where accumulation changes from epoch to epoch, and runs user code
        return None
    n_batches: float = updates * max(int(trainer.accumulate_grad_batches), 1)
    return n_batches
