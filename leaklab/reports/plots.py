"""Draw reports as matplotlib figures: what each run of a check left behind, CUDA memory by call stack and by frame.

Only the object-oriented interface is used: ``pyplot`` would register each figure and keep it alive.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ParamSpec

from leaklab.cuda.along_trace import group_of
from leaklab.model import Check, Outcome
from leaklab.model.cuda import LiveStack, SnapshotSeries, StackGrowth, Timeline
from leaklab.model.stacks import FrameNode
from leaklab.render.words import is_leak, kept_words
from leaklab.text import format_bytes, format_seconds, shorten, unit_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from leaklab.reports.figure import ReportFigure


N_DEVICES = 16
"""No machine has more; a damaged or hostile file may claim thousands."""
_INK, _FAINT, _PALE = "#767676", "#80808059", "#d9d9d9"
"""Of the words, of the lines behind the data, and of grounds: words and lines are seen on light pages and on dark."""
_CLEAN = "#4a90d9"
_LEAK_COLOURS = ("#d64541", "#e8944a", "#8e5ea2", "#3f9c8c")  # told apart by colour-blind readers too
_MORE_LEAKS, _OTHERS = "#5b3a29", "#a9a9a9"
_LEVELS = (("native heap", "heap_bytes", "#4a90d9"), ("accelerator", "accelerator_bytes", "#8e5ea2"))
_TENSORS = ("tensors left so far", "#d64541")
_MANY_RUNS = 80  # more bars or markers than these run into each other
_LEAST_SPAN_BYTES = 1024  # less than this would make a mountain of a few bytes
_LEAST_CALM_SPAN_BYTES = 512 * 1024  # where nothing leaks, what allocators do among themselves is no mountain either
_WIDTH_INCHES = 9.0
_DPI = 100
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))
_GREYS = ("#b8b8b8", "#8c8c8c", "#6f7b87", "#d6d6d6")
"""Of bands that are no lines of code: their names stand in brackets."""
_BAND_COLOURS = (
    "#d64541", "#4a90d9", "#e8944a", "#3f9c8c", "#8e5ea2", "#c9b037", "#7d9fc4", "#a3674f",
    "#e377c2", "#2f4b7c", "#7fb53c", "#00a6c8",
)  # fmt: skip
_MAX_ROWS = 24
_N_HEADS = 2  # the whole, and the devices: no frames
_HIDDEN_SHARE = 0.5  # what does not change and is more than this would flatten what does
_LEAST_WIDTH = 0.002  # of the whole: thinner frames are less than two pixels
_N_BANDS = 8
_Drawn = ParamSpec("_Drawn")


def _in_default_style(plot: Callable[_Drawn, ReportFigure]) -> Callable[_Drawn, ReportFigure]:
    """Return *plot* so that it draws in matplotlib's own style, whatever the user's."""

    @functools.wraps(plot)
    def drawn(*args: _Drawn.args, **kwargs: _Drawn.kwargs) -> ReportFigure:
        from matplotlib import style  # noqa: PLC0415 - drawing is paid by those who draw

        with style.context("default"):
            return plot(*args, **kwargs)

    return drawn


def _figure(inches: float, *, n_rows: int = 1, n_columns: int = 1) -> tuple[ReportFigure, list[Axes]]:
    """Return a figure without a ground, each row so many *inches* high."""
    from leaklab.reports.figure import ReportFigure  # noqa: PLC0415

    size = (_WIDTH_INCHES, inches * n_rows)
    figure = ReportFigure(figsize=size, dpi=_DPI, layout="constrained", facecolor="none")
    axes = list(figure.subplots(n_rows, n_columns, squeeze=False).flat)
    for plot in axes:
        _calm(plot)
    return figure, axes


def _calm(axes: Axes) -> None:
    """Leave nothing on the axes that does not carry data."""
    axes.set_facecolor("none")
    axes.tick_params(colors=_INK, labelsize=8, length=3)
    axes.grid(visible=True, axis="y", color=_FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(_FAINT)


@_in_default_style
def plot_growth(check: Check) -> ReportFigure:
    """Return a figure: left, the survivors by the run that made them; right, the memory after each run.

    The figure has no ground, and a grey for its words that reads on light pages and on dark, whatever the user's style.
    It is known to no window manager and dies with its last reference.
    """
    figure, (left, right) = _figure(3.0, n_columns=2)
    if check.runs:
        _draw_survivors(left, check)
        _draw_levels(right, check)
    else:
        for axes in (left, right):
            axes.text(0.5, 0.5, "no run was measured", ha="center", transform=axes.transAxes, color=_INK)
    return figure


def plot_png(check: Check) -> bytes:
    """Return the figure of `plot_growth` as a PNG image."""
    return plot_growth(check).png()


def plot_alt(check: Check) -> str:
    """Return what the figure shows, for those who cannot see it."""
    if not check.runs:
        return "Plot without data: no run was measured."
    kept = [run.n_kept for run in check.runs]
    words = [f"Plot: {kept_words(kept, 160)}."]
    for label, attribute, _ in _LEVELS:
        levels = [getattr(run, attribute) for run in check.runs]
        if None not in levels:
            divisor, unit = _unit_of([levels[0], levels[-1]])
            words.append(f"The {label} went from {levels[0] / divisor:,.2f} to {levels[-1] / divisor:,.2f} {unit}.")
    return " ".join(words)


def _draw_survivors(axes: Axes, check: Check) -> None:
    """Draw a bar for each run: what it made that is still alive, stacked by leak, the rest in grey."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    numbers = [run.number for run in check.runs]
    bottom = [0] * len(numbers)
    known = [(place, leak) for place, leak in enumerate(check.leaks, 1) if len(leak.kept) == len(numbers)]
    if is_leak(check):
        for (place, leak), colour in zip(known, _LEAK_COLOURS, strict=False):
            # The number in front also keeps a name such as ``_hidden`` in the legend.
            label = f"leak {place}: {shorten(_drawable(leak.holder or leak.what), 34)}"
            bottom = _stack(axes, numbers, leak.kept, bottom, colour, label)
        if more := known[len(_LEAK_COLOURS) :]:
            kept = [sum(column) for column in zip(*(leak.kept for _, leak in more), strict=True)]
            bottom = _stack(axes, numbers, kept, bottom, _MORE_LEAKS, unit_words(len(more), "more leaks"))
    rest = [max(run.n_kept - low, 0) for run, low in zip(check.runs, bottom, strict=True)]
    if any(rest) or not any(bottom):
        colour, label = (_OTHERS, "other objects") if is_leak(check) else (_CLEAN, "objects")
        bottom = _stack(axes, numbers, rest, bottom, colour, label)
    axes.set_title("Objects alive at the end, by the run that made them", fontsize=10, color=_INK, loc="left")
    _label_runs(axes, numbers)
    n_labels = len(axes.get_legend_handles_labels()[1])
    axes.set_ylim(0, max(*bottom, 1) * (1.15 + 0.15 * n_labels))  # the legend has its place above the bars
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    _legend(axes)


