"""Write a CUDA snapshot, or the comparison of several, as HTML: a fragment for a notebook, or a page of its own.

A page has its maps of blocks as data, and one script that draws them. Everything else is drawn by matplotlib: memory
along a trace, live bytes by frame, a series of snapshots by stack. Only the object-oriented interface is used:
``pyplot`` would register each figure and keep it alive.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import fields as dataclass_fields
from pathlib import PurePath
from typing import TYPE_CHECKING

from markupsafe import Markup

from leaklab.model import Outcome
from leaklab.model.cuda import BlockMap, FrameNode, SnapshotFacts, SnapshotSeries, StackChange, StackGrowth, Timeline
from leaklab.render.json import one_line, script_data
from leaklab.render.templates import ACCENT, CALM, GOOD, joined, page, render
from leaklab.reports import cuda_text
from leaklab.reports.cuda_text import N_DEVICES, span_words
from leaklab.reports.plots import FAINT, INK, calm
from leaklab.text import format_bytes, shorten, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from leaklab.reports.figure import ReportFigure


SCRIPT = f'"use strict";\n{joined("page_parts.js", "cuda_map.js")}'


def maps_markup(maps: Sequence[BlockMap]) -> Markup:
    """Return a place for each map, with its data; the script fills them. Without maps nothing."""
    places = (script_data(one_line(_fields(one), "map"), "blocks") for one in maps)
    return Markup("".join(f"<div>{place}</div>" for place in places))  # noqa: S704 - coded by `script_data`


def _fields(one: BlockMap) -> dict[str, object]:
    """Return the fields of a map; columns as Base64, names as they are shown."""
    fields = {
        name: base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value
        for name, value in ((field.name, getattr(one, field.name)) for field in dataclass_fields(one))
    }
    stacks = [
        {"label": visible(stack.label), "group": visible(stack.group), "frames": [*map(visible, stack.frames)]}
        for stack in one.stacks
    ]
    phases = [(first, last, visible(name)) for first, last, name in one.phases]
    return {**fields, "stacks": stacks, "phases": phases}


_OTHERS = "#b8b8b8"
_GREYS = (_OTHERS, "#8c8c8c", "#6f7b87", "#d6d6d6")
"""Of bands that are no lines of code: their names stand in brackets."""
_COLOURS = ("#d64541", "#4a90d9", "#e8944a", "#3f9c8c", "#8e5ea2", "#c9b037", "#7d9fc4", "#a3674f")
_DPI = 100
_WIDTH_INCHES = 9.0
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))
_MAX_ROWS = 24
_N_HEADS = 2  # the whole, and the devices: no frames
_HIDDEN_SHARE = 0.5  # what does not change and is more than this would flatten what does
_LEAST_WIDTH = 0.002  # of the whole: thinner frames are less than two pixels
_N_BANDS = 8


def plot_timeline(timelines: Sequence[Timeline]) -> ReportFigure:
    """Return a figure with one plot for each device: live bytes along its trace, stacked by function."""
    if len(timelines) > N_DEVICES:
        timelines = sorted(timelines, key=lambda one: max(one.live_bytes), reverse=True)[:N_DEVICES]
    figure, axes = _figure(max(1, len(timelines)), 3.2)
    if not timelines:
        _say(axes[0], "the snapshot has no trace of allocations")
    for plot, timeline in zip(axes, timelines, strict=False):
        _draw_timeline(plot, timeline)
    return figure


def plot_icicle(tree: FrameNode) -> ReportFigure:
    """Return a figure of all frames, outermost at the top, each as wide as the bytes allocated below it."""
    boxes = list(_boxes(tree))
    depth = max((row for row, *_ in boxes), default=0) + 1
    figure, (axes,) = _figure(1, 0.6 + 0.26 * depth)
    if not tree.active_bytes:
        _say(axes, "nothing is live")
        return figure
    for row, left, width, node in boxes:
        colour = FAINT if row < _N_HEADS else _COLOURS[colour_number(node.label)]
        axes.broken_barh([(left, width)], (-row - 0.94, 0.88), facecolor=colour, edgecolor="white", linewidth=0.5)
        if width > 0.04:  # noqa: PLR2004 - narrower than any word
            room = int(width * 135)
            size = f"  {format_bytes(node.active_bytes)}" if room > 24 else ""  # noqa: PLR2004 - the name comes first
            label = _beginning(_drawable(node.label), max(4, room - len(size))) + size
            axes.text(
                left + 0.004, -row - 0.5, label, va="center", fontsize=7, color="#111111", clip_on=True,
                parse_math=False,
            )  # fmt: skip
    axes.set_xlim(0, 1)
    axes.set_ylim(-depth, 0)
    axes.set_axis_off()
    axes.set_title(f"Bytes by frame, outermost first: {_drawable(tree.label)}", fontsize=10, color=INK, loc="left")
    return figure


def _beginning(text: str, room: int) -> str:
    """Return as much of *text* as there is room for: a file and its line come first in the label of a frame."""
    return text if len(text) <= room else f"{text[: room - 3].rstrip()}..."


def colour_number(label: str) -> int:
    """Return the number of a colour: one for each file, the same in every process."""
    file = label.partition(":")[0]
    return sum((position + 1) * ord(letter) for position, letter in enumerate(file)) % len(_COLOURS)


def _boxes(tree: FrameNode) -> Iterator[tuple[int, float, float, FrameNode]]:
    """Yield row, left edge, width and frame; a frame's calls lie below it, largest first."""
    waiting = [(tree, 0, 0.0, 1.0)]
    while waiting:
        node, row, left, width = waiting.pop()
        yield row, left, width, node
        if row + 1 >= _MAX_ROWS:
            continue
        for child in node.children:
            share = width * child.active_bytes / (node.active_bytes or 1)
            if share >= _LEAST_WIDTH:
                waiting.append((child, row + 1, left, share))
            left += share


