"""Why an object is alive as HTML, a fragment or a page."""

from __future__ import annotations

from markupsafe import Markup

from leaklab.model.alive import Hold, WhyAliveRecord
from leaklab.render.drawing import draw_svg
from leaklab.render.templates import ACCENT, CALM, DOUBTFUL, GOOD, page, render
from leaklab.reports import alive_text
from leaklab.reports.back_graph import graph_of_alive, objgraph_dot
from leaklab.reports.graphs import back_graph_dot
from leaklab.text import SHOWN_LIMIT, clipped, shorten

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