def _stack(  # noqa: PLR0917 - what a layer is made of
    axes: Axes, numbers: Sequence[int], kept: Sequence[int], bottom: Sequence[int], colour: str, label: str
) -> list[int]:
    """Draw *kept* upon *bottom*, as bars or of many runs as one area, and return what the next layer stands on."""
    top = [low + high for low, high in zip(bottom, kept, strict=True)]
    if len(numbers) > _MANY_RUNS:
        axes.fill_between(numbers, bottom, top, step="mid", color=colour, label=label, linewidth=0)
    else:
        axes.bar(numbers, kept, bottom=bottom, color=colour, label=label, width=0.8)
    return top


def _draw_levels(axes: Axes, check: Check) -> None:
    """Draw the change of each level since the first run; of a leak also what the tensors sum up to that runs left."""
    runs = check.runs
    numbers = [run.number for run in runs]
    series = []
    for label, attribute, colour in _LEVELS:
        levels = [getattr(run, attribute) for run in runs]
        if None not in levels:
            series.append((label, colour, [level - levels[0] for level in levels]))
    sums = [sum(run.tensor_bytes_kept for run in runs[1:position]) for position in range(1, len(runs) + 1)]
    # Where nothing leaks, what is alive at the end was made by the last runs: summed up by run it would seem to climb.
    if any(sums) and is_leak(check):
        series.append((*_TENSORS, sums))
    least = _LEAST_SPAN_BYTES if is_leak(check) else _LEAST_CALM_SPAN_BYTES
    divisor, unit = _unit_of([least, *(value for *_, values in series for value in values)])
    for label, colour, values in series:
        # Dashed: kept tensors and the heap that they fill make one line, and both must be seen.
        dashes = "--" if label == _TENSORS[0] else "-"
        marker = "o" if len(numbers) <= _MANY_RUNS else ""
        axes.plot(
            numbers, [value / divisor for value in values], dashes, color=colour, label=label, marker=marker, ms=3
        )
    axes.set_title(f"Change of memory since run {numbers[0]}, {unit}", fontsize=10, color=_INK, loc="left")
    _label_runs(axes, numbers)
    low, high = axes.get_ylim()
    low, high = min(low, -0.05 * least / divisor), max(high, least / divisor)
    axes.set_ylim(low, high + 0.35 * (high - low))
    if series:
        _legend(axes)


