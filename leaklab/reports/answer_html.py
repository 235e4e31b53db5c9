"""Answers about one object as HTML, a fragment or a page: why it is alive, what its graph keeps."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from leaklab.model.alive import Hold, WhyAliveRecord
from leaklab.model.autograd import AutogradRecord, Drawing, DrawnBy, GraphBox
from leaklab.render.drawing import Picture, draw_svg
from leaklab.render.templates import ACCENT, CALM, DOUBTFUL, GOOD, page, render
from leaklab.reports import alive_text, autograd_text
from leaklab.reports.back_graph import graph_of_alive, objgraph_dot
from leaklab.reports.graphs import FAINT, FONT, back_graph_dot
from leaklab.text import SHOWN_LIMIT, clipped, format_bytes, shorten, visible

_COLOURS = {
    Hold.HELD: CALM,
    Hold.GARBAGE: DOUBTFUL,
    Hold.IMMORTAL: ACCENT,
    Hold.PROBABLE: ACCENT,
    Hold.UNSEEN: DOUBTFUL,
    Hold.NOTHING: GOOD,
}
_DRAWING_SECONDS = 6.0
_MAX_SVG_CHARACTERS = 120_000  # some 60 boxes; more would swell the notebook
_ALT_LIMIT = 900
_LEAF_FILL, _PLAIN_FILL = "#e3eefa", "#f7f7f7"
_N_COLUMNS = 40
_N_READ = 1_000  # characters of a text: more than its few lines can show
_N_LINES = 3
_REDS = ("#fdf3f2", "#fbe0de", "#f6c3bf", "#f0a19b")
_NAME_LIMIT = 60
_TITLE_LIMIT = 160
_WIDTH = 100
_BY_WORDS = {
    DrawnBy.NODE: "each node",
    DrawnBy.MODULE: "by module: a module's own operations and those after it, up to the next parameters",
    DrawnBy.LINE: "by forward line",
    DrawnBy.OPERATION: "by operation",
}


def render_alive_html(alive: WhyAliveRecord) -> str:
    """Return the answer as a fragment that survives the sanitizers of notebooks, with leaklab's own drawing."""
    return str(_alive_fragment(alive, is_page=False))


def render_alive_page(alive: WhyAliveRecord) -> str:
    """Return the answer as a page of its own, all unfolded, with both drawings, that asks nothing of any server."""
    return page(f"Why is it alive: {alive_text.title_words(alive)}", _alive_fragment(alive, is_page=True))


def _alive_fragment(alive: WhyAliveRecord, *, is_page: bool) -> Markup:
    alive = clipped(alive, SHOWN_LIMIT)
    svg, classic = _drawings(alive, is_page=is_page)
    return render(
        "alive.html.j2",
        alive=alive,
        alive_text=alive_text,
        alt=shorten("; ".join(str(one.path) for one in alive.paths) or alive.reason, _ALT_LIMIT),
        colour=_COLOURS[alive.hold],
        is_page=is_page,
        svg=svg,
        classic=classic,
    )


def _drawings(alive: WhyAliveRecord, *, is_page: bool) -> tuple[str | None, str | None]:
    """Return leaklab's own drawing, and on a page objgraph's; None where nothing can draw it."""
    graph = graph_of_alive(alive)
    svg = draw_svg(back_graph_dot(graph).source, seconds=_DRAWING_SECONDS)
    if svg is None or (len(svg) > _MAX_SVG_CHARACTERS and not is_page):
        return None, None
    return svg, draw_svg(objgraph_dot(graph), seconds=_DRAWING_SECONDS) if is_page else None


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
    yield f'graph [rankdir=TB bgcolor=white fontname="{FONT}" fontsize=10 nodesep=0.3 ranksep=0.35 pad=0.15 labelloc=b'
    yield f"label=<{html.escape(visible(title))}>]"
    yield f'node [shape=box style="rounded,filled" fontname="{FONT}" fontsize=11 height=0.3 color="{FAINT}"]'
    yield f'edge [fontname="{FONT}" fontsize=9 color="{FAINT}" arrowsize=0.7]'
    most = max((box.n_bytes for box in drawing.boxes), default=0)
    for place, box in enumerate(drawing.boxes):
        frame = f' color="{ACCENT}" penwidth=2' if box.is_root else ""
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


def retention_fragment(retention: AutogradRecord, *, is_page: bool = False) -> str:
    """Return the record as a fragment that survives the sanitizers of notebooks; all unfolded on a page."""
    return str(_autograd_fragment(retention, is_page=is_page))


def retention_page(retention: AutogradRecord) -> str:
    """Return the record as a page of its own that asks nothing of any server."""
    return page(f"graph of {shorten(retention.name, _TITLE_LIMIT)}", _autograd_fragment(retention, is_page=True))


def _autograd_fragment(retention: AutogradRecord, *, is_page: bool) -> Markup:
    retention = clipped(retention, SHOWN_LIMIT)
    shown = retention.drawings if is_page else retention.drawings[:1]
    drawings = [(drawing.by, AutogradGraph(retention.name, drawing).markup) for drawing in shown]
    return render("autograd.html.j2", graph=retention, autograd_text=autograd_text, drawings=drawings, is_page=is_page)
