"""Turn the path to a leak into a Graphviz graph: expected objects blue, leaked ones red, the reference to cut bold."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING

from leaklab.model import Leak, RootPath, Step
from leaklab.render.dot_style import (
    ACCENT,
    FAINT,
    FILLS,
    LINES,
    N_COLUMNS,
    WORDS,
    label,
    legend,
    lines,
    new_graph,
    reference_label,
    status_cell,
    words_cell,
)
from leaklab.render.texts import SHOWN_LIMIT, clipped
from leaklab.render.wording import amount_words, shorten, suspect_references
from leaklab.words import format_rate

if TYPE_CHECKING:
    import graphviz

_N_OTHERS = 5
_N_NODES = 60
"""More than this is not read as a picture; the text of the path leaves out nothing."""


def path_graph(leak: Leak) -> graphviz.Digraph:
    """Return the path of *leak* as a graph, root first, top to bottom.

    The words of each node are HTML-like labels in which all text is escaped. A path of more than 60 objects loses its
    middle and says so.
    """
    leak = clipped(leak, SHOWN_LIMIT)
    graph = new_graph(legend(_legend_cells(leak.path)))
    graph.node("root", label=label(leak.path.root), shape="plaintext", style="", fontcolor=FAINT)
    shown = _shown(leak.path)
    suspects = suspect_references(leak.path)
    before = "root"
    for position, index in enumerate(shown):
        if position and index != shown[position - 1] + 1:
            graph.node("cut", label=label(f"... {index - shown[position - 1] - 1} more objects ..."), style="dashed")
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
    words = f"<<B>+ {lines(amount_words(leak))}</B><BR/>by each run>"
    graph.node("rate", label=words, shape="plaintext", style="", fontcolor=ACCENT, fontsize="10")
    graph.edge(last, "rate", style="dotted", color=ACCENT, arrowhead="none")


def _add_others(graph: graphviz.Digraph, leak: Leak, holder: str) -> None:
    """Name what else each run leaves in the same place."""
    names = [f"{format_rate(count)} {shorten(kind, N_COLUMNS)}" for kind, count in leak.others[:_N_OTHERS]]
    if len(leak.others) > _N_OTHERS:
        names.append(f"and {len(leak.others) - _N_OTHERS} other kinds")
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
            "bold arrow: the reference to cut" if len(suspects) == 1 else "bold arrows: one of them is to be cut"
        )
