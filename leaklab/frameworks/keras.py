"""A monitor as a callback of Keras 3 on torch: ``model.fit(..., callbacks=[KerasMonitor()])``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leaklab.errors import require
from leaklab.frameworks.watched_fit import WatchedFit

if TYPE_CHECKING:
    Callback = object
else:
    require("keras", "leaklab.frameworks.keras", "Keras 3", "keras")
    from keras.callbacks import Callback


class KerasMonitor(WatchedFit, Callback):
    """Watches a `fit`: a step is a batch.

    How many are to come is taken from what Keras tells its callbacks. What grows in the model is named ``model. ...``.
    Keras does not tell its callbacks that a fit died: a ``with`` block ends the watch then as well.

    Example::

        with KerasMonitor() as watch:
            model.fit(x, y, callbacks=[watch])
        watch.report
    """

    params: Mapping[str, Any] | None
    model: Any

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin to watch."""
        del logs
        params = self.params or {}
        n_batches = params.get("steps")
        self.begin_fit(None if n_batches is None else n_batches * params.get("epochs", 1), {"model": self.model})

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count a step."""
        del batch, logs  # not one more reference to them while the heap is looked at
        self.count_step()

    def on_train_end(self, logs: Any = None) -> None:
        """End the watch."""
        del logs
        self.end_fit()
