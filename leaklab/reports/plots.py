"""Draw what each run left behind, and how full the memory became, as one matplotlib figure.

Only the object-oriented interface is used: ``pyplot`` would register each figure and keep it alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from leaklab.model import Check
from leaklab.render.words import is_leak, kept_words
from leaklab.text import shorten, unit_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from leaklab.reports.figure import ReportFigure


INK, FAINT = "#333333", "#d9d9d9"
"""Of the words, and of the lines behind the data."""


def calm(axes: Axes) -> None:
    """Leave nothing on the axes that does not carry data."""
    axes.set_facecolor("white")
    axes.tick_params(colors=INK, labelsize=8, length=3)
    axes.grid(visible=True, axis="y", color=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(FAINT)


_CLEAN = "#4a90d9"
_LEAK_COLOURS = ("#d64541", "#e8944a", "#8e5ea2", "#3f9c8c")  # told apart by colour-blind readers too
_MORE_LEAKS, _OTHERS = "#5b3a29", "#a9a9a9"
_LEVELS = (("native heap", "heap_bytes", "#4a90d9"), ("accelerator", "accelerator_bytes", "#8e5ea2"))
_TENSORS = ("tensors left so far", "#d64541")
_MANY_RUNS = 80  # more bars or markers than these run into each other
_LEAST_SPAN_BYTES = 1024  # less than this would make a mountain of a few bytes
_LEAST_CALM_SPAN_BYTES = 512 * 1024  # where nothing leaks, what allocators do among themselves is no mountain either
_SIZE_INCHES = (9.0, 3.0)
_DPI = 100
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))


def plot_growth(check: Check) -> ReportFigure:
    """Return a figure: left, the survivors by the run that made them; right, the memory after each run.

    The figure has a white ground and dark ink, whatever the user's style, and so reads on dark pages too. It is known
    to no window manager and dies with its last reference.
    """
    from matplotlib import style  # noqa: PLC0415 - drawing is paid by those who draw

    from leaklab.reports.figure import ReportFigure  # noqa: PLC0415

    with style.context("default"):
        figure = ReportFigure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained", facecolor="white")
        left, right = figure.subplots(1, 2)
        for axes in (left, right):
            calm(axes)
        if check.runs:
            _draw_survivors(left, check)
            _draw_levels(right, check)
        else:
            for axes in (left, right):
                axes.text(0.5, 0.5, "no run was measured", ha="center", transform=axes.transAxes, color=INK)
        return figure


def plot_png(check: Check) -> bytes:
    """Return the figure of `plot_growth` as a PNG image."""
    return plot_growth(check).png()


def plot_alt(check: Check) -> str:
    """Return what the figure shows, for those who cannot see it."""
    if not check.runs:
        return "Plot without data: no run was measured."
    kept = [run.n_kept for run in check.runs]
    words = [f"Plot: {kept_words(kept, 'objects', 160)}."]
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
    axes.set_title("Objects alive at the end, by the run that made them", fontsize=10, color=INK, loc="left")
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
    axes.set_title(f"Change of memory since run {numbers[0]}, {unit}", fontsize=10, color=INK, loc="left")
    _label_runs(axes, numbers)
    low, high = axes.get_ylim()
    low, high = min(low, -0.05 * least / divisor), max(high, least / divisor)
    axes.set_ylim(low, high + 0.35 * (high - low))
    if series:
        _legend(axes)


def _label_runs(axes: Axes, numbers: Sequence[int]) -> None:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    axes.set_xlabel("run", fontsize=9, color=INK)
    axes.set_xlim(numbers[0] - 0.7, numbers[-1] + 0.7)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))


def _legend(axes: Axes) -> None:
    legend = axes.legend(fontsize=8, frameon=False, loc="upper left", labelcolor=INK)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a dollar sign in a name is no formula


def _drawable(text: str) -> str:
    """Return *text* in the characters that every font has: a missing one would warn and leave a box."""
    return text.encode("latin-1", "replace").decode("latin-1")


def _unit_of(values: Sequence[float]) -> tuple[int, str]:
    """Return the unit in which the largest of *values* reads well."""
    largest = max(map(abs, values), default=0)
    return next(((divisor, unit) for divisor, unit in _UNITS if largest >= divisor), _UNITS[-1])
