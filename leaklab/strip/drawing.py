"""Draw the memory of a loop over its time, with its steps and the changes of its state, as a picture and as text."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from leaklab.model.loop import Levels, LoopState, MonitorRecord, MonitorStatus, StateChange
from leaklab.render.document import (
    Chapter,
    Document,
    DocumentBlock,
    Headline,
    Image,
    Lines,
    Remark,
    Styled,
    Tone,
    Typeface,
    faint,
)
from leaklab.render.writers import COLOURS, html_of
from leaklab.reports.loop import consequence_words, monitor_line, monitor_text
from leaklab.text import draw_levels, format_bytes, shorten, signed_bytes, visible

_TONES = {
    LoopState.WARMING_UP: Tone.NONE,
    LoopState.STEADY: Tone.GOOD,
    LoopState.GROWING: Tone.DOUBTFUL,
    LoopState.STOPPED: Tone.CALM,
    LoopState.LEAK: Tone.BAD,
}
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 150, 78, 10, 12, 22
_LEAST_EXTENT = float(1 << 20)
"""Bytes that the picture is high at least: the allocator's noise of some KiB would look like a mountain."""
_N_STEP_MARKS, _N_CHANGES = 6, 40
_N_SPARKS = 40
_INK = "#444444"


class _DrawnSeries(NamedTuple):
    name: str
    tone: Tone
    dashes: str
    levels: tuple[int, ...]


def strip_line(status: MonitorStatus) -> str:
    """Return the moment in one line."""
    of = f" of {status.total_steps:,}" if status.total_steps is not None else ""
    parts = [f"leaklab: step {status.step:,}{of}", ("ALARM, " if status.is_alarm else "") + status.state.value]
    if status.bytes_per_step > 0:
        parts.append(f"{signed_bytes(status.bytes_per_step)} per step")
    if status.full_at_step is not None:
        parts.append(f"memory full at step {status.full_at_step:,}")
    if status.heap_bytes is not None:
        parts.append(f"heap {format_bytes(status.heap_bytes)}")
    parts.append(f"process {format_bytes(status.rss_bytes)}")
    if status.accelerator_bytes is not None:
        parts.append(f"accelerator {format_bytes(status.accelerator_bytes)}")
    return "  ".join(parts)


def strip_text(record: MonitorRecord) -> str:
    """Return the strip as some lines of text."""
    lines = [monitor_line(record), f"  {consequence_words(record)}"]
    for series in _series(record.levels):
        levels = [level for level in series.levels if level >= 0]
        chosen = [levels[round(place)] for place in np.linspace(0, len(levels) - 1, min(len(levels), _N_SPARKS))]
        change = f"{format_bytes(levels[0])} -> {format_bytes(levels[-1])}"
        lines.append(f"  {series.name:<22} {draw_levels(chosen)} {change}")
    return "\n".join(lines) + "\n"


def strip_html(record: MonitorRecord) -> str:
    """Return the strip as HTML without styles, scripts or ids: the picture, its figures, the report folded below."""
    state, picture = record.status.state, strip_svg(record.levels, record.changes)
    badge = f"{'ALARM, ' if record.status.is_alarm else ''}{state.value.upper()}"
    below = (faint(consequence_words(record)),)
    blocks: list[DocumentBlock] = [Headline(monitor_line(record), _TONES[state], below, badge)]
    if picture:
        blocks.append(Image(picture, "memory over the steps of the loop, since the first look"))
    legend: list[str | Styled] = []
    for one in _series(record.levels):
        level, change = _figures(one)
        legend += [Styled(one.name, Typeface.PILL, one.tone), f" {level} ", faint(f"({change})"), "  "]
    blocks.append(Remark(tuple(legend)))
    blocks.append(Chapter("The report on the loop", (Lines(tuple(monitor_text(record).splitlines())),), is_open=False))
    return str(html_of(Document(tuple(blocks))))


def strip_svg(levels: Levels, changes: Sequence[StateChange]) -> str:
    """Return the picture: how each level changed since the first look; empty where there are fewer than two looks."""
    if len(levels.steps) < 2:  # noqa: PLR2004 - a line needs two points
        return ""
    return "".join(_svg(levels, changes))


