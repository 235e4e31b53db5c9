"""Turn merged paths into a Graphviz graph: the object asked about amber, suspect references red, the cut marked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from leaklab.render.back_graph import Arrow, BackGraph, Box
from leaklab.render.dot_style import (
    ACCENT,
    FAINT,
    FILLS,
    LINES,
    WORDS,
    box_cell,
    label,
    legend,
    new_graph,
    reference_label,
    status_cell,
    words_cell,
)

if TYPE_CHECKING:
    import graphviz

_ASKED_FILL, _ASKED_LINE = "#fff3d6", "#c98a1b"


def back_graph_dot(graph: BackGraph) -> graphviz.Digraph:
    """Return *graph* as a Graphviz graph, roots at the top. All text in it is escaped."""
    drawn = new_graph(legend(_legend_cells(graph)))
    for number, box in enumerate(graph.boxes):
        drawn.node(f"box{number}", label=label(box.kind, box.summary, box.note), **_look(box))
    for arrow in graph.arrows:
        drawn.edge(f"box{arrow.source}", f"box{arrow.target}", **_arrow(graph, arrow))
    return drawn


def _look(box: Box) -> dict[str, str]:
    if box.role == "root":
        return {"shape": "plaintext", "style": "", "fontcolor": FAINT}
    if box.role == "more":
        return {"style": "rounded,filled,dashed", "fillcolor": "white", "color": FAINT, "fontsize": "10"}
    if box.role == "asked":
        return {"fillcolor": _ASKED_FILL, "color": _ASKED_LINE, "penwidth": "2.4"}
    return {"fillcolor": FILLS[box.status], "color": LINES[box.status]}


def _arrow(graph: BackGraph, arrow: Arrow) -> dict[str, str]:
    look: dict[str, str] = {}
    if arrow.is_suspect:
        look |= {"color": ACCENT, "penwidth": "1.6", "fontcolor": ACCENT}
    if arrow.is_cut:
        look |= {"color": ACCENT, "fontcolor": ACCENT, "style": "dashed", "penwidth": "2.6"}
    if arrow.reference:
        look["label"] = reference_label(arrow.reference, "cut here" if arrow.is_cut else "")
    if graph.boxes[arrow.source].role == "more":
        look |= {"style": "dotted"}
    return look


def _legend_cells(graph: BackGraph) -> Iterator[str]:
    """Yield what occurs in *graph*, with its meaning."""
    objects = [box for box in graph.boxes if box.role == "object"]
    for status in WORDS:
        if any(box.status is status for box in objects):
            yield status_cell(status)
    if any(box.role == "asked" for box in graph.boxes):
        yield box_cell("asked about", _ASKED_FILL, _ASKED_LINE)
    if any(arrow.is_suspect for arrow in graph.arrows):
        yield words_cell("red arrows: one of them should have been dropped")
    if any(arrow.is_cut for arrow in graph.arrows):
        yield words_cell("dashed: the smallest cut")
