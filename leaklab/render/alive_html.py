"""Write why an object is alive as HTML: a fragment for a notebook's output, or a page of its own."""

from __future__ import annotations

from collections.abc import Iterator

from leaklab.model import RootPath, Status
from leaklab.model.alive import AlivePath, Cut, Hold, WhyAliveRecord
from leaklab.render.alive_text import (
    HEADLINES,
    autograd_words,
    counts_words,
    cut_title,
    holder_words,
    path_title,
    render_paths,
    retained_words,
    title_words,
    told,
    wider_words,
)
from leaklab.render.back_graph import graph_of_alive, objgraph_dot
from leaklab.render.dot import back_graph_dot
from leaklab.render.drawing import draw_svg
from leaklab.render.html_parts import (
    ACCENT,
    CALM,
    DOUBTFUL,
    GOOD,
    bullets,
    code,
    escaped,
    facts,
    faint,
    fold,
    page,
    panel,
    pill,
    svg_picture,
    table,
    text_block,
)
from leaklab.render.words import object_words, suspect_mark, suspect_references
from leaklab.text import SHOWN_LIMIT, clipped, shorten

_FONT = "font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif"
_FRAGMENT = f"{_FONT};font-size:14px;line-height:1.45;color:inherit;max-width:1000px"
_COLOURS = {
    Hold.HELD: CALM,
    Hold.GARBAGE: DOUBTFUL,
    Hold.IMMORTAL: ACCENT,
    Hold.PROBABLE: ACCENT,
    Hold.UNSEEN: DOUBTFUL,
    Hold.NOTHING: GOOD,
}
_STATUS_COLOURS = {Status.EXPECTED: CALM, Status.UNKNOWN: "#888888", Status.LEAKED: ACCENT}
_N_OPEN = 2
_N_REFERENCES = 20
_DRAWING_SECONDS = 6.0
_MAX_SVG_CHARACTERS = 120_000  # some 60 boxes; more would swell the notebook
_TITLE_LIMIT = 300


def render_alive_html(alive: WhyAliveRecord) -> str:
    """Return the answer as a fragment that survives the sanitizers of notebooks, with leaklab's own drawing."""
    return _fragment(alive, is_page=False)


def render_alive_page(alive: WhyAliveRecord) -> str:
    """Return the answer as a page of its own, all unfolded, with both drawings, that asks nothing of any server."""
    return page(f"Why is it alive: {title_words(alive)}", _fragment(alive, is_page=True))


def _fragment(alive: WhyAliveRecord, *, is_page: bool) -> str:
    alive = clipped(alive, SHOWN_LIMIT)
    parts = [_banner(alive), _cut(alive.cut, alive.wider_cut), *_cycle(alive), *_pictures(alive, is_page=is_page)]
    for number, path in enumerate(alive.paths):
        title = escaped(shorten(path_title(alive, number), _TITLE_LIMIT))
        parts.append(fold(title, _path(path), is_open=is_page or number < _N_OPEN))
    parts.append(_figures(alive))
    if alive.references:
        title = f"Direct references ({alive.n_references:,})"
        parts.append(fold(title, _references(alive), is_open=is_page))
    if alive.notes:
        parts.append(fold("Notes", bullets([escaped(note) for note in alive.notes]), is_open=True))
    environment = ", ".join(f"{name} {version}" for name, version in alive.environment)
    parts.append(faint(escaped(f"{alive.n_heap:,} objects looked at; {environment}")))
    return f'<div style="{_FRAGMENT}">{"".join(parts)}</div>'


def _banner(alive: WhyAliveRecord) -> str:
    colour = _COLOURS[alive.hold]
    word = f'<b style="color:{colour}">{HEADLINES[alive.hold]}</b>'
    what = code(shorten(title_words(alive), _TITLE_LIMIT))
    size = f"<div>{escaped(retained_words(alive))}</div>"
    return panel(
        f'<div style="font-size:17px">{word}&nbsp; {what}</div><div>{escaped(alive.reason)}</div>{size}', colour
    )


