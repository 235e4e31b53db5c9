"""What the user holds of a training run: a context manager, and after it what of the run survives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Protocol

from leaklab.errors import ReportError
from leaklab.model.training_run import TrainingRunRecord
from leaklab.render.base import Forms, Report
from leaklab.render.training_run import run_html, run_line, run_text

if TYPE_CHECKING:
    from typing_extensions import Self

_SCHEMA = 1


class RunningMeasurement(Protocol):
    """What measures one run."""

    def begin(self) -> None:
        """Take everything alive now as the baseline."""

    def end(self, failure: str) -> TrainingRunRecord:
        """Return what of the run is left; *failure* is the name of what its block raised, empty without."""


def _fields(record: TrainingRunRecord) -> Mapping[str, object]:
    return {"schema": _SCHEMA, **asdict(record)}


class TrainingRun(Report[TrainingRunRecord]):
    """One run; used once, as a context manager. After it, `record` holds what was found.

    Args:
        name: What to call the run.
        measurement: What looks at the heap before and after; None for a run that was read from a file.

    Attributes:
        record: What was found; None until the run has ended.
    """

    _forms: ClassVar = Forms(
        kind=TrainingRunRecord,
        format="leaklab training run",
        schema=_SCHEMA,
        text=run_text,
        html=run_html,
        fields=_fields,
        old_formats=("",),  # 0.1.0 had no such files of its own: records were written by hand
    )
    record: TrainingRunRecord | None  # type: ignore[assignment]  # there is none before the end

    def __init__(self, name: str, measurement: RunningMeasurement | None = None) -> None:
        self.record = None
        self._name = name
        self._waiting = measurement
        self._running: RunningMeasurement | None = None

    @classmethod
    def _around(cls, record: TrainingRunRecord) -> Self:
        run = cls(record.name)
        run.record = record
        return run

    def _known(self) -> TrainingRunRecord:
        if self.record is None:
            msg = f"the run {self._name!r} has not ended: there is nothing to save before the end of its with block"
            raise ReportError(msg)
        return self.record

    def __enter__(self) -> Self:
        """Take everything alive now as the baseline."""
        if self._waiting is None:
            msg = f"the run {self._name!r} has been used; begin another with leaklab.training_run({self._name!r})"
            raise RuntimeError(msg)
        self._running, self._waiting = self._waiting, None
        self._running.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Look at what is left. An error of the block passes through."""
        del error, traceback  # they keep the frames of the block, and with them what the block made
        running, self._running = self._running, None
        if running is not None:
            self.record = running.end("" if kind is None else kind.__name__)

    def __repr__(self) -> str:
        return f"<leaklab.training_run({self._name!r})>" if self.record is None else f"<{run_line(self.record)}>"

    def _text(self) -> str:
        return repr(self) if self.record is None else run_text(self.record)

    def _fragment(self) -> str:
        return "" if self.record is None else run_html(self.record)
