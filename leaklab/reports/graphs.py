"""Turn paths into Graphviz graphs: expected objects blue, leaked ones red, the reference to cut marked.

A leak has one path; the paths to an object asked about are merged, and the object itself is amber.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leaklab.model import Leak, RootPath, Status, Step
from leaklab.model.sentences import growth_words
from leaklab.render.drawing import Picture
from leaklab.render.templates import ACCENT, CALM, DOUBTFUL
from leaklab.render.words import render_path, shown_positions, suspect_references
from leaklab.reports.back_graph import Arrow, BackGraph, Box, graph_of_leak, objgraph_dot
from leaklab.text import SHOWN_LIMIT, clipped, format_rate, shorten, unit_words, visible

if TYPE_CHECKING:
    import graphviz

INK, FAINT = "#222222", "#6f6f6f"
FILLS = {Status.EXPECTED: "#e3eefa", Status.UNKNOWN: "#f1f1f1", Status.LEAKED: "#fbe0de"}
LINES = {Status.EXPECTED: CALM, Status.UNKNOWN: "#999999", Status.LEAKED: ACCENT}
WORDS = {Status.EXPECTED: "expected", Status.UNKNOWN: "unknown", Status.LEAKED: "leaked"}
_ASKED_FILL, _ASKED_LINE = "#fff3d6", DOUBTFUL
FONT = "Helvetica,Arial,sans-serif"
_CODE_FONT = "Courier,monospace"
N_COLUMNS = 38
"""Of a line in a node."""
_N_OTHERS = 5
_N_NODES = 60
"""More than this is not read as a picture; the text of the path leaves out nothing."""
LEAKLAB, OBJGRAPH = "leaklab", "objgraph"
_ALT_LIMIT = 2_000
_N_LINES = 4
_N_READ = 1_000
"""Characters of a text that are looked at: more than its few lines can show, blanks and all."""


def new_graph(legend: str, **attributes: str) -> graphviz.Digraph:
    """Return an empty graph, top to bottom, with *legend* below; *attributes* are further ones of the graph.

    It has no ground, so that it is no white card on a dark page: whatever has words has a ground of its own.
    """
    import graphviz  # noqa: PLC0415 - drawing is paid by those who draw

    return graphviz.Digraph(
        graph_attr={
            "rankdir": "TB", "bgcolor": "transparent", "fontname": FONT, "fontsize": "10", "nodesep": "0.35",
            "ranksep": "0.32", "pad": "0.15", "labelloc": "b", "label": legend, **attributes,
        },
        node_attr={
            "shape": "box", "style": "rounded,filled", "fontname": FONT, "fontsize": "11", "fontcolor": INK,
            "margin": "0.14,0.07", "height": "0.3", "penwidth": "1.2",
        },
        edge_attr={
            "fontname": _CODE_FONT, "fontsize": "10", "fontcolor": INK, "color": FAINT, "arrowsize": "0.7",
        },
    )  # fmt: skip


def label(title: str, summary: str = "", note: str = "") -> str:
    """Return an HTML-like label: bold title, plain summary, small note; all of it escaped."""
    parts = [f"<B>{lines(title or '?')}</B>"]
    if summary:
        parts.append(lines(summary))
    if note:
        parts.append(f'<FONT POINT-SIZE="9" COLOR="{FAINT}">{lines(note)}</FONT>')
    return f"<{'<BR/>'.join(parts)}>"


def lines(text: str, margin: str = "") -> str:
    """Return *text* escaped, in a few lines of a node's width, *margin* on either side of each."""
    wrapped = textwrap.wrap(visible(text[:_N_READ]), N_COLUMNS, break_on_hyphens=False) or ["?"]
    if len(wrapped) > _N_LINES:
        wrapped = [*wrapped[: _N_LINES - 1], "..."]
    return "<BR/>".join(f"{margin}{html.escape(line)}{margin}" for line in wrapped)


def reference_label(reference: str, hint: str = "") -> str:
    """Return the label of an arrow; one with a *hint* below it is bold. A blank on either side keeps the words off."""
    words = lines(reference, "&#160;")
    if not hint:
        return on_ground(words)
    small = f'<BR/><FONT FACE="{FONT}" POINT-SIZE="9">&#160;&#160;{html.escape(hint)}</FONT>'
    return on_ground(f"<B>{words}</B>{small}")


def on_ground(words: str) -> str:
    """Return a label of *words*, markup already, that are read on any page."""
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLPADDING="1" BGCOLOR="white"><TR><TD>{words}</TD></TR></TABLE>>'


def status_cell(status: Status) -> str:
    """Return the cell of the legend that tells the colour of *status*."""
    return box_cell(WORDS[status], FILLS[status], LINES[status])


def box_cell(word: str, fill: str, line: str) -> str:
    """Return a cell of the legend that looks like a box."""
    return f'<TD BGCOLOR="{fill}" COLOR="{line}" BORDER="1" STYLE="ROUNDED"> {word} </TD>'


def words_cell(words: str) -> str:
    """Return a cell of the legend with bold words in the colour of suspicion."""
    return f'<TD BORDER="0"><FONT COLOR="{ACCENT}"><B>{words}</B></FONT></TD>'


def legend(cells: Iterable[str]) -> str:
    """Return a row of *cells* as the label of a graph, empty if there is none."""
    row = "".join(cells)
    if not row:
        return ""
    look = 'BORDER="0" CELLBORDER="0" CELLSPACING="6" CELLPADDING="3" BGCOLOR="white"'
    return f"<<TABLE {look}><TR>{row}</TR></TABLE>>"


