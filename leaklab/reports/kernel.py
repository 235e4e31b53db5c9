"""What in a kernel takes memory, or piles up: what is said of it, a line each, and what the user holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from leaklab.model.kernel import KERNEL_SCHEMA, CellGrowth, DeviceLevels, KernelRecord, Suspect, Suspicion
from leaklab.model.sentences import quoted
from leaklab.render.base import Forms, Report
from leaklab.render.document import (
    Document,
    Either,
    Headline,
    NextCell,
    Remark,
    RowLine,
    Styled,
    Table,
    Tone,
    Typeface,
    faint,
    marked,
    notes_of,
)
from leaklab.text import clipped, format_bytes, shorten, signed_bytes, unit_words

N_LINES = 5
_N_CELLS = 4
_WHERE_LIMIT, _WHAT_LIMIT, _REPR_LIMIT = 100, 80, 100
_NOTHING = "nothing stands out in this kernel"
_FAR_MORE = 2
"""Who has so many times as much as the likeliest mistake is named in the first line."""
_TITLE = "what this kernel keeps, the likeliest mistake first"


def document_of(record: KernelRecord, *, is_page: bool = False) -> Document:
    """Return what is said of a kernel: at most `N_LINES` lines, each with what to run next."""
    record = clipped(record)
    levels = _levels_words(record)
    if not record.suspects:
        return Document((Headline(f"{_NOTHING}: {levels}", Tone.GOOD), *notes_of(record.notes)))
    shown = record.suspects[:N_LINES]
    rows = tuple((_amount(one), sentence(one), *_two(one.command)) for one in shown)
    lines = (RowLine("{0:>10}  {1}", hang=14), RowLine("{2}", 14, 16), RowLine("{3}", 14, 16))
    as_text = Table((">amount", "what", "next", "and then"), rows, lines)
    buttons = tuple(
        (Styled(_amount(one), Typeface.UNBROKEN), marked(sentence(one)), NextCell(one.command, has_button=not is_page))
        for one in shown
    )
    blocks = [
        Headline(_TITLE, _tone(shown[0]), (marked(f"{levels}{_most_words(record)}"),)),
        Either(text=(as_text,), html=(Table((">amount", "what", "run next"), buttons),)),
    ]
    if n_more := len(record.suspects) - len(shown):
        blocks.append(Remark(faint(f"and {n_more:,} more: in report.record.suspects after %leaks -v report"), indent=2))
    if cells := _cells_words(record.cells):
        blocks.append(Remark(cells, indent=2))
    return Document((*blocks, *notes_of(record.notes, indent=2)))


def sentence(suspect: Suspect) -> str:
    """Return what *suspect* is, without its amount."""
    return _SENTENCES[suspect.kind](suspect)


def _two(command: str) -> tuple[str, str]:
    """Return the two lines of a command, the second often empty."""
    first, _, second = command.partition("\n")
    return first, second


def _outputs(suspect: Suspect) -> str:
    results = unit_words(suspect.count, "results")
    return f"`Out` remembers {results} that no variable holds{_largest(suspect)}"


def _exception(suspect: Suspect) -> str:
    return f"the last error ({suspect.where}) keeps the variables of its functions{_largest(suspect)}"


def _figures(suspect: Suspect) -> str:
    figures = f"{unit_words(suspect.count, 'figures')} of matplotlib"
    kept = f"{figures} were never closed" if suspect.where == "pyplot" else f"{_where(suspect)} keeps {figures}"
    return f"{kept}; their drawings in C++, of unknown size, come on top"


def _hooks(suspect: Suspect) -> str:
    name, _, place = suspect.where.partition(" on ")
    times = f"{suspect.count:,} times" if suspect.each == suspect.count else f"{suspect.count:,} times in all"
    return f"the hook `{name}` is registered {times} on {_in_code(place)}{_largest(suspect)}"


def _callbacks(suspect: Suspect) -> str:
    name, _, place = suspect.where.partition(" in ")
    return f"{_in_code(place)} has {name} {suspect.count:,} times"


def _graphs(suspect: Suspect) -> str:
    graphs = "the graph behind it" if suspect.count == 1 else f"the graphs of {suspect.count:,} tensors"
    return f"{_where(suspect)} keeps {graphs}{_largest(suspect)}"


def _cell(suspect: Suspect) -> str:
    each = f"{suspect.each:,.0f} small objects" if not suspect.n_bytes else format_bytes(suspect.each)
    line = f" (`{suspect.what}`)" if suspect.what else ""
    return f"{suspect.where}{line}: each of its last {suspect.count:,} executions added {each}"


def _holder(suspect: Suspect) -> str:
    if not suspect.count:
        return f"{_where(suspect)} ({suspect.what})"
    if not suspect.where or ": " in suspect.where:
        many = f"{suspect.count:,} {suspect.unit}{_largest(suspect)}"
        reason = suspect.where or "who holds it is unknown"
        return f"{many if suspect.count > 1 else suspect.what}: {shorten(reason, _WHERE_LIMIT)}"
    if suspect.count == 1:
        return f"{_where(suspect)} holds {suspect.what}"
    return f"{_where(suspect)} holds {suspect.count:,} {suspect.unit}{_largest(suspect)}"


def _device(suspect: Suspect) -> str:
    if suspect.what == "unused":
        return f"torch has reserved it on {suspect.where} and does not use it"
    return f"allocated on {suspect.where} by what is unknown: no tensor of Python uses it"


_SENTENCES: Mapping[Suspicion, Callable[[Suspect], str]] = {
    Suspicion.OUTPUTS: _outputs,
    Suspicion.EXCEPTION: _exception,
    Suspicion.FIGURES: _figures,
    Suspicion.HOOKS: _hooks,
    Suspicion.CALLBACKS: _callbacks,
    Suspicion.GRAPHS: _graphs,
    Suspicion.CELL: _cell,
    Suspicion.HOLDER: _holder,
    Suspicion.DEVICE: _device,
}


def _where(suspect: Suspect) -> str:
    return _in_code(suspect.where)


def _in_code(where: str) -> str:
    """Return *where* between backticks, if it is no sentence."""
    where = shorten(where, _WHERE_LIMIT)
    return where if " " in where and "[" not in where and "(" not in where else f"`{where}`"


def _largest(suspect: Suspect) -> str:
    return f"; the largest is {shorten(suspect.what, _WHAT_LIMIT)}" if suspect.what else ""


def _amount(suspect: Suspect) -> str:
    if suspect.kind is Suspicion.CELL and not suspect.n_bytes:
        return f"{suspect.each * suspect.count:,.0f} objects"
    return format_bytes(suspect.n_bytes)


def _tone(first: Suspect) -> Tone:
    return Tone.CALM if first.kind is Suspicion.HOLDER else Tone.DOUBTFUL


def _levels_words(record: KernelRecord) -> str:
    """Return how much there is, in one line."""
    tensors = f"{unit_words(record.n_tensors, 'tensors')} of {format_bytes(record.tensor_bytes)}"
    parts = [tensors if record.n_tensors else "no tensor"]
    parts += [_device_words(one) for one in record.devices]
    return ", ".join((*parts, f"the process {format_bytes(record.rss)}"))


def _most_words(record: KernelRecord) -> str:
    """Say who has most, where that is not the likeliest mistake; the added memory of a cell is somebody's."""
    holders = [one for one in record.suspects if one.kind not in (Suspicion.CELL, Suspicion.DEVICE)]
    most = max(holders, key=lambda one: one.n_bytes, default=None)
    if most is None or most.n_bytes < _FAR_MORE * holders[0].n_bytes:
        return ""
    return f"; the largest part, {format_bytes(most.n_bytes)}, is in {quoted(shorten(most.where, _WHERE_LIMIT))}"


