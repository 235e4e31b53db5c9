"""Turn the path to a leak into a Graphviz graph: expected objects blue, leaked ones red, the reference to cut bold."""

from __future__ import annotations

import html
import textwrap
from typing import TYPE_CHECKING

from leaklab.model import Leak, RootPath, Status, Step
from leaklab.render.wording import amount_words, shorten, suspect_references, visible
from leaklab.words import format_rate

if TYPE_CHECKING:
    import graphviz

_INK, _FAINT, _ACCENT = "#222222", "#777777", "#d64541"
_FILLS = {Status.EXPECTED: "#e3eefa", Status.UNKNOWN: "#f1f1f1", Status.LEAKED: "#fbe0de"}
_LINES = {Status.EXPECTED: "#4a90d9", Status.UNKNOWN: "#999999", Status.LEAKED: _ACCENT}
_WORDS = {Status.EXPECTED: "expected", Status.UNKNOWN: "unknown", Status.LEAKED: "leaked"}
_FONT = "Helvetica,Arial,sans-serif"
_CODE_FONT = "Courier,monospace"
_N_COLUMNS = 38  # of a line in a node
_N_LINES = 4
_N_OTHERS = 5
_N_NODES = 60
"""More than this is not read as a picture; the text of the path leaves out nothing."""


def path_graph(leak: Leak) -> graphviz.Digraph:
    """Return the path of *leak* as a graph, root first, top to bottom.

    The words of each node are HTML-like labels in which all text is escaped. A path of more than 60 objects loses its
    middle and says so.
    """
    import graphviz  # noqa: PLC0415 - drawing is paid by those who draw

    graph = graphviz.Digraph(
        graph_attr={
            "rankdir": "TB", "bgcolor": "white", "fontname": _FONT, "fontsize": "10", "nodesep": "0.35",
            "ranksep": "0.32", "pad": "0.15", "labelloc": "b", "label": _legend(leak.path),
        },
        node_attr={
            "shape": "box", "style": "rounded,filled", "fontname": _FONT, "fontsize": "11", "fontcolor": _INK,
            "margin": "0.14,0.07", "height": "0.3", "penwidth": "1.2",
        },
        edge_attr={
            "fontname": _CODE_FONT, "fontsize": "10", "fontcolor": _INK, "color": _FAINT, "arrowsize": "0.7",
        },
    )  # fmt: skip
    graph.node("root", label=_label(leak.path.root), shape="plaintext", style="", fontcolor=_FAINT)
    shown = _shown(leak.path)
    suspects = suspect_references(leak.path)
    before = "root"
    for position, index in enumerate(shown):
        if position and index != shown[position - 1] + 1:
            graph.node("cut", label=_label(f"... {index - shown[position - 1] - 1} more objects ..."), style="dashed")
            graph.edge(before, "cut")
            before = "cut"
        _add_step(graph, index, leak.path.steps[index], before, is_suspect=index in suspects)
        before = f"step{index}"
    if leak.count_per_run or leak.bytes_per_run:
        _add_rate(graph, leak, before)
    if leak.others:
        place = suspects[0] - 1 if suspects else -1
        _add_others(graph, leak, f"step{place}" if place in shown else "root")
    return graph


def _shown(path: RootPath) -> list[int]:
    """Return the positions of the steps to draw: all, or the first and the last."""
    n_steps = len(path.steps)
    if n_steps <= _N_NODES:
        return list(range(n_steps))
    half = _N_NODES // 2
    return [*range(half), *range(n_steps - half, n_steps)]


def _add_step(graph: graphviz.Digraph, index: int, step: Step, before: str, *, is_suspect: bool) -> None:
    node = f"step{index}"
    graph.node(
        node,
        label=_label(step.kind or "object", step.summary, step.note),
        fillcolor=_FILLS[step.status],
        color=_LINES[step.status],
    )
    edge = {"color": _ACCENT, "penwidth": "2.6", "fontcolor": _ACCENT} if is_suspect else {}
    if step.reference:
        reference = _lines(step.reference, "&#160;")  # a blank on either side keeps the words off the arrow
        hint = f'<BR/><FONT FACE="{_FONT}" POINT-SIZE="9">&#160;&#160;let go here</FONT>'
        edge["label"] = f"<<B>{reference}</B>{hint}>" if is_suspect else f"<{reference}>"
    graph.edge(before, node, **edge)


def _add_rate(graph: graphviz.Digraph, leak: Leak, last: str) -> None:
    """Say beside the leaked object how fast it multiplies."""
    label = f"<<B>+ {_lines(amount_words(leak))}</B><BR/>by each run>"
    graph.node("rate", label=label, shape="plaintext", style="", fontcolor=_ACCENT, fontsize="10")
    graph.edge(last, "rate", style="dotted", color=_ACCENT, arrowhead="none")


def _add_others(graph: graphviz.Digraph, leak: Leak, holder: str) -> None:
    """Name what else each run leaves in the same place."""
    names = [f"{format_rate(count)} {shorten(kind, _N_COLUMNS)}" for kind, count in leak.others[:_N_OTHERS]]
    if len(leak.others) > _N_OTHERS:
        names.append(f"and {len(leak.others) - _N_OTHERS} other kinds")
    body = "<BR/>".join(map(html.escape, names))
    label = f"<<B>with it, by each run</B><BR/>{body}>"
    graph.node("others", label=label, fillcolor="white", color=_ACCENT, style="rounded,filled,dashed", fontsize="10")
    graph.edge(holder, "others", style="dashed", color=_ACCENT)


def _label(title: str, summary: str = "", note: str = "") -> str:
    """Return an HTML-like label: bold title, plain summary, small note; all of it escaped."""
    parts = [f"<B>{_lines(title or '?')}</B>"]
    if summary:
        parts.append(_lines(summary))
    if note:
        parts.append(f'<FONT POINT-SIZE="9" COLOR="{_FAINT}">{_lines(note)}</FONT>')
    return f"<{'<BR/>'.join(parts)}>"


def _lines(text: str, margin: str = "") -> str:
    """Return *text* escaped, in a few lines of a node's width, *margin* on either side of each."""
    lines = textwrap.wrap(visible(text), _N_COLUMNS, break_on_hyphens=False) or ["?"]
    if len(lines) > _N_LINES:
        lines = [*lines[: _N_LINES - 1], "..."]
    return "<BR/>".join(f"{margin}{html.escape(line)}{margin}" for line in lines)


def _legend(path: RootPath) -> str:
    """Return a row of colours with their meaning, as far as they occur."""
    cells = ""
    for status, word in _WORDS.items():
        if any(step.status is status for step in path.steps):
            fill, line = _FILLS[status], _LINES[status]
            cells += f'<TD BGCOLOR="{fill}" COLOR="{line}" BORDER="1" STYLE="ROUNDED"> {word} </TD>'
    if suspects := suspect_references(path):
        words = "bold arrow: the reference to cut" if len(suspects) == 1 else "bold arrows: one of them is to be cut"
        cells += f'<TD BORDER="0"><FONT COLOR="{_ACCENT}"><B>{words}</B></FONT></TD>'
    if not cells:
        return ""
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="6" CELLPADDING="3"><TR>{cells}</TR></TABLE>>'