def plot_series(series: SnapshotSeries) -> ReportFigure:
    """Return a figure of the requested live bytes in every snapshot, stacked by call stack."""
    figure, (axes,) = _figure(1, 3.6)
    chosen = _telling(series.stacks)
    labels = [_legend_label(stack) for stack in chosen]
    bands = [stack.live_bytes for stack in chosen]
    rest = [
        sum(stack.live_bytes[i] for stack in series.stacks) - sum(band[i] for band in bands)
        for i in range(len(series.names))
    ]
    title = "requested live bytes"
    largest = max(sum(stack.live_bytes[i] for stack in series.stacks) for i in range(len(series.names)))
    if bands and min(rest) == max(rest) and rest[0] > _HIDDEN_SHARE * largest:
        title += f" of stacks that changed; {format_bytes(rest[0])} did not, and are not drawn"
    elif any(rest):  # at the bottom: what does not change carries what does
        labels.insert(0, "all other stacks")
        bands.insert(0, tuple(rest))
    if not any(map(any, bands)):
        _say(axes, "nothing is live")
        return figure
    colours = [
        _OTHERS if label == "all other stacks" else _COLOURS[i % len(_COLOURS)] for i, label in enumerate(labels)
    ]
    _stack(axes, series.at_steps, bands, labels, colours, title)
    axes.set_xlabel("step" if series.has_steps else "snapshot", fontsize=9, color=INK)
    axes.set_xticks(list(series.at_steps))
    return figure


def _telling(stacks: Sequence[StackGrowth]) -> list[StackGrowth]:
    """Return the stacks worth a colour: leaks, then the largest changes."""
    changed = [stack for stack in stacks if len(set(stack.live_bytes)) > 1]
    changed.sort(key=lambda stack: (stack.outcome is not Outcome.LEAK, -abs(stack.growth_bytes)))
    return changed[: _N_BANDS - 1]