def _label_runs(axes: Axes, numbers: Sequence[int]) -> None:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    axes.set_xlabel("run", fontsize=9, color=_INK)
    axes.set_xlim(numbers[0] - 0.7, numbers[-1] + 0.7)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))


def _legend(axes: Axes) -> None:
    legend = axes.legend(fontsize=8, frameon=False, loc="upper left", labelcolor=_INK)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a dollar sign in a name is no formula


def _drawable(text: str) -> str:
    """Return *text* in the characters that every font has: a missing one would warn and leave a box."""
    return text.encode("latin-1", "replace").decode("latin-1")


def _unit_of(values: Sequence[float]) -> tuple[int, str]:
    """Return the unit in which the largest of *values* reads well."""
    largest = max(map(abs, values), default=0)
    return next(((divisor, unit) for divisor, unit in _UNITS if largest >= divisor), _UNITS[-1])


def stack_colours(timelines: Sequence[Timeline], stacks: Sequence[LiveStack]) -> dict[str, str]:
    """Return the colour of each group of call stacks, the same in every picture of a snapshot; small groups have none.

    Args:
        timelines: Their bands come first.
        stacks: What is live, largest first.
    """
    names = dict.fromkeys(label for timeline in timelines for label, _levels in timeline.bands)
    names.update(dict.fromkeys(group_of(stack.frames) if stack.frames else stack.label for stack in stacks))
    greys = [name for name in names if name.startswith("(")]
    lines = [name for name in names if name not in greys]
    return dict(zip(lines, _BAND_COLOURS, strict=False)) | dict(zip(greys, itertools.cycle(_GREYS), strict=False))


@_in_default_style
def plot_timeline(timelines: Sequence[Timeline], colours: Mapping[str, str]) -> ReportFigure:
    """Return a figure with one plot for each device: live bytes along its trace, stacked by group of *colours*."""
    if len(timelines) > N_DEVICES:
        timelines = sorted(timelines, key=lambda one: max(one.live_bytes), reverse=True)[:N_DEVICES]
    figure, axes = _figure(3.2, n_rows=max(1, len(timelines)))
    if not timelines:
        _say(axes[0], "the snapshot has no trace of allocations")
    for plot, timeline in zip(axes, timelines, strict=False):
        _draw_timeline(plot, timeline, colours)
    return figure


@_in_default_style
def plot_icicle(tree: FrameNode, colours: Mapping[str, str] | None = None) -> ReportFigure:
    """Return a figure of all frames, outermost at the top, each as wide as the bytes allocated below it.

    A frame has the colour that *colours* names for it, else none; without *colours* that of its file.
    """
    boxes = list(_boxes(tree))
    depth = max((row for row, *_ in boxes), default=0) + 1
    figure, (axes,) = _figure(0.6 + 0.26 * depth)
    if not tree.active_bytes:
        _say(axes, "nothing is live")
        return figure
    for row, left, width, node in boxes:
        by_file = _PALE if row < _N_HEADS else _BAND_COLOURS[colour_number(node.label)]
        colour = by_file if colours is None else colours.get(node.label, _PALE)
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
    axes.set_title(f"Bytes by frame, outermost first: {_drawable(tree.label)}", fontsize=10, color=_INK, loc="left")
    return figure


