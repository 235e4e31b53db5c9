"""What of a training run survives: what is said of it, and the context manager that the user holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Protocol

from leaklab.errors import ReportError
from leaklab.model.process import MemoryLevels, Survivor, TrainingRunRecord
from leaklab.render.base import Forms, Report
from leaklab.render.document import (
    Bullet,
    Document,
    DocumentBlock,
    Either,
    Headline,
    Lines,
    Panel,
    Prose,
    Remark,
    RowLine,
    Table,
    Tone,
    code,
    faint,
    notes_of,
)
from leaklab.render.words import cause_words, render_path
from leaklab.render.writers import text_of
from leaklab.text import format_bytes, unit_words, visible

if TYPE_CHECKING:
    from typing_extensions import Self

_SCHEMA = 1
_N_SHOWN = 5


def document_of(record: TrainingRunRecord) -> Document:
    """Return what is said of a run: what survives it, who holds that, and the memory before and after."""
    blocks: list[DocumentBlock] = [Headline(run_line(record), Tone.BAD if record.survivors else Tone.GOOD)]
    if record.earlier:
        lines = tuple(
            (f"{content_words((survivor,))}, held by ", code(survivor.holder)) for survivor in record.earlier[:_N_SHOWN]
        )
        blocks.append(Panel(_earlier_words(record), Tone.DOUBTFUL, lines))
    blocks += map(_survivor, record.survivors[:_N_SHOWN])
    if len(record.survivors) > _N_SHOWN:
        rest = f"and {unit_words(len(record.survivors) - _N_SHOWN, 'smaller places')} (record.survivors lists all)"
        blocks.append(Either(text=(Remark(rest, indent=2),)))
    rows = tuple(memory_rows(record.before, record.after))
    table = Table(("memory", "before", "after"), rows, (RowLine("{0:<28} {1:>12} before   {2:>12} after"),))
    return Document((*blocks, table, *notes_of(record.notes, indent=2)))


def _survivor(survivor: Survivor) -> Bullet:
    path, cause = survivor.path, cause_words(survivor.cause)
    return Bullet(
        (f"{content_words((survivor,))}, {format_bytes(survivor.n_bytes)}, held by ", code(survivor.holder)),
        (
            Either(text=(Lines(tuple(render_path(path).splitlines())),), html=(Remark(faint(str(path))),)),
            Remark(faint(cause), f"cause: {cause}", hang=0),
            Prose(survivor.advice),
        ),
    )


def run_text(record: TrainingRunRecord) -> str:
    """Return *record* as lines."""
    return text_of(document_of(record))


def run_line(record: TrainingRunRecord) -> str:
    """Return the result in one line."""
    failed = f", ended by {record.failure}" if record.failure else ""
    if not record.survivors:
        return f"run {visible(record.name)!r}: none of its objects survive{failed}"
    places = len(record.survivors)
    return (
        f"run {visible(record.name)!r}: {content_words(record.survivors)} survive, "
        f"{format_bytes(sum(s.n_bytes for s in record.survivors))} in {unit_words(places, 'places')}{failed}"
    )


def content_words(survivors: Sequence[Survivor]) -> str:
    """Return how many models, optimizers and tensors there are: ``1 Net, 1 optimizer, 12 tensors``."""
    models: dict[str, int] = {}
    for survivor in survivors:
        for name, count in survivor.models:
            models[name] = models.get(name, 0) + count
    words = [f"{count:,} {name}" for name, count in sorted(models.items())]
    n_optimizers = sum(s.n_optimizers for s in survivors)
    n_tensors = sum(s.n_tensors for s in survivors)
    words += [unit_words(n_optimizers, "optimizers")] if n_optimizers else []
    words += [unit_words(n_tensors, "tensors")] if n_tensors else []
    return ", ".join(words) or unit_words(sum(s.n_objects for s in survivors), "objects")


def _earlier_words(record: TrainingRunRecord) -> str:
    n_bytes = sum(survivor.n_bytes for survivor in record.earlier)
    return f"when it started, earlier models or optimizers were still alive ({format_bytes(n_bytes)}):"


def memory_rows(before: MemoryLevels, after: MemoryLevels) -> Iterator[tuple[str, str, str]]:
    """Yield name, level before and level after; a peak that did not move lies outside of the run, and is left out."""
    yield "tensors", format_bytes(before.tensors), format_bytes(after.tensors)
    if before.accelerator is not None and after.accelerator is not None:
        yield "accelerator", format_bytes(before.accelerator), format_bytes(after.accelerator)
    yield "process (resident)", format_bytes(before.rss), format_bytes(after.rss)
    for name, low, high in (
        ("peak of the accelerator", before.peak_accelerator, after.peak_accelerator),
        ("peak of the process", before.peak_rss, after.peak_rss),
    ):
        if low is not None and high is not None and high > low:
            yield name, format_bytes(low), format_bytes(high)


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
        document=document_of,
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
        """Typeface at what is left. An error of the block passes through."""
        del error, traceback  # they keep the frames of the block, and with them what the block made
        running, self._running = self._running, None
        if running is not None:
            self.record = running.end("" if kind is None else kind.__name__)

    def __repr__(self) -> str:
        return f"<leaklab.training_run({self._name!r})>" if self.record is None else f"<{run_line(self.record)}>"

    def _text(self) -> str:
        return repr(self) if self.record is None else super()._text()

    def _fragment(self) -> str:
        return "" if self.record is None else super()._fragment()
