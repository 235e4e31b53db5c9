"""Hand what becomes of a loop over to a tracker of experiments: TensorBoard, MLflow, Weights & Biases."""

from __future__ import annotations

import inspect
import io
import textwrap
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from leaklab.metrics.loops import Loops, Watched
from leaklab.metrics.table import METRICS
from leaklab.model.monitor import LoopState, StateChange

if TYPE_CHECKING:
    from typing_extensions import Self

_TAG = "leaklab/"


class Page(Protocol):
    """A report, as far as it is handed over: ``str()`` of it is text."""

    def to_html(self) -> str:
        """Return it as a page of its own."""


class WatchedLoop(Watched, Protocol):
    """A monitor, as far as it is handed over."""

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
    """What hands the changes of one loop over to one tracker. The monitor is held weakly."""

    def __init__(self, tracker: Tracker, monitor: WatchedLoop) -> None:
        self._tracker = tracker
        self._monitor = weakref.ref(monitor)
        self._loops = Loops((monitor,))
        self._n_told = 0
        self.update()

    def update(self) -> int:
        """Hand over what has changed since the last call; return how many changes of state that were.

        Call it after every step if you like: where nothing has changed, it compares two numbers. With a state that is
        a leak or an alarm goes the report.
        """
        monitor = self._monitor()
        if monitor is None or len(changes := monitor.changes) == self._n_told:
            return 0
        fresh = changes[self._n_told :]
        self._n_told = len(changes)
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
        return len(fresh)

    def finish(self) -> None:
        """Hand over what is left, with the last report: call it before the tracker is closed."""
        self.update()
        monitor = self._monitor()
        if monitor is not None:
            self._tracker.take_report(monitor.status.step, monitor.report)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.finish()


def log_to(tracker: Any, monitor: WatchedLoop) -> TrackerLog:
    """Hand over the figures, the changes of state and the report of a loop to a tracker, at changes of state only.

    Args:
        tracker: A ``SummaryWriter`` of TensorBoard, the module ``mlflow`` with a run that is active, or a run of
            Weights & Biases (or the module ``wandb``).
        monitor: What `leaklab.monitor` gave; held weakly.

    Returns:
        Has ``update()``, to be called now and then while the loop runs, and ``finish()``; as a context manager it
        calls that.

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
        told = "\n".join(map(_line, changes[len(changes) - n_new :]))
        self._run.log({**figures, f"{_TAG}step": step, f"{_TAG}change": told}, commit=False)
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
