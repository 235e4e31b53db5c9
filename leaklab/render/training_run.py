"""Write the record of a training run, and what keeps most of the heap alive, as text and as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leaklab.model.alive import HeapOverview
from leaklab.model.training_run import MemoryLevels, Survivor, TrainingRunRecord
from leaklab.render.base import Displayed
from leaklab.render.templates import render
from leaklab.render.words import cause_words, render_path
from leaklab.text import format_bytes, shorten, unit_words, visible, wrap

_N_TOLD = 5
_N_ROWS = 15
_WIDTH = 60


def run_line(record: TrainingRunRecord) -> str:
    """Return the result in one line."""
    failed = f", ended by {record.failure}" if record.failure else ""
    if not record.survivors:
        return f"run {visible(record.name)!r}: nothing of it survives{failed}"
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


def run_text(record: TrainingRunRecord) -> str:
    """Return the record as lines of at most 100 columns."""
    return "\n".join(_run_lines(record)) + "\n"


def _run_lines(record: TrainingRunRecord) -> Iterator[str]:
    yield from wrap(run_line(record), "", "  ")
    if record.earlier:
        yield from wrap(_earlier_words(record), "  ", "    ")
        for survivor in record.earlier[:_N_TOLD]:
            yield from wrap(f"{content_words((survivor,))}, held by {survivor.holder}", "    - ", "      ")
    for survivor in record.survivors[:_N_TOLD]:
        yield from wrap(
            f"{content_words((survivor,))}, {format_bytes(survivor.n_bytes)}, held by {survivor.holder}", "  * ", "    "
        )
        yield from (f"      {line}" for line in render_path(survivor.path).splitlines())
        yield from wrap(f"cause: {cause_words(survivor.cause)}", "      ", "      ")
        for line in survivor.advice.splitlines():
            own = " " * (len(line) - len(line.lstrip(" ")))
            yield from wrap(line.lstrip(" "), f"      {own}", f"      {own}")
    if len(record.survivors) > _N_TOLD:
        yield f"  and {len(record.survivors) - _N_TOLD} smaller places (record.survivors lists all)"
    for name, before, after in memory_rows(record.before, record.after):
        yield f"  {name:<28} {before:>12} before   {after:>12} after"
    for note in record.notes:
        yield from wrap(f"note: {note}", "  ", "    ")


def _earlier_words(record: TrainingRunRecord) -> str:
    n_bytes = sum(survivor.n_bytes for survivor in record.earlier)
    return f"it started while earlier models or optimizers were alive ({format_bytes(n_bytes)}), beside which it ran:"


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


def run_html(record: TrainingRunRecord) -> str:
    """Return the record as HTML without styles, scripts or ids, so that it shows in a notebook that is not trusted."""
    return str(
        render(
            "training_run.html.j2",
            run=record,
            line=run_line(record),
            earlier_words=_earlier_words(record),
            content_words=content_words,
            memory_rows=memory_rows(record.before, record.after),
            n_told=_N_TOLD,
        )
    )


@dataclass(frozen=True, slots=True, repr=False)
class HeapPicture(Displayed):
    """What a notebook shows of a `HeapOverview`; it holds the record and nothing else."""

    overview: HeapOverview

    def _text(self) -> str:
        return "\n".join(_overview_lines(self.overview))

    def __repr__(self) -> str:
        return f"<HeapPicture: {overview_words(self.overview)}>"

    def _fragment(self) -> str:
        overview = self.overview
        tables, line = _rows(overview), overview_words(overview)
        return str(render("heap_overview.html.j2", line=line, tables=tables, notes=overview.notes))


def overview_words(overview: HeapOverview) -> str:
    """Return the heap in one sentence."""
    n_bytes, count = sum(row.n_bytes for row in overview.tensors), sum(row.count for row in overview.tensors)
    tensors = "no tensor" if not count else f"{unit_words(count, 'tensors')} of {format_bytes(n_bytes)}"
    return f"{unit_words(overview.n_objects, 'objects')}, {tensors}"


def _rows(overview: HeapOverview) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Yield each list with its title: sizes, names and types in words."""
    for title, rows in (
        ("Variables, by what only they keep alive", overview.variables),
        ("Other large retainers", overview.retainers),
    ):
        cells = [
            (format_bytes(row.retained_bytes), row.expression or f"({row.place})", f"{row.kind} {row.summary}".strip())
            for row in rows[:_N_ROWS]
        ]
        yield title, cells
    tensors = [(format_bytes(row.n_bytes), f"{row.count:,} x", f"{row.kind} {row.words}") for row in overview.tensors]
    yield "Living tensors", tensors[:_N_ROWS]


def _overview_lines(overview: HeapOverview) -> Iterator[str]:
    yield f"HEAP  {overview_words(overview)}"
    for title, rows in _rows(overview):
        if rows:
            yield f"\n{title}"
            for size, name, kind in rows:
                yield f"  {size:>9}  {shorten(name, _WIDTH)}  {shorten(kind, _WIDTH)}"
