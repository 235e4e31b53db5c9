"""Write the record of a process as plain text of at most 100 columns, in words that its page shares."""

from __future__ import annotations

from collections.abc import Iterator

from leaklab.model.monitor import MonitorStatus
from leaklab.model.paths import RootPath
from leaklab.model.process import HeldTensors, ProcessLevels, ProcessRecord
from leaklab.text import clipped, format_bytes, format_seconds, shorten, unit_words, wrap

_N_REFERENCES = 9
_N_KINDS = 12
_HOLDER_LIMIT = 200
_PROGRAM_LIMIT = 300


def title_words(record: ProcessRecord) -> str:
    """Return which process it is, and when."""
    return f"process {record.pid} at {record.made_at}"


def level_rows(levels: ProcessLevels) -> Iterator[tuple[str, str]]:
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


def heap_words(record: ProcessRecord) -> str:
    """Return how much there is in one sentence; empty if the heap was not looked at."""
    if not record.n_objects:
        return ""
    objects = unit_words(record.n_objects, "objects")
    if not record.n_tensors:
        return f"{objects}, no tensor"
    return f"{objects}, {unit_words(record.n_tensors, 'tensors')} of {format_bytes(record.tensor_bytes)}"


def tensors_words(held: HeldTensors) -> str:
    """Return how many tensors one place holds, and of what kind."""
    if held.n_tensors == 1:
        return held.what
    return f"{unit_words(held.n_tensors, held.unit)}, the largest {format_bytes(held.largest_bytes)}: {held.what}"


def holder_words(held: HeldTensors) -> str:
    """Return who holds them."""
    return shorten(held.holder, _HOLDER_LIMIT) or "(holder not known)"


def path_words(path: RootPath) -> str:
    """Return the references from the root to a tensor in one line; a long path, through a graph, loses its middle."""
    references = [step.reference for step in path.steps]
    if len(references) > _N_REFERENCES:
        left_out = len(references) - _N_REFERENCES + 1
        references[_N_REFERENCES // 2 : _N_REFERENCES // 2 + left_out] = [f"({left_out:,} more)"]
    return f"from {path.root}: {'  '.join(references)}"


def monitor_words(status: MonitorStatus) -> str:
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


def kind_rows(record: ProcessRecord) -> tuple[tuple[str, str], ...]:
    """Return count and name of the types that most objects have."""
    return tuple((f"{row.count:,}", row.kind) for row in record.kinds[:_N_KINDS])


def closing_words(record: ProcessRecord) -> str:
    """Return what the report cost, and of which versions it tells."""
    versions = ", ".join(f"{name} {version}" for name, version in record.environment)
    return f"made in {format_seconds(record.seconds)}; {versions}"


def render_process(record: ProcessRecord) -> str:
    """Return *record* as lines of at most 100 columns."""
    return "\n".join(_lines(clipped(record))) + "\n"


def _lines(record: ProcessRecord) -> Iterator[str]:
    yield from wrap(record.occasion, "", "  ")
    yield from wrap(title_words(record), "  ", "  ")
    if record.program:
        yield from wrap(shorten(record.program, _PROGRAM_LIMIT), "  ", "    ")
    yield from _part("Memory", (f"{name:<28} {size}" for name, size in level_rows(record.levels)))
    yield from _part("Monitors", map(monitor_words, record.monitors))
    yield from _part("Where it was, innermost call last", record.stack)
    if record.n_objects:
        yield ""
        yield from wrap(f"Largest tensors and arrays by holder ({heap_words(record)})")
    for held in record.tensors:
        yield from wrap(f"{format_bytes(held.n_bytes):>9}  {holder_words(held)}", "  ", " " * 13)
        yield from wrap(tensors_words(held), " " * 13, " " * 13)
        if held.path is not None:
            yield from wrap(path_words(held.path), " " * 13, " " * 15)
    yield from _part("Objects by type", (f"{count:>12}  {kind}" for count, kind in kind_rows(record)))
    yield from _part("Beside this file", record.files)
    yield ""
    for note in record.notes:
        yield from wrap(f"note: {note}", "", "  ")
    yield from wrap(closing_words(record))


def _part(title: str, lines: Iterator[str] | tuple[str, ...]) -> Iterator[str]:
    """Yield *lines* below their title; nothing where there are none."""
    for number, line in enumerate(lines):
        if not number:
            yield ""
            yield title
        yield from wrap(line, "  ", "    ")
