"""Write what a graph keeps as HTML: a fragment for a notebook's output, or a page of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leaklab.model.retention import GraphPart, KeptTensor, Retention
from leaklab.render.page import page
from leaklab.render.parts import CALM, bullets, code, escaped, faint, fold, panel, table
from leaklab.render.retention_graph import RetentionGraph
from leaklab.render.retention_words import details, headline, sharing_words, size_words, tensor_words
from leaklab.render.texts import SHOWN_LIMIT, clipped
from leaklab.render.wording import shorten
from leaklab.words import format_bytes

_STYLE = (
    "font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;"
    "font-size:14px;line-height:1.45;color:inherit;max-width:1000px"
)
_N_ROWS = 20
_NAME_LIMIT = 160
_PART_NAMES = ("nodes", "saved", "freed", "bytes", "its own")
_TENSOR_NAMES = ("bytes", "tensor", "saved by", "who else holds it", "forward line")
_RIGHT = frozenset({*_PART_NAMES})


def retention_fragment(retention: Retention, *, is_page: bool = False) -> str:
    """Return the record as a fragment that survives the sanitizers of notebooks; all unfolded on a page."""
    retention = clipped(retention, SHOWN_LIMIT)
    lines = [f'<div style="font-weight:600">{escaped(headline(retention))}</div>']
    lines += [f"<div>{escaped(line)}</div>" for line in details(retention)]
    blocks = [panel("".join(lines), CALM), *_tables(retention, is_page=is_page)]
    for drawing in retention.drawings if is_page else retention.drawings[:1]:
        drawn = RetentionGraph(retention.name, drawing).markup
        blocks.append(fold(escaped(f"Drawn by {drawing.by.value}"), drawn, is_open=True))
    if retention.notes:
        blocks.append(fold("Notes", bullets([escaped(note) for note in retention.notes]), is_open=True))
    blocks.append(faint(escaped(", ".join(f"{name} {version}" for name, version in retention.environment))))
    return f'<div style="{_STYLE}">{"".join(blocks)}</div>'


def retention_page(retention: Retention) -> str:
    """Return the record as a page of its own that asks nothing of any server."""
    return page(f"graph of {shorten(retention.name, _NAME_LIMIT)}", retention_fragment(retention, is_page=True))


def _tables(retention: Retention, *, is_page: bool) -> Iterator[str]:
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
            code(shorten(part.name, _NAME_LIMIT)), f"{part.n_nodes:,}", f"{part.n_saved:,}", f"{part.n_freed:,}",
            format_bytes(part.n_bytes), format_bytes(part.own_bytes),
        )
        for part in parts[:_N_ROWS]
    ]  # fmt: skip
    return table((name, *_PART_NAMES), rows, right=_RIGHT) + _more(len(parts), f"{name}s")


def _tensor_cells(row: KeptTensor) -> tuple[str, ...]:
    savers = ", ".join(row.saved_by) + (" (packed)" if row.is_packed else "")
    line = code(shorten(row.lines[0], _NAME_LIMIT)) if row.lines else ""
    return (
        escaped(size_words(row)), code(tensor_words(row)), code(shorten(savers, _NAME_LIMIT)),
        escaped(shorten(sharing_words(row), _NAME_LIMIT)), line,
    )  # fmt: skip


def _more(n_rows: int, view: str) -> str:
    return faint(f"{n_rows - _N_ROWS:,} more rows are in report.{view}") if n_rows > _N_ROWS else ""
