"""Hand what becomes of a loop over to a tracker of experiments: TensorBoard, MLflow, Weights & Biases."""

from __future__ import annotations

import inspect
import io
import textwrap
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from leaklab.metrics.table import METRICS, Loops, Watched
from leaklab.model.loop import LoopState, StateChange

if TYPE_CHECKING:
    from typing_extensions import Self

_TAG = "leaklab/"


class Page(Protocol):
    """A report, as far as it is handed over: ``str()`` of it is text."""

    def to_html(self) -> str:
        """Return it as a page of its own."""


class WatchedLoop(Watched, Protocol):
    """A monitor, as far as it is handed over."""

    on_change: Callable[[StateChange], object] | None

    @property
    def changes(self) -> Sequence[StateChange]:
        """The states that were come to, in the order of their steps."""

    @property
    def report(self) -> Page:
        """The report so far."""


class Tracker(Protocol):
    """How one kind of tracker takes what it is given."""

    def take(self, step: int, figures: Mapping[str, float], changes: Sequence[StateChange], n_new: int) -> None:
        """Take the figures of *step* and all changes, of which the last *n_new* are new."""

    def take_report(self, step: int, report: Page) -> None:
        """Take a report, in the place of an earlier one where the tracker can."""


class TrackerLog:
    """What hands the changes of one loop over to one tracker, as they come, until ``finish()``.

    The monitor is held weakly. It calls this as its ``on_change``, after the function that was there before.

    Attributes:
        problem: What the tracker raised when it was last given something; empty if nothing. The loop goes on.
    """

    def __init__(self, tracker: Tracker, monitor: WatchedLoop) -> None:
        self.problem = ""
        self._tracker = tracker
        self._loops = Loops((monitor,))
        self._monitor = weakref.ref(monitor)
        self._last: StateChange | None = None
        self._is_finished = False
        self._before = monitor.on_change
        self._hook = self._on_change
        self._hand_over(monitor)
        monitor.on_change = self._hook

    def finish(self) -> None:
        """Hand over what is left, with the report as it is now: after the loop, before the tracker is closed.

        A second call does nothing.
        """
        monitor = self._monitor()
        if monitor is None or self._is_finished:
            return
        self._is_finished = True
        if monitor.on_change is self._hook:
            monitor.on_change = self._before
        self._hand_over(monitor)
        self._tracker.take_report(monitor.status.step, monitor.report)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.finish()

    def _on_change(self, change: StateChange) -> None:
        if self._before is not None:
            self._before(change)
        monitor = self._monitor()
        if monitor is None or self._is_finished:
            return
        try:
            self._hand_over(monitor)
        except Exception as error:  # noqa: BLE001 - whatever a tracker raises, training is worth more than its log
            if not self.problem:
                warnings.warn(f"a tracker did not take what leaklab found: {error!r}", RuntimeWarning, stacklevel=2)
            self.problem = repr(error)
        else:
            self.problem = ""

    def _hand_over(self, monitor: WatchedLoop) -> None:
        """Hand over what has changed since the last time; with a leak or an alarm goes the report."""
        changes = monitor.changes
        fresh = changes[_number_known(changes, self._last) :]
        if not fresh:
            return
        self._last = fresh[-1]
        (reading,) = self._loops.read()
        figures = {
            _TAG + metric.name.removeprefix("leaklab_"): figure
            for metric in METRICS
            if not metric.label
            for figure in metric.read(reading).values()
        }
        self._tracker.take(reading.status.step, figures, changes, len(fresh))
        if any(change.is_alarm or change.state is LoopState.LEAK for change in fresh):
            self._tracker.take_report(reading.status.step, monitor.report)


def _number_known(changes: Sequence[StateChange], last: StateChange | None) -> int:
    """Return how many of *changes* came up to *last*: a monitor drops some in the middle when they are many."""
    return next((number for number in range(len(changes), 0, -1) if changes[number - 1] is last), 0)


