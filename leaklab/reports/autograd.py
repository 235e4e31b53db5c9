"""What an autograd graph keeps alive: what is said of it, its drawings, and what the user holds."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from leaklab.model.autograd import (
    RETENTION_SCHEMA,
    AutogradRecord,
    Drawing,
    DrawnBy,
    GraphBox,
    GraphPart,
    KeptTensor,
    Sharing,
)
from leaklab.render.base import Forms, FrameProperty, Report
from leaklab.render.document import (
    Chapter,
    Document,
    Drawn,
    Either,
    Headline,
    Points,
    RowLine,
    Table,
    Words,
    code,
    environment_of,
)
from leaklab.render.drawing import Picture
from leaklab.render.templates import ACCENT
from leaklab.reports.graphs import FAINT, FONT, on_ground
from leaklab.reports.tables import kept_csv, kept_table, part_table
from leaklab.text import SHOWN_LIMIT, clipped, columns, format_bytes, shorten, unit_words, visible

_N_TEXT_ROWS, _N_HTML_ROWS = 10, 20
_NUMBERS = "{1:>9}{2:>9}{3:>9}{4:>12}{5:>12}"
_N_NUMBER_COLUMNS = 51
_NAME_LIMIT, _CELL_LIMIT = 60, 160
_MAX_NAMED = 3
_LEAF_FILL, _PLAIN_FILL = "#e3eefa", "#f7f7f7"
_N_COLUMNS = 40
_N_READ = 1_000  # characters of a text: more than its few lines can show
_N_LINES = 3
_REDS = ("#fdf3f2", "#fbe0de", "#f6c3bf", "#f0a19b")
_WIDTH = 100
_BY_WORDS = {
    DrawnBy.NODE: "each node",
    DrawnBy.MODULE: "by module: a module's own operations and those after it, up to the next parameters",
    DrawnBy.LINE: "by forward line",
    DrawnBy.OPERATION: "by operation",
}


def document_of(record: AutogradRecord, *, is_page: bool = False) -> Document:
    """Return what is said of a graph: the sums, then by operation and line, the saved tensors, the drawings.

    Args:
        record: What the graph keeps.
        is_page: Whether all is unfolded, with every drawing; else there is the finest.
    """
    record = clipped(record, SHOWN_LIMIT)
    answer = Headline(headline(record), below=tuple(details(record)))
    drawings = record.drawings if is_page else record.drawings[:1]
    return Document(
        (
            Either((replace(answer, badge="GRAPH"),), (answer,)),
            _parts("operation", record.operations, is_open=True),
            _parts("forward line", record.lines, is_open=is_page),
            _tensors(record.tensors),
            Either(html=tuple(_picture(AutogradGraph(record.name, drawing)) for drawing in drawings)),
            Chapter("Notes", (Points(record.notes),)),
            *environment_of(record.environment),
        )
    )


def at_least(retention: AutogradRecord) -> str:
    """Return the words before a figure that may be larger."""
    return "" if retention.is_complete else "at least "


def headline(retention: AutogradRecord) -> str:
    """Return what the graphs keep, in one sentence."""
    keep = "keeps" if retention.n_nodes == 1 else "keep"
    saved = f"{format_bytes(retention.saved_bytes)} in {unit_words(retention.n_saved, 'saved tensors')}"
    return (
        f"{shorten(retention.name, _NAME_LIMIT)}: {at_least(retention)}{unit_words(retention.n_nodes, 'nodes')} {keep} "
        f"{saved}{_of_nodes(retention)}"
    )


def _of_nodes(retention: AutogradRecord) -> str:
    if not retention.node_bytes:
        return ""
    take, themselves = ("takes", "itself") if retention.n_nodes == 1 else ("take", "themselves")
    return f", and {take} about {format_bytes(retention.node_bytes)} {themselves}"


def details(retention: AutogradRecord) -> list[str]:
    """Return how those bytes divide, and what has become of the saved tensors; only what applies."""
    lines = []
    if retention.saved_bytes:
        shares = [f"{format_bytes(retention.graph_bytes)} by the graph alone"]
        if retention.leaf_bytes:
            shares.append(f"{format_bytes(retention.leaf_bytes)} shared with parameters or other leaves")
        if retention.variable_bytes:
            shares.append(f"{format_bytes(retention.variable_bytes)} shared with variables")
        lines.append("; ".join(shares))
    if retention.unsaved_leaf_bytes:
        lines.append(f"apart from that, leaves of {format_bytes(retention.unsaved_leaf_bytes)} that no operation saved")
    if retention.n_freed:
        rest = "only the nodes are left there" if retention.n_saved else "only the nodes are left"
        lines.append(f"{unit_words(retention.n_freed, 'saved tensors')} freed by a backward pass: {rest}")
    if retention.n_packed:
        were = "was" if retention.n_packed == 1 else "were"
        lines.append(
            f"{unit_words(retention.n_packed, 'saved tensors')} {were} packed by hooks, and not unpacked to look"
        )
    if retention.n_roots > 1:
        named = ", ".join(shorten(root, _NAME_LIMIT) for root in retention.roots[:_MAX_NAMED])
        more = f" and {retention.n_roots - _MAX_NAMED:,} more" if retention.n_roots > _MAX_NAMED else ""
        lines.append(f"{retention.n_roots:,} tensors with a graph: {named}{more}")
    return lines


def tensor_words(row: KeptTensor) -> str:
    """Return ``10,000 x torch.Tensor (64, 128) float32 cpu``."""
    times = f"{row.count:,} x " if row.count > 1 else ""
    kind = row.kind.removeprefix("torch.")
    return f"{times}{kind} {row.shape} {row.dtype} {row.device}"


def size_words(row: KeptTensor) -> str:
    """Return the bytes of a row, ``unknown`` where torch cannot tell."""
    return "unknown" if row.n_bytes is None else format_bytes(row.n_bytes)


def sharing_words(row: KeptTensor) -> str:
    """Return who else holds the memory of a row; empty for nobody."""
    if row.sharing is Sharing.GRAPH:
        return ""
    if row.shared_with:
        return f"memory of {row.shared_with}, nothing extra"
    return "memory of a leaf" if row.sharing is Sharing.LEAF else "memory of a variable"


def _parts(what: str, parts: Sequence[GraphPart], *, is_open: bool) -> Either:
    """Return a table of parts; what only one part saves and nobody else holds is its own."""
    names = ("nodes", "saved", "freed", "bytes", "its own")
    width = columns() - _N_NUMBER_COLUMNS
    title, column = f"By {what}", what.rpartition(" ")[2]
    line = RowLine(f"{{0:<{width - 2}}}{_NUMBERS}")
    in_text = Table((), _part_rows(parts, width - 3), (line,), n_shown=_N_TEXT_ROWS)
    titles = (column, *(f">{name}" for name in names))
    table = Table(titles, _part_rows(parts, _CELL_LIMIT), n_shown=_N_HTML_ROWS, place=f"report.{column}s")
    return Either(
        (Chapter(f"{title:<{width}}{_NUMBERS.format('', *names)}", (in_text,)),),
        (Chapter(f"{title} ({len(parts):,})", (table,) if parts else (), is_open),),
    )


def _part_rows(parts: Sequence[GraphPart], limit: int) -> tuple[tuple[Words, ...], ...]:
    return tuple(
        (
            code(shorten(part.name, limit)),
            *(f"{number:,}" for number in (part.n_nodes, part.n_saved, part.n_freed)),
            *map(format_bytes, (part.n_bytes, part.own_bytes)),
        )
        for part in parts
    )


def _tensors(tensors: Sequence[KeptTensor]) -> Either:
    title = "Saved tensors, largest first"
    lines = (RowLine("{0:>12}  {1}", 0, 14), *(RowLine(form, 14, 16) for form in ("saved by {2}", "{3}", "{4}")))
    titles = (">bytes", "tensor", "saved by", "who else holds it", "forward line")
    place = "report.tensors"
    in_text = Table((), _tensor_rows(tensors, 2 * columns()), lines, n_shown=_N_TEXT_ROWS, place=place)
    table = Table(titles, _tensor_rows(tensors, _CELL_LIMIT), n_shown=_N_HTML_ROWS, place=place)
    return Either((Chapter(title, (in_text,)),), (Chapter(f"{title} ({len(tensors):,})", (table,) if tensors else ()),))


def _tensor_rows(tensors: Sequence[KeptTensor], limit: int) -> tuple[tuple[Words, ...], ...]:
    return tuple(
        (
            size_words(row),
            code(tensor_words(row)),
            code(shorten(", ".join(row.saved_by) + (" (packed)" if row.is_packed else ""), limit)),
            shorten(sharing_words(row), limit),
            code(shorten(row.lines[0], limit)) if row.lines else "",
        )
        for row in tensors
    )


def _picture(graph: AutogradGraph) -> Chapter:
    return Chapter(f"Drawn by {graph.drawing.by.value}", (Drawn(lambda: graph.markup),))


@dataclass(frozen=True, slots=True, repr=False)
class AutogradGraph(Picture):
    """One drawing of a graph. It holds nothing but the record, and is drawn anew each time it is asked for."""

    name: str
    drawing: Drawing

    @property
    def title(self) -> str:
        """What is drawn, and how it was put together."""
        return f"graph of {shorten(self.name, _NAME_LIMIT)}, {_BY_WORDS[self.drawing.by]}"

    @property
    def dot(self) -> str:
        """The graph as DOT text; arrows point at what is kept alive."""
        return "\n".join(_dot_lines(self.drawing, self.title))

    @property
    def alt(self) -> str:
        """What is drawn."""
        return self.title

    def _text(self) -> str:
        return "\n".join(_text_lines(self.drawing, self.title))

    def __repr__(self) -> str:
        return f"<AutogradGraph by {self.drawing.by.value}: {len(self.drawing.boxes)} boxes; str() shows them>"


def box_words(box: GraphBox) -> str:
    """Return ``1,000 nodes, 31.3 MiB``."""
    words = [f"{box.n_nodes:,} nodes"] if box.n_nodes > 1 else []
    words += [format_bytes(box.n_bytes)] if box.n_bytes else []
    return ", ".join(words)


def _text_lines(drawing: Drawing, title: str) -> Iterator[str]:
    """Yield each box with what it refers to."""
    yield from textwrap.wrap(visible(title), _WIDTH)
    for place, box in enumerate(drawing.boxes):
        mark = "*" if box.is_root else " "
        words = ", ".join(filter(None, (box_words(box), shorten(box.note, _NAME_LIMIT))))
        yield shorten(f"{mark} [{place}] {shorten(box.name, _NAME_LIMIT)}" + (f": {words}" if words else ""), _WIDTH)
        targets = [
            f"[{end}]" + (f" x{count:,}" if count > 1 else "") for start, end, count in drawing.links if start == place
        ]
        if targets:
            yield from textwrap.wrap(" ".join(targets), _WIDTH, initial_indent="      -> ", subsequent_indent=" " * 9)


def _dot_lines(drawing: Drawing, title: str) -> Iterator[str]:
    yield "digraph {"
    yield f'graph [rankdir=TB bgcolor=transparent fontname="{FONT}" fontsize=10 nodesep=0.3 ranksep=0.35 pad=0.15'
    yield "labelloc=b"
    yield f"label={on_ground(html.escape(visible(title)))}]"
    yield f'node [shape=box style="rounded,filled" fontname="{FONT}" fontsize=11 height=0.3 color="{FAINT}"]'
    yield f'edge [fontname="{FONT}" fontsize=9 color="{FAINT}" arrowsize=0.7]'
    most = max((box.n_bytes for box in drawing.boxes), default=0)
    for place, box in enumerate(drawing.boxes):
        frame = f' color="{ACCENT}" penwidth=2' if box.is_root else ""
        yield f'b{place} [label={_label(box)} fillcolor="{_fill(box, most)}"{frame}]'
    for start, end, count in drawing.links:
        label = f" [label={on_ground(f' {count:,} ')}]" if count > 1 else ""
        yield f"b{start} -> b{end}{label}"
    yield "}"


def _label(box: GraphBox) -> str:
    parts = [f"<B>{_lines(box.name)}</B>"]
    if words := box_words(box):
        parts.append(_lines(words))
    if box.note:
        parts.append(f'<FONT POINT-SIZE="9" COLOR="{FAINT}">{_lines(box.note)}</FONT>')
    return f"<{'<BR/>'.join(parts)}>"


def _lines(text: str) -> str:
    lines = textwrap.wrap(visible(text[:_N_READ]), _N_COLUMNS, break_on_hyphens=False) or ["?"]
    if len(lines) > _N_LINES:
        lines = [*lines[: _N_LINES - 1], "..."]
    return "<BR/>".join(map(html.escape, lines))


def _fill(box: GraphBox, most: int) -> str:
    """Return a red the deeper the more a box keeps, blue for leaves."""
    if box.is_leaf:
        return _LEAF_FILL
    if not box.n_bytes:
        return _PLAIN_FILL
    return _REDS[min(len(_REDS) * box.n_bytes // most, len(_REDS) - 1)]


_FORMS = Forms(
    kind=AutogradRecord,
    format="leaklab autograd",
    schema=RETENTION_SCHEMA,
    document=document_of,
    title=lambda record: f"graph of {shorten(record.name, _CELL_LIMIT)}",
    more={
        ".csv": kept_csv,
        ".svg": lambda record: AutogradReport(record).graph().svg_file(),
        ".dot": lambda record: AutogradReport(record).graph().dot,
    },
)
AUTOGRAD_SUFFIXES: Final = _FORMS.suffixes
"""Of the files that a report can be saved to."""


@dataclass(frozen=True, slots=True, repr=False)
class AutogradReport(Report[AutogradRecord]):
    """What a graph keeps alive.

    It holds the record and nothing else, so it can be pickled and keeps nothing of the user's alive.

    Attributes:
        record: The record, with every figure.
    """

    _forms: ClassVar = _FORMS
    record: AutogradRecord

    operations = FrameProperty(lambda record: part_table(record.operations, "operation"))
    """The operations, most bytes first."""
    lines = FrameProperty(lambda record: part_table(record.lines, "line"))
    """The lines of the forward pass, most bytes first; empty where anomaly mode did not record them."""
    tensors = FrameProperty(kept_table)
    """The saved tensors, largest first."""

    @property
    def retention(self) -> AutogradRecord:
        """The record, by its older name."""
        return self.record

    def graph(self, by: str = "") -> AutogradGraph:
        """Return the graph drawn: by node where it is small, else by module, forward line or operation.

        Args:
            by: ``node``, ``module``, ``line`` or ``operation``; without it the finest that there is.

        Raises:
            ValueError: if there is no such drawing of this graph; the message lists those there are.
        """
        drawings = {drawing.by.value: drawing for drawing in self.record.drawings}
        chosen = by or next(iter(drawings))
        if chosen not in drawings:
            every = [each.value for each in DrawnBy]
            why = "is none of" if chosen not in every else "is not possible for this graph; there are"
            msg = f"by={chosen!r} {why} {', '.join(every if chosen not in every else drawings)}"
            raise ValueError(msg)
        return AutogradGraph(self.record.name, drawings[chosen])

    def __repr__(self) -> str:
        return f"<AutogradReport {headline(self.record)}>"
