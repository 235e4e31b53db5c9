"""A monitor on an engine of Ignite: ``watch = attach(trainer)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from leaklab.errors import require
from leaklab.frameworks.watched_fit import WatchedFit, whole_steps
from leaklab.model.loop import StateChange

if TYPE_CHECKING:
    Events: Any = None
else:
    require("ignite", "leaklab.frameworks.ignite", "Ignite", "pytorch-ignite")
    from ignite.engine import Events


class IgniteMonitor(WatchedFit):
    """Watches the runs of an engine: a step is an iteration; `attach` makes it."""

    def attach(self, engine: Any) -> None:
        """Let *engine* call this monitor. The engine holds the monitor, not the other way round."""
        engine.add_event_handler(Events.STARTED, self._on_started)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self._on_iteration)
        engine.add_event_handler(Events.EPOCH_COMPLETED, self._on_epoch)
        engine.add_event_handler(Events.COMPLETED | Events.TERMINATE, self._on_end)
        engine.add_event_handler(Events.EXCEPTION_RAISED, self._on_exception)

    def _on_started(self, engine: Any) -> None:
        self.begin_fit(_iterations_to_come(engine), {"engine": engine})

    def _on_iteration(self) -> None:
        self.count_step()

    def _on_epoch(self, engine: Any) -> None:
        """Tell how long the run is: of data without a length, an engine knows that after the first epoch only."""
        if self.monitor is not None and self.monitor.total_steps is None:
            to_come = whole_steps(_iterations_to_come(engine))
            self.monitor.total_steps = None if to_come is None else to_come + self.monitor.status.step

    def _on_end(self) -> None:
        self.end_fit()

    def _on_exception(self, engine: Any, error: BaseException) -> None:
        """End the watch. An engine that has a handler for exceptions swallows them: unless others see to it, raise."""
        self.end_fit(type(error).__name__)
        handlers = getattr(engine, "_event_handlers", {}).get(Events.EXCEPTION_RAISED, ())
        if len(handlers) <= 1:
            raise error


def attach(
    engine: Any,
    name: str = "",
    *,
    overhead: float = 0.01,
    first_step: int | None = None,
    on_change: Callable[[StateChange], object] | None = None,
    fail: bool = False,
    quiet: bool = False,
) -> IgniteMonitor:
    """Watch the runs of *engine*; return what has the report.

    How many iterations are to come is taken from the engine. What grows in it is named ``engine. ...``.

    Args:
        engine: The `ignite.engine.Engine` that trains.
        name: What to call the loop.
        overhead: The share of the loop's time that watching may take in the long run.
        first_step: The first check begins after so many iterations.
        on_change: Called with each `StateChange`.
        fail: Whether to raise `LeakFound` when a leak is certain and matters.
        quiet: Whether nothing is printed.

    Example::

        watch = attach(trainer)
        trainer.run(loader, max_epochs=10)
        watch.report
    """
    watch = IgniteMonitor(name, overhead=overhead, first_step=first_step, on_change=on_change, fail=fail, quiet=quiet)
    watch.attach(engine)
    return watch


def _iterations_to_come(engine: Any) -> float | None:
    """Return the iterations that are still to come; None where the engine does not know."""
    state = engine.state
    if state.max_epochs is None or state.epoch_length is None:
        return getattr(state, "max_iters", None)
    total: float = state.max_epochs * state.epoch_length - state.iteration
    return total
