"""What all graphs of leaklab look like: fonts, colours, labels in which every text is escaped, the legend."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

from leaklab.model import Status
from leaklab.render.wording import visible

if TYPE_CHECKING:
    import graphviz

INK, FAINT, ACCENT = "#222222", "#777777", "#d64541"
FILLS = {Status.EXPECTED: "#e3eefa", Status.UNKNOWN: "#f1f1f1", Status.LEAKED: "#fbe0de"}
LINES = {Status.EXPECTED: "#4a90d9", Status.UNKNOWN: "#999999", Status.LEAKED: ACCENT}
WORDS = {Status.EXPECTED: "expected", Status.UNKNOWN: "unknown", Status.LEAKED: "leaked"}
FONT = "Helvetica,Arial,sans-serif"
_CODE_FONT = "Courier,monospace"
N_COLUMNS = 38
"""Of a line in a node."""
_N_LINES = 4
_N_READ = 1_000
"""Characters of a text that are looked at: more than its few lines can show, blanks and all."""


def new_graph(legend: str, **attributes: str) -> graphviz.Digraph:
    """Return an empty graph, top to bottom, with *legend* below; *attributes* are further ones of the graph."""
    import graphviz  # noqa: PLC0415 - drawing is paid by those who draw

    return graphviz.Digraph(
        graph_attr={
            "rankdir": "TB", "bgcolor": "white", "fontname": FONT, "fontsize": "10", "nodesep": "0.35",
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
        return f"<{words}>"
    small = f'<BR/><FONT FACE="{FONT}" POINT-SIZE="9">&#160;&#160;{html.escape(hint)}</FONT>'
    return f"<<B>{words}</B>{small}>"


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
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="6" CELLPADDING="3"><TR>{row}</TR></TABLE>>'