def path_graph(leak: Leak) -> graphviz.Digraph:
    """Return the path of *leak* as a graph, root first, top to bottom.

    The words of each node are HTML-like labels in which all text is escaped. A path of more than 60 objects loses its
    middle and says so.
    """
    leak = clipped(leak, SHOWN_LIMIT)
    graph = new_graph(legend(_legend_cells(leak.path)))
    graph.node(
        "root", label=label(leak.path.root), shape="plaintext", style="filled", fillcolor="white", fontcolor=FAINT
    )
    shown = shown_positions(leak.path, _N_NODES)
    suspects = suspect_references(leak.path)
    before = "root"
    for position, index in enumerate(shown):
        if position and index != shown[position - 1] + 1:
            cut, n_left_out = f"cut{index}", index - shown[position - 1] - 1
            graph.node(cut, label=label(f"... {n_left_out} more objects ..."), style="filled,dashed")
            graph.edge(before, cut)
            before = cut
        _add_step(graph, index, leak.path.steps[index], before, is_suspect=index in suspects)
        before = f"step{index}"
    if leak.count_per_run or leak.bytes_per_run:
        _add_rate(graph, leak, before)
    if leak.others:
        place = suspects[0] - 1 if suspects else -1
        _add_others(graph, leak, f"step{place}" if place in shown else "root")
    return graph


def _add_step(graph: graphviz.Digraph, index: int, step: Step, before: str, *, is_suspect: bool) -> None:
    node = f"step{index}"
    graph.node(
        node,
        label=label(step.kind or "object", step.summary, step.note),
        fillcolor=FILLS[step.status],
        color=LINES[step.status],
    )
    edge = {"color": ACCENT, "penwidth": "2.6", "fontcolor": ACCENT} if is_suspect else {}
    if step.reference:
        edge["label"] = reference_label(step.reference, "let go here" if is_suspect else "")
    graph.edge(before, node, **edge)


def _add_rate(graph: graphviz.Digraph, leak: Leak, last: str) -> None:
    """Say beside the leaked object how fast it multiplies."""
    words = f"<<B>+ {lines(growth_words(leak))}</B><BR/>every run>"
    look = {"shape": "plaintext", "style": "filled", "fillcolor": "white", "fontcolor": ACCENT, "fontsize": "10"}
    graph.node("rate", label=words, **look)
    graph.edge(last, "rate", style="dotted", color=ACCENT, arrowhead="none")


def _add_others(graph: graphviz.Digraph, leak: Leak, holder: str) -> None:
    """Name what else each run leaves in the same place."""
    names = [f"{format_rate(count)} {shorten(kind, N_COLUMNS)}" for kind, count in leak.others[:_N_OTHERS]]
    if len(leak.others) > _N_OTHERS:
        names.append(f"and {unit_words(len(leak.others) - _N_OTHERS, 'other kinds')}")
    body = "<BR/>".join(map(html.escape, names))
    words = f"<<B>with it, by each run</B><BR/>{body}>"
    graph.node("others", label=words, fillcolor="white", color=ACCENT, style="rounded,filled,dashed", fontsize="10")
    graph.edge(holder, "others", style="dashed", color=ACCENT)


def _legend_cells(path: RootPath) -> Iterator[str]:
    """Yield the colours with their meaning, as far as they occur."""
    for status in WORDS:
        if any(step.status is status for step in path.steps):
            yield status_cell(status)
    if suspects := suspect_references(path):
        yield words_cell(
            "bold arrow: the reference to cut" if len(suspects) == 1 else "bold arrows: one of them should be cut"
        )


def back_graph_dot(graph: BackGraph) -> graphviz.Digraph:
    """Return *graph* as a Graphviz graph, roots at the top. All text in it is escaped."""
    drawn = new_graph(legend(_back_legend_cells(graph)))
    for number, box in enumerate(graph.boxes):
        drawn.node(f"box{number}", label=label(box.kind, box.summary, box.note), **_look(box))
    for arrow in graph.arrows:
        drawn.edge(f"box{arrow.source}", f"box{arrow.target}", **_arrow(graph, arrow))
    return drawn


def _look(box: Box) -> dict[str, str]:
    if box.role == "root":
        return {"shape": "plaintext", "style": "filled", "fillcolor": "white", "fontcolor": FAINT}
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


def _back_legend_cells(graph: BackGraph) -> Iterator[str]:
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


def check_style(style: str) -> None:
    """Refuse a style that does not exist.

    Raises:
        ValueError: naming those that do.
    """
    if style not in (LEAKLAB, OBJGRAPH):
        msg = f'style must be "{LEAKLAB}" or "{OBJGRAPH}", not {style!r}'
        raise ValueError(msg)


@dataclass(frozen=True, slots=True, repr=False)
class PathGraph(Picture):
    """The path to one leak.

    Attributes:
        leak: The record.
        style: ``leaklab``, or ``objgraph`` for the classic picture.
    """

    leak: Leak
    style: str = LEAKLAB

    def __post_init__(self) -> None:
        """Refuse a style that does not exist."""
        check_style(self.style)

    @property
    def dot(self) -> str:
        """The graph as DOT text."""
        if self.style == OBJGRAPH:
            return objgraph_dot(graph_of_leak(self.leak))
        return str(path_graph(self.leak).source)

    @property
    def alt(self) -> str:
        """The path in one line."""
        return shorten(str(self.leak.path), _ALT_LIMIT)

    def _text(self) -> str:
        return render_path(self.leak.path)

    def __repr__(self) -> str:
        return f"<PathGraph of {unit_words(len(self.leak.path.steps), 'objects')}; str() shows the path>"
