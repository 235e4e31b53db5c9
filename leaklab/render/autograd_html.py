"""Write what a graph keeps as HTML: a fragment for a notebook's output, or a page of its own."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leaklab.model.autograd import AutogradRecord, Drawing, DrawnBy, GraphBox, GraphPart, KeptTensor
from leaklab.render.autograd_text import details, headline, sharing_words, size_words, tensor_words
from leaklab.render.drawing import Picture
from leaklab.render.html_parts import CALM, bullets, code, escaped, faint, fold, page, panel, table
from leaklab.text import SHOWN_LIMIT, clipped, format_bytes, shorten, visible

# Show a drawing of a graph as a picture, or as text where nothing here can draw.


_FAINT, _ACCENT = "#777777", "#d64541"
_LEAF_FILL, _PLAIN_FILL = "#e3eefa", "#f7f7f7"
_FONT = "Helvetica,Arial,sans-serif"
_N_COLUMNS = 40
_N_READ = 1_000  # characters of a text: more than its few lines can show
_N_LINES = 3
_REDS = ("#fdf3f2", "#fbe0de", "#f6c3bf", "#f0a19b")
_NAME_LIMIT = 60
_WIDTH = 100
_BY_WORDS = {
    DrawnBy.NODE: "each node",
    DrawnBy.MODULE: "by module: a module's own operations and those after it, up to the next parameters",
    DrawnBy.LINE: "by forward line",
    DrawnBy.OPERATION: "by operation",
}


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

    def __str__(self) -> str:
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
    yield f'graph [rankdir=TB bgcolor=white fontname="{_FONT}" fontsize=10 nodesep=0.3 ranksep=0.35 pad=0.15 labelloc=b'
    yield f"label=<{html.escape(visible(title))}>]"
    yield f'node [shape=box style="rounded,filled" fontname="{_FONT}" fontsize=11 height=0.3 color="{_FAINT}"]'
    yield f'edge [fontname="{_FONT}" fontsize=9 color="{_FAINT}" arrowsize=0.7]'
    most = max((box.n_bytes for box in drawing.boxes), default=0)
    for place, box in enumerate(drawing.boxes):
        frame = f' color="{_ACCENT}" penwidth=2' if box.is_root else ""
        yield f'b{place} [label={_label(box)} fillcolor="{_fill(box, most)}"{frame}]'
    for start, end, count in drawing.links:
        label = f' [label=" {count:,} "]' if count > 1 else ""
        yield f"b{start} -> b{end}{label}"
    yield "}"


def _label(box: GraphBox) -> str:
    parts = [f"<B>{_lines(box.name)}</B>"]
    if words := box_words(box):
        parts.append(_lines(words))
    if box.note:
        parts.append(f'<FONT POINT-SIZE="9" COLOR="{_FAINT}">{_lines(box.note)}</FONT>')
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


_STYLE = (
    "font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;"
    "font-size:14px;line-height:1.45;color:inherit;max-width:1000px"
)
_N_ROWS = 20
_CELL_LIMIT = 160
_PART_NAMES = ("nodes", "saved", "freed", "bytes", "its own")
_TENSOR_NAMES = ("bytes", "tensor", "saved by", "who else holds it", "forward line")
_RIGHT = frozenset({*_PART_NAMES})


def retention_fragment(retention: AutogradRecord, *, is_page: bool = False) -> str:
    """Return the record as a fragment that survives the sanitizers of notebooks; all unfolded on a page."""
    retention = clipped(retention, SHOWN_LIMIT)
    lines = [f'<div style="font-weight:600">{escaped(headline(retention))}</div>']
    lines += [f"<div>{escaped(line)}</div>" for line in details(retention)]
    blocks = [panel("".join(lines), CALM), *_tables(retention, is_page=is_page)]
    for drawing in retention.drawings if is_page else retention.drawings[:1]:
        drawn = AutogradGraph(retention.name, drawing).markup
        blocks.append(fold(escaped(f"Drawn by {drawing.by.value}"), drawn, is_open=True))
    if retention.notes:
        blocks.append(fold("Notes", bullets([escaped(note) for note in retention.notes]), is_open=True))
    blocks.append(faint(escaped(", ".join(f"{name} {version}" for name, version in retention.environment))))
    return f'<div style="{_STYLE}">{"".join(blocks)}</div>'


def retention_page(retention: AutogradRecord) -> str:
    """Return the record as a page of its own that asks nothing of any server."""
    return page(f"graph of {shorten(retention.name, _CELL_LIMIT)}", retention_fragment(retention, is_page=True))


def _tables(retention: AutogradRecord, *, is_page: bool) -> Iterator[str]:
    for title, name, parts in (
        ("By operation", "operation", retention.operations),
        ("By forward line", "line", retention.lines),
    ):
        if parts:
            yield fold(f"{title} ({len(parts):,})", _part_table(name, parts), is_open=is_page or name == "operation")
    if retention.tensors:
        yield fold(
            f"Saved tensors, largest first ({len(retention.tensors):,})",
            table(_TENSOR_NAMES, [_tensor_cells(row) for row in retention.tensors[:_N_ROWS]], right=_RIGHT)
            + _more(len(retention.tensors), "tensors"),
            is_open=True,
        )


def _part_table(name: str, parts: Sequence[GraphPart]) -> str:
    rows = [
        (
            code(shorten(part.name, _CELL_LIMIT)), f"{part.n_nodes:,}", f"{part.n_saved:,}", f"{part.n_freed:,}",
            format_bytes(part.n_bytes), format_bytes(part.own_bytes),
        )
        for part in parts[:_N_ROWS]
    ]  # fmt: skip
    return table((name, *_PART_NAMES), rows, right=_RIGHT) + _more(len(parts), f"{name}s")


def _tensor_cells(row: KeptTensor) -> tuple[str, ...]:
    savers = ", ".join(row.saved_by) + (" (packed)" if row.is_packed else "")
    line = code(shorten(row.lines[0], _CELL_LIMIT)) if row.lines else ""
    return (
        escaped(size_words(row)), code(tensor_words(row)), code(shorten(savers, _CELL_LIMIT)),
        escaped(shorten(sharing_words(row), _CELL_LIMIT)), line,
    )  # fmt: skip


def _more(n_rows: int, view: str) -> str:
    return faint(f"{n_rows - _N_ROWS:,} more rows are in report.{view}") if n_rows > _N_ROWS else ""