def _series(levels: Levels) -> list[_DrawnSeries]:
    all_of_them = (
        _DrawnSeries("native heap", Tone.CALM, "", levels.heap_bytes),
        _DrawnSeries("process (resident)", Tone.NONE, "", levels.rss_bytes),
        _DrawnSeries("accelerator, allocated", Tone.GOOD, "", levels.accelerator_bytes),
        _DrawnSeries("accelerator, reserved", Tone.GOOD, "4 3", levels.reserved_bytes),
    )
    return [one for one in all_of_them if any(level >= 0 for level in one.levels)]


def _figures(one: _DrawnSeries) -> tuple[str, str]:
    known = [level for level in one.levels if level >= 0]
    return format_bytes(known[-1]), signed_bytes(known[-1] - known[0])


def _svg(levels: Levels, changes: Sequence[StateChange]) -> Iterator[str]:
    series = [(one, _since_first(one.levels)) for one in _series(levels)]
    every = [value for _one, values in series for value in values if value is not None]
    least, most = min([0.0, *every]), max([0.0, *every])
    extent = max(most - least, _LEAST_EXTENT)
    first, last = levels.seconds[0], levels.seconds[-1]
    seconds = max(last - first, 1e-9)

    def across(second: float) -> float:
        return _LEFT + (second - first) / seconds * (_WIDTH - _LEFT - _RIGHT)

    def down(value: float) -> float:
        return _HEIGHT - _BOTTOM - (value - least) / extent * (_HEIGHT - _TOP - _BOTTOM)

    def of_step(step: int) -> float:
        return across(float(np.interp(step, levels.steps, levels.seconds)))

    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="system-ui,sans-serif" font-size="11" fill="{_INK}">'
    )
    for value in (least, least + extent):
        yield f'<path d="M{_LEFT} {down(value):.1f}H{_WIDTH - _RIGHT}" stroke="#d0d0d0"/>'
        yield f'<text x="{_LEFT - 6}" y="{down(value) + 4:.1f}" text-anchor="end">{signed_bytes(value)}</text>'
    for step in step_marks(levels.steps[0], levels.steps[-1]):
        x = of_step(step)
        yield f'<path d="M{x:.1f} {_HEIGHT - _BOTTOM}v4" stroke="{_INK}"/>'
        yield f'<text x="{x:.1f}" y="{_HEIGHT - 6}" text-anchor="middle">{step:,}</text>'
    yield f'<text x="{_LEFT - 6}" y="{_HEIGHT - 6}" text-anchor="end">step</text>'
    for change in changes[-_N_CHANGES:]:
        x, colour = of_step(change.step), COLOURS[_TONES[change.state]]
        title = html.escape(visible(shorten(f"step {change.step:,}: {change.state.value}: {change.words}", 300)))
        yield f'<path d="M{x:.1f} {_TOP - 6}V{_HEIGHT - _BOTTOM}" stroke="{colour}" stroke-width="1.5"><title>{title}'
        yield f'</title></path><circle cx="{x:.1f}" cy="{_TOP - 6}" r="3.5" fill="{colour}"/>'
    for one, values in series:
        points = [
            (across(at), down(value)) for at, value in zip(levels.seconds, values, strict=True) if value is not None
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{one.dashes}"' if one.dashes else ""
        yield f'<polyline points="{path}" fill="none" stroke="{COLOURS[one.tone]}" stroke-width="1.8"{dashes}/>'
    yield "</svg>"


def _since_first(levels: Sequence[int]) -> list[float | None]:
    first = next((level for level in levels if level >= 0), 0)
    return [None if level < 0 else float(level - first) for level in levels]


def step_marks(first: int, last: int) -> list[int]:
    """Return a few round steps between *first* and *last*."""
    apart = max((last - first) / _N_STEP_MARKS, 1)
    power = 10 ** int(np.floor(np.log10(apart)))
    spacing = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= apart)
    return list(range(-(-first // spacing) * spacing, last + 1, spacing))
