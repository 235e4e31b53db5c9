"""Write a check as HTML: a fragment for a notebook's output, or a page of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from leaklab.model import Check, ContainerGrowth, Leak, ObjectGrowth, Outcome, RootPath, Run, Status, TensorGrowth
from leaklab.render.dot import path_graph
from leaklab.render.drawing import draw_svg
from leaklab.render.html_parts import (
    ACCENT,
    CALM,
    DOUBTFUL,
    GOOD,
    bars,
    bullets,
    code,
    escaped,
    facts,
    faint,
    fold,
    page,
    panel,
    picture,
    pill,
    prose,
    svg_picture,
    table,
    text_block,
)
from leaklab.render.json import embedded, to_json
from leaklab.render.plots import plot_alt, plot_png
from leaklab.render.words import (
    amount_words,
    cause_words,
    count_words,
    effort_words,
    failure_words,
    kept_words,
    leak_kept_words,
    numbers_words,
    object_words,
    others_words,
    projection_words,
    rate_words,
    render_path,
    retained_words,
    suspect_mark,
    suspect_references,
)
from leaklab.text import SHOWN_LIMIT, clipped, format_bytes, format_rate, format_seconds, shorten

# Write one leak as HTML: what grows, who holds it, the path, the advice, the graph.


Draw = Callable[..., "str | None"]
"""What makes an ``<svg>`` of DOT text within ``seconds``, or returns None."""

_STATUS_COLOURS = {Status.EXPECTED: CALM, Status.UNKNOWN: "#888888", Status.LEAKED: ACCENT}
_N_DRAWN = 3  # graphs: with more of them the output would swell the notebook
_DRAWING_SECONDS = 8.0  # for all graphs of a report together
_MAX_SVG_CHARACTERS = 30_000
_N_STEPS_BESIDE = 12  # a higher graph is folded away
_WORD_LIMIT = 300
_LEAK_KEPT_WIDTH = 100


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
        rows.append(("kept", f"{bars(leak.kept, ACCENT)}<br>{faint(escaped(leak_kept_words(leak, _LEAK_KEPT_WIDTH)))}"))
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


# Write the tables of a check as HTML: objects, tensors, containers, runs.


COLOURS = {Outcome.LEAK: ACCENT, Outcome.CLEAN: GOOD, Outcome.BOUNDED: CALM, Outcome.INCONCLUSIVE: DOUBTFUL}
_N_ROWS = 20
_NAME_LIMIT = 120
_SERIES_WIDTH = 40
_OBJECT_NAMES = ("type", "per run", "bytes per run", "kept of each run", "before", "after", "outcome")
_TENSOR_NAMES = ("tensor", "graph", "per run", "bytes per run", "bytes kept", "kept of each run", "outcome")
_CONTAINER_NAMES = ("holder", "container", "per run", "bytes per run", "length", "outcome")
_RUN_NAMES = ("run", "time", "born", "kept", "tensors kept", "tensor bytes", "native heap", "accelerator", "process")
_LEAK_NAMES = ("leak", "what", "per run", "bytes per run", "held by", "cause", "id")
_RIGHT = frozenset(
    {"leak", "per run", "bytes per run", "bytes kept", "before", "after", "run", "time", "born", "kept", "tensors kept"}
    | {"tensor bytes", "native heap", "accelerator", "process"}
)


def growth_tables(check: Check, *, is_open: bool) -> Iterator[str]:
    """Yield a folded table for each kind of growth of which there are rows."""
    tables: tuple[tuple[str, Sequence[str], list[tuple[str, ...]]], ...] = (
        ("objects", _OBJECT_NAMES, [_object_cells(row) for row in check.objects[:_N_ROWS]]),
        ("tensors", _TENSOR_NAMES, [_tensor_cells(row) for row in check.tensors[:_N_ROWS]]),
        ("containers", _CONTAINER_NAMES, [_container_cells(row) for row in check.containers[:_N_ROWS]]),
    )
    for view, names, rows in tables:
        n_rows = len(getattr(check, view))
        left_out = _more(n_rows - len(rows), view) if n_rows > len(rows) else ""
        if rows:
            markup = table(names, rows, right=_RIGHT) + left_out
            yield fold(f"{view.capitalize()} ({n_rows:,})", markup, is_open=is_open)


def leak_table(leaks: Sequence[Leak], first: int) -> str:
    """Return a row for each leak, numbered from *first*."""
    return table(_LEAK_NAMES, [_leak_cells(leak, number) for number, leak in enumerate(leaks, first)], right=_RIGHT)


def run_table(runs: Sequence[Run]) -> str:
    """Return the runs as a table; of many runs the first and the last."""
    shown = list(runs) if len(runs) <= _N_ROWS else [*runs[: _N_ROWS // 2], *runs[-_N_ROWS // 2 :]]
    left_out = "" if len(shown) == len(runs) else _more(len(runs) - len(shown), "runs")
    return table(_RUN_NAMES, [_run_cells(run) for run in shown], right=_RIGHT) + left_out


def _more(n_rows: int, view: str) -> str:
    return faint(f"{n_rows:,} more rows are in report.{view}")


def _leak_cells(leak: Leak, number: int) -> tuple[str, ...]:
    return (
        str(number), _name(leak.what), escaped(count_words(leak.count_per_run, shorten(leak.unit, _NAME_LIMIT))),
        _size(leak.bytes_per_run), _name(leak.holder), _name(leak.cause), _name(leak.fingerprint),
    )  # fmt: skip


def _object_cells(row: ObjectGrowth) -> tuple[str, ...]:
    return (
        _name(row.kind), format_rate(row.count_per_run), _size(row.bytes_per_run), _series(row.kept),
        f"{row.n_before:,}", f"{row.n_after:,}", _outcome(row.outcome),
    )  # fmt: skip


def _tensor_cells(row: TensorGrowth) -> tuple[str, ...]:
    name = f"{row.kind} {row.shape} {row.dtype} {row.device}"
    return (
        _name(name), "yes" if row.has_graph else "no", format_rate(row.count_per_run), _size(row.bytes_per_run),
        _size(row.bytes_kept), _series(row.kept), _outcome(row.outcome),
    )  # fmt: skip


def _container_cells(row: ContainerGrowth) -> tuple[str, ...]:
    content = f" of {row.content}" if row.content else ""
    lengths = f"{numbers_words(row.lengths, _SERIES_WIDTH)} {shorten(row.unit, _NAME_LIMIT)}"
    at_runs = f"after runs {numbers_words(row.at_runs, _SERIES_WIDTH)}"
    return (
        _name(row.holder), escaped(shorten(row.kind + content, _NAME_LIMIT)), format_rate(row.per_run),
        _size(row.bytes_per_run), f"{escaped(lengths)}<br>{faint(escaped(at_runs))}", _outcome(row.outcome),
    )  # fmt: skip


def _run_cells(run: Run) -> tuple[str, ...]:
    levels = (run.heap_bytes, run.accelerator_bytes)
    heap, accelerator = (faint("unknown") if level is None else _size(level) for level in levels)
    return (
        str(run.number), format_seconds(run.seconds), f"{run.n_born:,}", f"{run.n_kept:,}", f"{run.n_tensors_kept:,}",
        _size(run.tensor_bytes_kept), heap, accelerator, _size(run.rss_bytes),
    )  # fmt: skip


def _name(text: str) -> str:
    return code(shorten(text, _NAME_LIMIT))


def _size(n_bytes: float) -> str:
    return escaped(format_bytes(n_bytes))


def _series(kept: Sequence[int]) -> str:
    return bars(kept, CALM) or faint(escaped(numbers_words(kept, _SERIES_WIDTH)))


def _outcome(outcome: Outcome) -> str:
    return pill(outcome.value, COLOURS[outcome])


_FONT = "font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif"
_FRAGMENT = f"{_FONT};font-size:14px;line-height:1.45;color:inherit;max-width:1000px;overflow-wrap:break-word"
_N_OPEN = 3
_KEPT_WIDTH = 120


Plot = Callable[[Check], "bytes | None"]
"""What makes a PNG image of a check's runs, or returns None: then there is none."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of a check is shown.

    Attributes:
        n_leaks: Leaks that are told in full; a cell with more has one cause too many to read on.
        n_open: Leaks that are unfolded.
        is_open: Whether everything else is unfolded.
        has_table: Whether leaks that are not told in full stand in a table; else they are counted.
    """

    n_leaks: int = 10
    n_open: int = _N_OPEN
    is_open: bool = False
    has_table: bool = False


FRAGMENT = Extent()
_PAGE = Extent(n_open=10, is_open=True)


def render_html(check: Check, *, draw: Draw = draw_svg) -> str:
    """Return the report as a fragment that survives the sanitizers of notebooks.

    Args:
        check: What was found.
        draw: Makes an ``<svg>`` of DOT text, or None; then the path stands there as text.
    """
    return render_body(check, draw=draw)


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
    body = "\n<hr>\n".join(render_body(check, _PAGE, draw=draw) for check in checks)
    if has_record:
        body += embedded(to_json(*map(clipped, checks)))
    return page(title, body)


def render_body(check: Check, extent: Extent = FRAGMENT, *, draw: Draw = draw_svg, plot: Plot = plot_png) -> str:
    """Return the report on *check* as a part of a page, without a title.

    Args:
        check: What was found.
        extent: How much of it is shown, and what is unfolded.
        draw: As in `render_html`.
        plot: Makes the image of the runs.
    """
    check = clipped(check, SHOWN_LIMIT)
    parts = [_banner(check)]
    is_clean = check.verdict.outcome is Outcome.CLEAN and not check.failure
    image = _plot(check, plot) if check.runs else ""
    if not is_clean:
        parts.append(image)
    leaks = check.leaks[: extent.n_leaks]
    for number, (leak, svg) in enumerate(zip(leaks, draw_graphs(leaks, draw), strict=True), 1):
        parts.append(leak_card(leak, number, svg, is_open=number <= extent.n_open))
    parts += _smaller_leaks(check.leaks[extent.n_leaks :], extent)
    parts += _bounded(check.bounded, is_page=extent.is_open)
    parts += _notes(check.notes)
    parts += growth_tables(check, is_open=extent.is_open)
    if check.runs:
        runs = (image if is_clean else "") + run_table(check.runs)
        parts.append(fold(f"Runs ({len(check.runs):,})", runs, is_open=extent.is_open))
    parts.append(faint(escaped(", ".join(f"{name} {version}" for name, version in check.environment))))
    return f'<div style="{_FRAGMENT}">{"".join(parts)}</div>'


def _smaller_leaks(leaks: tuple[Leak, ...], extent: Extent) -> Iterator[str]:
    if leaks and extent.has_table:
        title = f"Smaller leaks ({len(leaks):,})"
        yield fold(title, leak_table(leaks, extent.n_leaks + 1), is_open=extent.is_open)
    elif leaks:
        yield faint(f"{len(leaks):,} smaller leaks are in report.leaks")


def _banner(check: Check) -> str:
    """Return the verdict, what was run, and what the verdict comes to."""
    verdict = check.verdict
    colour = COLOURS[verdict.outcome]
    word = f'<b style="color:{colour}">{verdict.outcome.value.upper()}</b>'
    lines = [f'<div style="font-size:17px">{word}&nbsp; {escaped(verdict.reason)}</div>']
    if projection := projection_words(check):
        lines.append(f"<div>{escaped(projection)}</div>")
    lines.append(f"<div>{faint(escaped(effort_words(check)))}</div>")
    if check.failure:
        lines.append(f"<div><b>{escaped(failure_words(check))}</b></div>")
    if check.runs and verdict.outcome is not Outcome.LEAK:
        kept = [run.n_kept for run in check.runs]
        words = faint(escaped(kept_words(kept, "objects", _KEPT_WIDTH)))
        lines.append(f'<div style="margin-top:6px">{bars(kept, colour)}</div><div>{words}</div>')
    return panel("".join(lines), colour)


def _plot(check: Check, plot: Plot) -> str:
    image = plot(check)
    return "" if image is None else picture(image, "image/png", plot_alt(check))


def _bounded(places: tuple[Leak, ...], *, is_page: bool) -> Iterator[str]:
    """Yield the places that grew and stopped: no leaks, and said so."""
    if places:
        items = []
        for place in places:
            grew = f" ({amount_words(place)} per run while it grew)" if place.count_per_run else ""
            items.append(f"{code(place.holder or place.what)}: {escaped(place.reason + grew)}")
        title = f"Not counted as leaks, because they stop growing ({len(places):,})"
        yield fold(title, bullets(items), is_open=is_page or len(places) <= _N_OPEN)


def _notes(notes: tuple[str, ...]) -> Iterator[str]:
    if notes:
        yield fold("Notes", bullets([escaped(note) for note in notes]), is_open=True)