def _beginning(text: str, room: int) -> str:
    """Return as much of *text* as there is room for: a file and its line come first in the label of a frame."""
    return text if len(text) <= room else f"{text[: room - 3].rstrip()}..."


def colour_number(label: str) -> int:
    """Return the number of a colour: one for each file, the same in every process."""
    file = label.partition(":")[0]
    return sum((position + 1) * ord(letter) for position, letter in enumerate(file)) % len(_BAND_COLOURS)


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


@_in_default_style
def plot_series(series: SnapshotSeries) -> ReportFigure:
    """Return a figure of the requested live bytes in every snapshot, stacked by call stack."""
    figure, (axes,) = _figure(3.6)
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
        _GREYS[0] if label == "all other stacks" else _BAND_COLOURS[i % len(_BAND_COLOURS)]
        for i, label in enumerate(labels)
    ]
    _stack_areas(axes, series.at_steps, bands, labels, colours, title)
    axes.set_xlabel("step" if series.has_steps else "snapshot", fontsize=9, color=_INK)
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


def _draw_timeline(axes: Axes, timeline: Timeline, colours: Mapping[str, str]) -> None:
    bands = [levels for _label, levels in timeline.bands]
    labels = [shorten(_drawable(label), 44) for label, _levels in timeline.bands]
    used = [colours.get(label, _OTHERS) for label, _levels in timeline.bands]
    span = "" if timeline.seconds is None else f" in {format_seconds(timeline.seconds)}"
    where = f"{timeline.device}, {timeline.n_events:,} events{span}: live bytes"
    divisor = _stack_areas(axes, timeline.at_events, bands, labels, used, where)
    axes.plot(
        timeline.at_events, [level / divisor for level in timeline.reserved_bytes], color=_INK, linewidth=0.9,
        linestyle="--", label="reserved",
    )  # fmt: skip
    peak = timeline.at_events.index(timeline.peak_event)
    top = timeline.live_bytes[peak]
    axes.plot([timeline.peak_event], [top / divisor], "v", color=_INK, markersize=5, label=f"peak {format_bytes(top)}")
    highest = max(max(timeline.reserved_bytes, default=0), top, 1)
    axes.set_ylim(0, highest / divisor * 1.05)
    axes.set_xlabel("event of the trace", fontsize=9, color=_INK)
    _legend_beside(axes)


def _stack_areas(  # noqa: PLR0917 - what a plot is made of
    axes: Axes,
    at: Sequence[int],
    bands: Sequence[Sequence[int]],
    labels: Sequence[str],
    colours: Sequence[str],
    title: str,
) -> int:
    """Draw bands on top of each other and return the divisor of their unit."""
    totals = [sum(band[i] for band in bands) for i in range(len(at))]
    divisor, unit = _unit_of([max([0, *totals])])
    # Below zero only where a trace contradicts its blocks; stacked areas cannot show it.
    scaled = [[max(level, 0) / divisor for level in band] for band in bands]
    axes.stackplot(at, *scaled, labels=labels, colors=colours, linewidth=0)
    axes.set_title(f"{unit}: {title}", fontsize=10, color=_INK, loc="left")
    if len(at) > 1:
        axes.set_xlim(at[0], at[-1])
    axes.set_ylim(0, max(max(totals, default=1) / divisor * 1.05, 1e-9))
    _legend_beside(axes)
    return divisor


def _say(axes: Axes, words: str) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, words, ha="center", transform=axes.transAxes, color=_INK)


def _legend_beside(axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    legend = axes.legend(
        handles[::-1], labels[::-1], fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0),
        labelcolor=_INK,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)  # a dollar sign in a name is no formula
