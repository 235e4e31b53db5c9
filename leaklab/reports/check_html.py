"""Write a check as HTML: a fragment for a notebook's output, or a page of its own."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leaklab.model import Check, Leak
from leaklab.render.advice import cell_to_copy, headline, line_groups, shown_in_full
from leaklab.render.drawing import draw_svg
from leaklab.render.json import embedded, to_json
from leaklab.render.templates import page, read, render
from leaklab.reports.graphs import path_graph
from leaklab.reports.plots import plot_alt, plot_png
from leaklab.text import SHOWN_LIMIT, clipped

Draw = Callable[..., "str | None"]
"""Makes an ``<svg>`` of DOT text within ``seconds``, or returns None."""
Plot = Callable[[Check], "bytes | None"]
"""Makes a PNG image of a check's runs, or returns None: then the report shows no image."""

_N_DRAWN = 3  # graphs: with more of them the output would swell the notebook
_DRAWING_SECONDS = 8.0  # for all graphs of a report together
_MAX_SVG_CHARACTERS = 30_000


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of a check is shown.

    Attributes:
        n_leaks: Leaks that are told in full; a cell with more has one cause too many to read on.
        n_open: Leaks that are unfolded.
        is_open: Whether everything else is unfolded.
        heading: The element of the verdict: ``h1`` on a page of its own.
        has_handlers: Whether elements may carry JavaScript of their own, which some pages forbid.
    """

    n_leaks: int = 10
    n_open: int = 1
    is_open: bool = False
    heading: str = "div"
    has_handlers: bool = True


FRAGMENT = Extent()
_PAGE = Extent(n_open=10, is_open=True, heading="h1")
COPY = read("copy.js").strip()
"""A function that copies the text behind a title."""
_ON_ONE_LINE = re.sub(r"\n *", "", COPY)
_HANDLER = Markup(html.escape(f"({_ON_ONE_LINE})(this)"))  # noqa: S704 - leaklab's own


def render_html(check: Check, *, draw: Draw = draw_svg) -> str:
    """Return the report as a fragment that survives the sanitizers of notebooks.

    Args:
        check: What was found.
        draw: Makes an ``<svg>`` of DOT text, or None; then the path stands there as text.
    """
    return str(render_body(check, draw=draw))


def render_page(*checks: Check, title: str = "", draw: Draw = draw_svg, has_record: bool = False) -> str:
    """Return one or more reports as a page of its own, all unfolded, that asks nothing of any server.

    Args:
        checks: In the order in which they are shown.
        title: Of the page; empty for the name and the outcome of the first check.
        draw: As in `render_html`.
        has_record: Whether the page of one check carries its record within itself, to be read back.
    """
    for check in checks[:1]:
        title = title or f"{check.settings.name or 'leaklab'}: {check.verdict.outcome.value}"
    body = Markup("\n<hr>\n").join(render_body(check, _PAGE, draw=draw) for check in checks)
    if has_record:
        body += Markup(embedded(to_json(*map(clipped, checks))))  # noqa: S704 - a script element of its own
    return page(title, body)


def render_body(check: Check, extent: Extent = FRAGMENT, *, draw: Draw = draw_svg, plot: Plot = plot_png) -> Markup:
    """Return the report on *check* as a part of a page, without a title.

    Args:
        check: What was found.
        extent: How much of it is shown, and what is unfolded.
        draw: As in `render_html`.
        plot: Makes the image of the runs.
    """
    positions = shown_in_full(check.leaks, extent.n_leaks)
    cells = [Markup(html.escape(cell_to_copy(check.leaks[position]))) for position in positions]  # noqa: S704 - escaped
    check = clipped(check, SHOWN_LIMIT)
    image = plot(check) if check.runs else None
    graphs = draw_graphs([check.leaks[position] for position in positions], draw)
    return render(
        "check.html.j2", check=check, extent=extent, headline=headline(check),
        groups=line_groups(check.leaks), told=list(zip(positions, graphs, cells, strict=True)),
        plot=image, plot_alt="" if image is None else plot_alt(check),
        handler=_HANDLER if extent.has_handlers else "",
    )  # fmt: skip


def draw_graphs(leaks: Sequence[Leak], draw: Draw) -> list[str | None]:
    """Return an ``<svg>`` for each of the first leaks, None for the others and where nothing can draw it.

    After one failure no other is tried: where no Graphviz is installed, asking again costs time and brings nothing.
    """
    deadline = time.monotonic() + _DRAWING_SECONDS
    graphs: list[str | None] = [None] * len(leaks)
    for index, leak in enumerate(leaks[:_N_DRAWN]):
        svg = draw(path_graph(leak).source, seconds=deadline - time.monotonic())
        if svg is None:
            break
        graphs[index] = svg if len(svg) <= _MAX_SVG_CHARACTERS else None
    return graphs