def _legend_label(stack: StackGrowth) -> str:
    leak = "leak: " if stack.outcome is Outcome.LEAK else ""
    return shorten(_drawable(f"{leak}{stack.label}"), 60)


def _draw_timeline(axes: Axes, timeline: Timeline) -> None:
    bands = [levels for _label, levels in timeline.bands]
    labels = [shorten(_drawable(label), 44) for label, _levels in timeline.bands]
    colours = _band_colours(labels)
    where = f"{timeline.device}, {span_words(timeline.seconds, timeline.n_events)}: live bytes"
    divisor = _stack(axes, timeline.at_events, bands, labels, colours, where)
    axes.plot(
        timeline.at_events, [level / divisor for level in timeline.reserved_bytes], color=INK, linewidth=0.9,
        linestyle="--", label="reserved",
    )  # fmt: skip
    peak = timeline.at_events.index(timeline.peak_event)
    top = timeline.live_bytes[peak]
    axes.plot([timeline.peak_event], [top / divisor], "v", color=INK, markersize=5, label=f"peak {format_bytes(top)}")
    highest = max(max(timeline.reserved_bytes, default=0), top, 1)
    axes.set_ylim(0, highest / divisor * 1.05)
    axes.set_xlabel("event of the trace", fontsize=9, color=INK)
    _legend(axes)


def _band_colours(labels: Sequence[str]) -> list[str]:
    """Return a colour for each band, none of them twice."""
    greys, colours = iter(itertools.cycle(_GREYS)), iter(itertools.cycle(_COLOURS))
    return [next(greys) if label.startswith("(") else next(colours) for label in labels]


def _stack(  # noqa: PLR0917 - what a plot is made of
    axes: Axes,
    at: Sequence[int],
    bands: Sequence[Sequence[int]],
    labels: Sequence[str],
    colours: Sequence[str],
    title: str,
) -> int:
    """Draw bands on top of each other and return the divisor of their unit."""
    totals = [sum(band[i] for band in bands) for i in range(len(at))]
    divisor, unit = next(((d, u) for d, u in _UNITS if max(totals, default=0) >= d), _UNITS[-1])
    # Below zero only where a trace contradicts its blocks; stacked areas cannot show it.
    scaled = [[max(level, 0) / divisor for level in band] for band in bands]
    axes.stackplot(at, *scaled, labels=labels, colors=colours, linewidth=0)
    axes.set_title(f"{unit}: {title}", fontsize=10, color=INK, loc="left")
    if len(at) > 1:
        axes.set_xlim(at[0], at[-1])
    axes.set_ylim(0, max(max(totals, default=1) / divisor * 1.05, 1e-9))
    _legend(axes)
    return divisor


def _figure(n_rows: int, inches: float) -> tuple[ReportFigure, list[Axes]]:
    """Return a figure with white ground and dark ink, whatever the user's style."""
    from matplotlib import style  # noqa: PLC0415 - drawing is paid by those who draw

    from leaklab.reports.figure import ReportFigure  # noqa: PLC0415

    with style.context("default"):
        size = (_WIDTH_INCHES, inches * n_rows)
        figure = ReportFigure(figsize=size, dpi=_DPI, layout="constrained", facecolor="white")
        axes = list(figure.subplots(n_rows, 1, squeeze=False)[:, 0])
        for plot in axes:
            calm(plot)
        return figure, axes


def _say(axes: Axes, words: str) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, words, ha="center", transform=axes.transAxes, color=INK)


def _legend(axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    legend = axes.legend(
        handles[::-1], labels[::-1], fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0),
        labelcolor=INK,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)  # a dollar sign in a name is no formula


def _drawable(text: str) -> str:
    """Return *text* in the characters that every font has: a missing one would warn and leave a box."""
    return text.encode("latin-1", "replace").decode("latin-1")