def _device_words(one: DeviceLevels) -> str:
    return f"{one.device} {format_bytes(one.allocated)} allocated of {format_bytes(one.reserved)} reserved"


def _cells_words(cells: tuple[CellGrowth, ...]) -> str:
    """Return what cells added, in one line."""
    return f"added by cells: {', '.join(_each_cell(cells))}" if cells else ""


def _each_cell(cells: tuple[CellGrowth, ...]) -> Iterator[str]:
    for cell in cells[:_N_CELLS]:
        times = f" in {cell.n_runs:,} executions" if cell.n_runs > 1 else ""
        yield f"In[{cell.number}] {signed_bytes(cell.n_bytes)}{times}"


@dataclass(frozen=True, slots=True, repr=False)
class KernelReport(Report[KernelRecord]):
    """What a kernel keeps, made by ``%leaks``.

    Attributes:
        record: Everything that was found out; nothing of the user's is in it.
    """

    _forms: ClassVar = Forms(
        kind=KernelRecord,
        format="leaklab kernel",
        schema=KERNEL_SCHEMA,
        document=document_of,
        title=lambda _record: "A notebook's kernel",
    )
    record: KernelRecord

    @property
    def commands(self) -> tuple[str, ...]:
        """What to run next, the likeliest first; empty where nothing is known."""
        return tuple(suspect.command for suspect in self.record.suspects)

    def __repr__(self) -> str:
        first = sentence(self.record.suspects[0]) if self.record.suspects else _NOTHING
        return f"<KernelReport: {shorten(first, _REPR_LIMIT)}>"


SUFFIXES: Final = KernelReport._forms.suffixes  # noqa: SLF001 - our own
"""Of the files that a report can be saved to."""
