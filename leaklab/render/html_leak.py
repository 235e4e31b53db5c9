"""Write one leak as HTML: what grows, who holds it, the path, the advice, the graph."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from leaklab.model import Leak, RootPath, Status
from leaklab.render.dot import path_graph
from leaklab.render.parts import (
    ACCENT,
    CALM,
    GOOD,
    bars,
    code,
    escaped,
    facts,
    faint,
    fold,
    panel,
    pill,
    prose,
    svg_picture,
    table,
    text_block,
)
from leaklab.render.path import render_path, suspect_mark
from leaklab.render.wording import (
    amount_words,
    cause_words,
    leak_kept_words,
    object_words,
    others_words,
    rate_words,
    retained_words,
    shorten,
    suspect_references,
)

Draw = Callable[..., "str | None"]
"""What makes an ``<svg>`` of DOT text within ``seconds``, or returns None."""

_STATUS_COLOURS = {Status.EXPECTED: CALM, Status.UNKNOWN: "#888888", Status.LEAKED: ACCENT}
_N_DRAWN = 3  # graphs: with more of them the output would swell the notebook
_DRAWING_SECONDS = 8.0  # for all graphs of a report together
_MAX_SVG_CHARACTERS = 30_000
_N_STEPS_BESIDE = 12  # a higher graph is folded away
_WORD_LIMIT = 300
_KEPT_WIDTH = 100


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


def leak_card(leak: Leak, number: int, svg: str | None, *, is_open: bool) -> str:
    """Return the card of one leak, with its graph *svg* beside the path; without one the path is told as text too."""
    title = (
        f"Leak {number} &nbsp;{code(shorten(leak.what, _WORD_LIMIT))} &nbsp;"
        f'<span style="color:{ACCENT}">+ {escaped(amount_words(leak))} per run</span>'
    )
    told = f"{_path(leak.path)}{_advice(leak)}"
    if svg is None:
        told += fold("Path as text", text_block(render_path(leak.path)), is_open=False)
        return fold(title, _facts(leak) + told, is_open=is_open)
    graph = svg_picture(svg, f"Graph of the path: {shorten(str(leak.path), 3 * _WORD_LIMIT)}")
    if len(leak.path.steps) > _N_STEPS_BESIDE:
        return fold(title, _facts(leak) + told + fold("Graph", graph, is_open=False), is_open=is_open)
    beside = (
        f'<div style="display:flex;flex-wrap:wrap"><div style="flex:1 1 400px;min-width:0">{told}</div>'
        f'<div style="flex:0 1 470px;min-width:0;padding:8px 0 8px 16px">{graph}</div></div>'
    )
    return fold(title, _facts(leak) + beside, is_open=is_open)


def _facts(leak: Leak) -> str:
    rows = [("grows", escaped(rate_words(leak)))]
    if leak.kept:
        rows.append(("kept", f"{bars(leak.kept, ACCENT)}<br>{faint(escaped(leak_kept_words(leak, _KEPT_WIDTH)))}"))
    rows.append(("held by", code(leak.holder)))
    if others := [holder for holder in leak.holders if holder != leak.holder]:
        rows.append(("also by", "<br>".join(map(code, others))))
    if leak.others:
        rows.append(("with it", f"{escaped(others_words(leak.others))}, left by each run in the same place"))
    if frees := retained_words(leak):
        rows.append(("frees", escaped(frees)))
    if leak.sites:
        rows.append(("lines", "<br>".join(map(code, leak.sites))))
    rows += [("because", escaped(leak.reason)), ("cause", escaped(cause_words(leak.cause)))]
    rows.append(("id", code(leak.fingerprint)))
    return facts(rows)


def _path(path: RootPath) -> str:
    """Return the path as a table, root first, one reference in each row, the suspect ones marked."""
    suspects = suspect_references(path)
    rows = []
    for index, step in enumerate(path.steps):
        mark = suspect_mark(index, suspects)
        reference = code(shorten(step.reference, _WORD_LIMIT)) if step.reference else ""
        if mark:
            reference += f'<br><b style="color:{ACCENT};white-space:nowrap">{escaped(mark)}</b>'
        words = f'<span style="overflow-wrap:anywhere">{escaped(shorten(object_words(step), _WORD_LIMIT))}</span>'
        if step.note:
            words += f"<br>{faint(escaped(shorten(step.note, _WORD_LIMIT)))}"
        rows.append((pill(step.status.value, _STATUS_COLOURS[step.status]), reference, words))
    root = f'<div style="margin-top:8px"><b>Path</b> from: {escaped(shorten(path.root, _WORD_LIMIT))}</div>'
    return root + (table(("status", "reference", "object"), rows) if rows else "")


def _advice(leak: Leak) -> str:
    if not leak.advice:
        return ""
    return panel(f"<b>What to change</b><br>{prose(leak.advice)}", GOOD)
