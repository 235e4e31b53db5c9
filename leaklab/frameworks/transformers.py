"""A monitor as a callback of transformers: ``Trainer(..., callbacks=[TransformersMonitor()])``."""

from __future__ import annotations

import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

from leaklab.errors import require
from leaklab.frameworks.watched_fit import WatchedFit
from leaklab.heap.running import local_variables

if TYPE_CHECKING:
    Trainer: Any = None
    TrainerCallback = object
else:
    require("transformers", "leaklab.frameworks.transformers", "transformers", "transformers")
    from transformers import Trainer, TrainerCallback


class TransformersMonitor(WatchedFit, TrainerCallback):
    """Watches the training of a `Trainer`: a step is an update of the weights, as the trainer counts them.

    How many are to come is taken from the trainer. What grows in the trainer, its state or its model is named
    ``trainer.state. ...``, ``trainer.model. ...``.

    The trainer does not tell its callbacks that a training died. A ``with`` block ends the watch then as well; without
    one, a check that was under way lies where it was until the next training, or the end of the process.

    Example::

        with TransformersMonitor() as watch:
            Trainer(..., callbacks=[watch]).train()
        watch.report
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin to watch."""
        del control
        trainer = _trainer_that_calls(state)
        roots = {"state": state, "model": kwargs.get("model")} if trainer is None else {"trainer": trainer}
        rank = args.process_index if args.world_size > 1 else None
        self.begin_fit(state.max_steps - state.global_step, roots, rank)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count a step."""
        del args, state, control, kwargs  # not one more reference to them while the heap is looked at
        self.count_step()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the watch."""
        del args, state, control, kwargs
        self.end_fit()


def _trainer_that_calls(state: object) -> Any:
    """Return the trainer whose *state* this is, which callbacks are not given: a running method has it. Else None."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - of the handler of callbacks
    while frame is not None:
        this = next((value for name, value in local_variables(frame) if name == "self"), None)
        if isinstance(this, Trainer) and this.state is state:
            return this
        frame = frame.f_back
    return None