def log_to(tracker: Any, monitor: WatchedLoop) -> TrackerLog:
    """Hand a loop over to a tracker: figures, sentences and the report, whenever the state of the loop changes.

    Where the tracker raises, the loop goes on, and a warning says so once.

    Args:
        tracker: A ``SummaryWriter`` of TensorBoard, the module ``mlflow`` with a run that is active, or a run of
            Weights & Biases (or the module ``wandb``).
        monitor: What `leaklab.monitor` gave; held weakly.

    Returns:
        Has ``finish()``, and is a context manager that calls it: enter it before the monitor, so that the monitor has
        ended by then.

    Raises:
        TypeError: if *tracker* is none of these, or *monitor* is no monitor.
    """
    for methods, kind in _KINDS:
        if all(callable(getattr(tracker, name, None)) for name in methods):
            return TrackerLog(kind(tracker), monitor)
    msg = (
        "log_to takes a SummaryWriter of TensorBoard, the module mlflow or a run of wandb, not"
        f" {type(tracker).__name__!r}"
    )
    raise TypeError(msg)


class _TensorBoard:
    """Scalars, and texts: it shows no pages."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def take(self, step: int, figures: Mapping[str, float], changes: Sequence[StateChange], n_new: int) -> None:
        for name, figure in figures.items():
            self._writer.add_scalar(name, figure, step)
        for change in changes[len(changes) - n_new :]:
            self._writer.add_text(f"{_TAG}change", _line(change), change.step)
        self._writer.flush()

    def take_report(self, step: int, report: Page) -> None:
        # Indented, it is shown as it is: in Markdown the underscores of names would be italics.
        self._writer.add_text(f"{_TAG}report", textwrap.indent(str(report), " " * 4), step)
        self._writer.flush()


class _Mlflow:
    """Metrics and a tag; changes and report as artifacts, each in the place of the one before."""

    def __init__(self, mlflow: Any) -> None:
        if next(iter(inspect.signature(mlflow.log_metric).parameters)) == "run_id":
            msg = "log_to takes the module mlflow with a run that is active, not a client"
            raise TypeError(msg)
        self._mlflow = mlflow

    def take(self, step: int, figures: Mapping[str, float], changes: Sequence[StateChange], n_new: int) -> None:
        del n_new
        for name, figure in figures.items():
            self._mlflow.log_metric(name, figure, step=step)
        self._mlflow.set_tag("leaklab.state", changes[-1].state.value)
        self._mlflow.log_text("".join(f"{_line(change)}\n" for change in changes), f"{_TAG}changes.txt")

    def take_report(self, step: int, report: Page) -> None:
        del step
        self._mlflow.log_text(report.to_html(), f"{_TAG}report.html")


class _WeightsAndBiases:
    """Figures beside the user's own of the same step: with ``commit`` they would make a step of theirs."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def take(self, step: int, figures: Mapping[str, float], changes: Sequence[StateChange], n_new: int) -> None:
        words = "\n".join(map(_line, changes[len(changes) - n_new :]))
        self._run.log({**figures, f"{_TAG}step": step, f"{_TAG}change": words}, commit=False)
        self._run.summary[f"{_TAG}state"] = changes[-1].state.value

    def take_report(self, step: int, report: Page) -> None:
        import wandb  # noqa: PLC0415 - the user's, who gave a run of it

        del step
        page = wandb.Html(io.StringIO(report.to_html()), inject=False)
        self._run.log({f"{_TAG}report": page}, commit=False)


_KINDS = (
    (("add_scalar", "add_text"), _TensorBoard),
    (("log_metric", "log_text", "set_tag"), _Mlflow),
    (("log", "define_metric"), _WeightsAndBiases),
)
"""By what they can: a tracker is not imported to ask for its type."""


def _line(change: StateChange) -> str:
    alarm = ", alarm" if change.is_alarm else ""
    return f"step {change.step:,}: {change.state.value}{alarm}: {change.words}"