def _cut(cut: Cut | None, wider: Cut | None) -> str:
    if cut is None:
        return ""
    items = [
        code(one.advice)
        if one.is_statement
        else f"{escaped(one.advice)} {faint(code(f'{one.holder} {one.reference}'))}"
        for one in cut.references
    ]
    title = escaped(cut_title(cut, is_least=wider is None))
    more = "" if wider is None else f"<br>{faint(escaped(wider_words(wider)))}"
    return panel(f"<b>To let it go</b><br>{title}{bullets(items) if items else ''}{more}", GOOD)


def _cycle(alive: WhyAliveRecord) -> Iterator[str]:
    """Yield the cycle that keeps the object, and where to cut it."""
    if alive.cycle is not None:
        yield fold("The cycle that keeps it", _steps(alive.cycle, ()), is_open=True)
    if alive.cycle_cut is not None:
        cut = alive.cycle_cut
        yield panel(f"<b>To cut it</b><br>{code(cut.how)}<br>{faint(escaped(cut.words))}", GOOD)


def _pictures(alive: WhyAliveRecord, *, is_page: bool) -> Iterator[str]:
    """Yield leaklab's own drawing, on a page objgraph's too; where nothing can draw, the paths as text."""
    graph = graph_of_alive(alive)
    alt = shorten("; ".join(str(one.path) for one in alive.paths) or alive.reason, 3 * _TITLE_LIMIT)
    svg = draw_svg(back_graph_dot(graph).source, seconds=_DRAWING_SECONDS)
    if svg is None or (len(svg) > _MAX_SVG_CHARACTERS and not is_page):
        yield fold("Paths as text", text_block(render_paths(alive)), is_open=False)
        return
    yield fold("Back-references", svg_picture(svg, f"Graph of all paths: {alt}"), is_open=True)
    if is_page:
        classic = draw_svg(objgraph_dot(graph), seconds=_DRAWING_SECONDS)
        if classic is not None:
            yield fold("The same, drawn by objgraph", svg_picture(classic, f"Drawn by objgraph: {alt}"), is_open=True)


def _path(path: AlivePath) -> str:
    known = [("held by", code(shorten(holder_words(path), _TITLE_LIMIT)))]
    if path.remark:
        known.append(("known", escaped(path.remark)))
    return facts(known) + _steps(path.path, path.cut_at)


def _steps(path: RootPath, all_cuts: tuple[int, ...]) -> str:
    """Return the steps as a table, one reference in each row, the suspect ones and those to cut marked."""
    path, cut_at = told(path, all_cuts)
    suspects = suspect_references(path)
    rows = []
    for index, step in enumerate(path.steps):
        marks = [suspect_mark(index, suspects), "cut here" if index in cut_at else ""]
        reference = code(shorten(step.reference, _TITLE_LIMIT)) if step.reference else ""
        if mark := ", ".join(filter(None, marks)):
            reference += f'<br><b style="color:{ACCENT};white-space:nowrap">{escaped(mark)}</b>'
        words = f'<span style="overflow-wrap:anywhere">{escaped(shorten(object_words(step), _TITLE_LIMIT))}</span>'
        if step.note:
            words += f"<br>{faint(escaped(step.note))}"
        rows.append((pill(step.status.value, _STATUS_COLOURS[step.status]), reference, words))
    root = f"<div><b>from:</b> {escaped(shorten(path.root, _TITLE_LIMIT))}</div>"
    return root + table(("status", "reference", "object"), rows)


def _figures(alive: WhyAliveRecord) -> str:
    rows = [(f"{label} count", escaped(words)) for label, words in counts_words(alive)]
    if alive.autograd:
        rows.append(("autograd", "<br>".join(escaped(autograd_words(one)) for one in alive.autograd)))
    return facts(rows)


def _references(alive: WhyAliveRecord) -> str:
    rows = [
        (
            code(shorten(one.holder, _TITLE_LIMIT)), code(shorten(one.reference, _TITLE_LIMIT)), escaped(one.kind),
            f"{one.count:,}", "C++" if one.from_cpp else "Python",
        )
        for one in alive.references[:_N_REFERENCES]
    ]  # fmt: skip
    more = len(alive.references) - len(rows)
    left_out = faint(f"{more:,} more rows are in .references") if more > 0 else ""
    return table(("holder", "reference", "type", "count", "side"), rows, right=frozenset({"count"})) + left_out
