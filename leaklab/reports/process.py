"""What a process held when it ran out of memory, or when somebody asked: what is said of it, what the user holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from leaklab.model.loop import MonitorStatus
from leaklab.model.paths import RootPath
from leaklab.model.process import PROCESS_SCHEMA, HeldTensors, ProcessLevels, ProcessRecord
from leaklab.render.base import Forms, Report
from leaklab.render.document import (
    Chapter,
    Document,
    DocumentBlock,
    Either,
    Gap,
    Headline,
    Panel,
    Remark,
    RowLine,
    Table,
    Tone,
    code,
    faint,
    notes_of,
)
from leaklab.text import clipped, format_bytes, format_seconds, shorten, unit_words

_N_REFERENCES = 9
_N_KINDS = 12
_HOLDER_LIMIT = 200
_OCCASION_LIMIT = 100


def document_of(record: ProcessRecord) -> Document:
    """Return what is said of a process: its memory, who holds it, where it was."""
    record = clipped(record)
    stack = Chapter("Where it was, innermost call last", tuple(Remark(code(call), indent=2) for call in record.stack))
    files = (Remark(("beside this file: ", code(name)), name, indent=2) for name in record.files)
    blocks: tuple[DocumentBlock, ...] = (
        Headline(record.occasion, Tone.BAD, (_title_words(record), code(record.program))),
        Chapter("Memory", (_levels(record.levels),), is_open=None),
        Chapter("Monitors", tuple(map(_monitor, record.monitors)), is_open=None),
        Either(text=(stack,)),
        *_tensors(record),
        Either(html=(stack,)),
        *_kinds(record),
        Chapter("Beside this file", tuple(files), is_open=None),
        Gap(),
        *notes_of(record.notes),
        Remark(faint(_closing_words(record)), hang=0),
    )
    return Document(blocks)


def _levels(levels: ProcessLevels) -> Table:
    return Table(("memory", ">size"), tuple(_level_rows(levels)), (RowLine("{0:<28} {1}"),))


def _monitor(status: MonitorStatus) -> Panel:
    return Panel(_monitor_words(status), Tone.DOUBTFUL if status.is_alarm else Tone.CALM)


def _tensors(record: ProcessRecord) -> tuple[DocumentBlock, ...]:
    title = f"Largest tensors and arrays by holder ({_heap_words(record)})"
    if not record.tensors:
        return (Either(text=(Gap(), Remark(title, hang=0))),) if record.n_objects else ()
    rows = tuple(
        (
            format_bytes(held.n_bytes),
            code(_holder_words(held)),
            _tensors_words(held),
            faint("" if held.path is None else _path_words(held.path)),
        )
        for held in record.tensors
    )
    lines = (RowLine("{0:>9}  {1}", hang=13), RowLine("{2}", 13, 13), RowLine("{3}", 13, 15))
    return (Chapter(title, (Table((">size", "holder", "what"), rows, lines),)),)


def _kinds(record: ProcessRecord) -> tuple[DocumentBlock, ...]:
    """Return the types that most objects have."""
    rows = tuple((f"{row.count:,}", row.kind) for row in record.kinds[:_N_KINDS])
    table = Table((">objects", "type"), rows, (RowLine("{0:>12}  {1}"),))
    return (Chapter("Objects by type", (table,), is_open=False),) if rows else ()


def _title_words(record: ProcessRecord) -> str:
    """Return which process it is, and when."""
    return f"process {record.pid} at {record.made_at}"


def _level_rows(levels: ProcessLevels) -> Iterator[tuple[str, str]]:
    """Yield name and size of each level that is known."""
    yield "process (resident)", format_bytes(levels.rss)
    for name, level in (
        ("handed out by malloc", levels.heap),
        ("accelerators, allocated", levels.accelerator),
        ("accelerators, reserved", levels.reserved),
    ):
        if level is not None:
            yield name, format_bytes(level)
    if levels.limit is not None:
        used = "" if levels.limit_used is None else f"{format_bytes(levels.limit_used)} of "
        yield levels.limit_words, f"{used}{format_bytes(levels.limit)}"


def _heap_words(record: ProcessRecord) -> str:
    """Return how much there is in one sentence; empty if the heap was not looked at."""
    if not record.n_objects:
        return ""
    objects = unit_words(record.n_objects, "objects")
    if not record.n_tensors:
        return f"{objects}, no tensor"
    return f"{objects}, {unit_words(record.n_tensors, 'tensors')} of {format_bytes(record.tensor_bytes)}"


def _tensors_words(held: HeldTensors) -> str:
    """Return how many tensors one place holds, and of what kind."""
    if held.n_tensors == 1:
        return held.what
    return f"{unit_words(held.n_tensors, held.unit)}, the largest {format_bytes(held.largest_bytes)}: {held.what}"


def _holder_words(held: HeldTensors) -> str:
    """Return who holds them."""
    return shorten(held.holder, _HOLDER_LIMIT) or "(holder not known)"


def _path_words(path: RootPath) -> str:
    """Return the references from the root to a tensor in one line; a long path, through a graph, loses its middle."""
    references = [step.reference for step in path.steps]
    if len(references) > _N_REFERENCES:
        left_out = len(references) - _N_REFERENCES + 1
        references[_N_REFERENCES // 2 : _N_REFERENCES // 2 + left_out] = [f"({left_out:,} more)"]
    return f"from {path.root}: {'  '.join(references)}"


def _monitor_words(status: MonitorStatus) -> str:
    """Return where one monitor stands, in one line."""
    of = "" if status.total_steps is None else f" of {status.total_steps:,}"
    parts = [f"step {status.step:,}{of}", status.state.value]
    if status.bytes_per_step > 0:
        parts.append(f"{format_bytes(status.bytes_per_step)} a step")
    if status.holder:
        parts.append(f"held by {shorten(status.holder, _HOLDER_LIMIT)}")
    if status.full_at_step is not None:
        parts.append(f"memory is full at step {status.full_at_step:,}")
    name = f"{status.name}: " if status.name else ""
    return f"{name}{', '.join(parts)}"


def _closing_words(record: ProcessRecord) -> str:
    """Return what the report cost, and of which versions it tells."""
    versions = ", ".join(f"{name} {version}" for name, version in record.environment)
    return f"made in {format_seconds(record.seconds)}; {versions}"


@dataclass(frozen=True, slots=True, repr=False)
class ProcessReport(Report[ProcessRecord]):
    """A process at one moment, made by `leaklab.on_oom` and `leaklab.listen`.

    Attributes:
        record: Everything that was found out; nothing of the user's is in it.
    """

    _forms: ClassVar = Forms(
        kind=ProcessRecord,
        format="leaklab process",
        schema=PROCESS_SCHEMA,
        document=document_of,
    )
    record: ProcessRecord

    @property
    def holders(self) -> tuple[str, ...]:
        """Who holds the largest tensors, the most bytes first."""
        return tuple(held.holder for held in self.record.tensors)

    def __repr__(self) -> str:
        return f"<ProcessReport {self.record.pid}: {shorten(self.record.occasion, _OCCASION_LIMIT)}>"