_LEAST_SHARE = 0.005
_MAX_NODES = 400
_MAX_DEPTH = 40
_N_OPEN = 3  # levels of a tree
_CHANGE_COLOURS = {
    StackChange.NEW: ACCENT, StackChange.GROWN: ACCENT, StackChange.SAME: CALM, StackChange.SHRUNK: GOOD,
    StackChange.GONE: GOOD,
}  # fmt: skip


def render_snapshot(facts: SnapshotFacts) -> str:
    """Return one snapshot as a fragment that survives the sanitizers of notebooks."""
    return str(_snapshot(facts, is_page=False))


def render_snapshot_page(facts: SnapshotFacts, maps: Sequence[BlockMap] = ()) -> str:
    """Return one snapshot as a page of its own, all unfolded, that asks nothing of any server.

    Args:
        facts: What the page says.
        maps: Where the blocks lay, for each device where that is known; only the file itself tells, no record of it.
    """
    title = f"memory snapshot {PurePath(facts.name).name}"
    body = _snapshot(facts, is_page=True, maps=maps)
    return page(title, body, script=SCRIPT if maps else "")


def render_series(series: SnapshotSeries) -> str:
    """Return a comparison as a fragment that survives the sanitizers of notebooks."""
    return str(_series(series, is_page=False))


def render_series_page(series: SnapshotSeries) -> str:
    """Return a comparison as a page of its own, all unfolded, that asks nothing of any server."""
    title = f"{len(series.names)} memory snapshots: {series.verdict.outcome.value}"
    return page(title, _series(series, is_page=True))


def _snapshot(facts: SnapshotFacts, *, is_page: bool, maps: Sequence[BlockMap] = ()) -> Markup:
    peaks = "; ".join(
        cuda_text.moment_words(moment) for moment in cuda_text.telling_moments(facts.moments) if moment.kind == "peak"
    )
    return render(
        "cuda_snapshot.html.j2",
        facts=facts,
        cuda_text=cuda_text,
        timeline=plot_timeline(facts.timelines).png() if facts.timelines else None,
        timeline_alt=f"Memory along the trace. {peaks}",
        maps=maps_markup(maps),
        icicle=plot_icicle(facts.tree).png() if facts.stacks else None,
        tree=tree_markup(facts.tree, is_open=is_page) if facts.stacks else "",
        is_page=is_page,
    )


def _series(series: SnapshotSeries, *, is_page: bool) -> Markup:
    return render(
        "cuda_series.html.j2",
        series=series,
        cuda_text=cuda_text,
        changed=[stack for stack in series.stacks if len(set(stack.live_bytes)) > 1],
        change_colours=_CHANGE_COLOURS,
        plot=plot_series(series).png(),
        icicle=plot_icicle(series.tree).png() if series.tree.children else None,
        tree=tree_markup(series.tree, is_open=is_page) if series.tree.children else "",
        is_page=is_page,
    )


def tree_markup(root: FrameNode, *, is_open: bool) -> Markup:
    """Return the frames that hold at least 0.5 % of the bytes, folded below the third level unless *is_open*."""
    return render("cuda_tree.html.j2", lines=_tree_lines(root, is_open=is_open), total=root.active_bytes)


def _tree_lines(root: FrameNode, *, is_open: bool) -> Iterator[tuple[FrameNode | None, bool | None]]:
    """Yield each frame and whether what is below it is unfolded, None if nothing is; no frame closes the last one.

    Without recursion: a tree may be as deep as the call stacks were.
    """
    least = max(1, root.active_bytes * _LEAST_SHARE)
    waiting: list[tuple[FrameNode | None, int]] = [(root, 0)]
    n_nodes = 0
    while waiting:
        node, depth = waiting.pop()
        if node is None:
            yield None, None
            continue
        n_nodes += 1
        shown = [child for child in node.children if child.active_bytes >= least]
        if not shown or depth >= _MAX_DEPTH or n_nodes + len(waiting) > _MAX_NODES:
            yield node, None
            continue
        yield node, is_open or depth < _N_OPEN
        waiting.append((None, depth))
        waiting += [(child, depth + 1) for child in reversed(shown)]
