"""Write a snapshot, or the comparison of several, as HTML: a fragment for a notebook, or a page of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from leaklab.model import Outcome
from leaklab.model.cuda import (
    Change,
    FrameNode,
    LiveStack,
    PoolUse,
    SnapshotFacts,
    SnapshotSeries,
    StackGrowth,
    TracePoint,
)
from leaklab.render.cuda_plots import plot_icicle, plot_series, plot_timeline
from leaklab.render.cuda_text import levels_words, moment_words, projection_lines, snapshot_line
from leaklab.render.html_parts import (
    ACCENT,
    CALM,
    GOOD,
    LINE,
    bullets,
    code,
    escaped,
    faint,
    fold,
    page,
    panel,
    picture,
    pill,
    table,
)
from leaklab.render.templates import OUTCOME_COLOURS as COLOURS
from leaklab.text import format_bytes, shorten

# Write a tree of frames as HTML that folds without a script.


_TREE_LABEL_LIMIT = 140
_LEAST_SHARE = 0.005
_MAX_NODES = 400
_MAX_DEPTH = 40
_N_OPEN = 3


def tree_markup(root: FrameNode, *, is_open: bool) -> str:
    """Return the frames that hold at least 0.5 % of the bytes, folded below the third level unless *is_open*.

    Without recursion: a tree may be as deep as the call stacks were.
    """
    least = max(1, root.active_bytes * _LEAST_SHARE)
    parts: list[str] = []
    waiting: list[tuple[FrameNode | None, int]] = [(root, 0)]
    n_nodes = 0
    while waiting:
        node, depth = waiting.pop()
        if node is None:
            parts.append("</details>")
            continue
        n_nodes += 1
        shown = [child for child in node.children if child.active_bytes >= least]
        if depth >= _MAX_DEPTH or n_nodes + len(waiting) > _MAX_NODES:
            shown = []
        if not shown:
            parts.append(f'<div style="{_INDENT}padding-left:34px">{_line(node, root.active_bytes)}</div>')
            continue
        state = " open" if is_open or depth < _N_OPEN else ""
        summary = f'<summary style="cursor:pointer">{_line(node, root.active_bytes)}</summary>'
        parts.append(f'<details{state} style="{_INDENT}">{summary}')
        waiting.append((None, depth))
        waiting += [(child, depth + 1) for child in reversed(shown)]
    return "".join(parts)


_INDENT = f"margin-left:0;padding-left:14px;border-left:1px solid {LINE};"


def _line(node: FrameNode, total: int) -> str:
    share = node.active_bytes / total if total else 0.0
    blocks = f"{node.n_blocks:,} {'block' if node.n_blocks == 1 else 'blocks'}"
    return f"<b>{format_bytes(node.active_bytes)}</b> {code(shorten(node.label, _TREE_LABEL_LIMIT))} " + faint(
        f"{share:.1%}, {blocks}"
    )


_FONT = "font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif"
_FRAGMENT = f"{_FONT};font-size:14px;line-height:1.45;color:inherit;max-width:1000px"
_N_ROWS = 30
_N_MOMENT_ROWS = 12
_LABEL_LIMIT = 160
_N_FRAMES = 60
_RIGHT = frozenset(
    {"bytes", "share", "blocks", "growth", "reserved", "active", "split free", "releasable", "fragmentation", "step"}
)
_CHANGE_COLOURS = {
    Change.NEW: ACCENT, Change.GROWN: ACCENT, Change.SAME: CALM, Change.SHRUNK: GOOD, Change.GONE: GOOD,
}  # fmt: skip


def render_snapshot(facts: SnapshotFacts) -> str:
    """Return one snapshot as a fragment that survives the sanitizers of notebooks."""
    return _wrapped(_snapshot_parts(facts, is_page=False))


def render_snapshot_page(facts: SnapshotFacts) -> str:
    """Return one snapshot as a page of its own, all unfolded, that asks nothing of any server."""
    title = f"memory snapshot {PurePath(facts.name).name}"
    return page(title, _wrapped(_snapshot_parts(facts, is_page=True)))


def render_series(series: SnapshotSeries) -> str:
    """Return a comparison as a fragment that survives the sanitizers of notebooks."""
    return _wrapped(_series_parts(series, is_page=False))


def render_series_page(series: SnapshotSeries) -> str:
    """Return a comparison as a page of its own, all unfolded, that asks nothing of any server."""
    title = f"{len(series.names)} memory snapshots: {series.verdict.outcome.value}"
    return page(title, _wrapped(_series_parts(series, is_page=True)))


def _snapshot_parts(facts: SnapshotFacts, *, is_page: bool) -> Iterator[str]:
    words = [f'<div style="font-size:17px">{escaped(snapshot_line(facts.name, facts.devices))}</div>']
    words += [f"<div>{escaped(moment_words(moment))}</div>" for moment in facts.moments]
    has_oom = any(moment.kind == "oom" for moment in facts.moments)
    yield panel("".join(words), ACCENT if has_oom else CALM)
    yield from _notes(facts.notes)
    if facts.timelines:
        alt = "; ".join(moment_words(moment) for moment in facts.moments if moment.kind == "peak")
        yield picture(plot_timeline(facts.timelines).png(), "image/png", f"Memory along the trace. {alt}")
    if facts.stacks:
        alt = f"Live bytes by frame; the largest stack is {facts.stacks[0].label}"
        yield picture(plot_icicle(facts.tree).png(), "image/png", alt)
        yield fold(
            f"Live bytes by call stack ({len(facts.stacks):,})", _stack_rows(facts.stacks, _N_ROWS), is_open=True
        )
        yield fold("Frames, outermost first", tree_markup(facts.tree, is_open=is_page), is_open=is_page)
    if facts.pools:
        yield fold(f"Pools ({len(facts.pools):,})", _pool_rows(facts.pools), is_open=is_page)
    for moment in facts.moments:
        yield _moment(moment, is_open=is_page)


def _stack_rows(stacks: Sequence[LiveStack], limit: int) -> str:
    total = sum(stack.active_bytes for stack in stacks) or 1
    rows = [
        (
            format_bytes(stack.active_bytes), f"{stack.active_bytes / total:.1%}", f"{stack.n_blocks:,}",
            escaped(stack.device), _label(stack),
        )
        for stack in stacks[:limit]
    ]  # fmt: skip
    more = faint(f"{len(stacks) - limit:,} more rows are in .by_stack()") if len(stacks) > limit else ""
    return table(("bytes", "share", "blocks", "device", "call stack, innermost first"), rows, right=_RIGHT) + more


def _label(stack: LiveStack | StackGrowth) -> str:
    """Return the label of a stack; where it has frames, they unfold."""
    words = code(shorten(stack.label, _LABEL_LIMIT))
    if not stack.frames:
        return words
    lines = [f"{frame.filename}:{frame.line} {frame.name}" for frame in stack.frames[:_N_FRAMES]]
    if len(stack.frames) > _N_FRAMES:
        lines.append(f"... {len(stack.frames) - _N_FRAMES:,} more frames")
    whole = "<br>".join(code(shorten(line, _LABEL_LIMIT)) for line in lines)
    return f'<details><summary style="cursor:pointer">{words}</summary>{whole}</details>'


def _pool_rows(pools: Sequence[PoolUse]) -> str:
    names = ("pool", "reserved", "active", "split free", "releasable", "fragmentation")
    rows = [
        (
            escaped(f"{pool.device} {pool.pool}"), format_bytes(pool.reserved_bytes), format_bytes(pool.active_bytes),
            format_bytes(pool.inactive_split_bytes), format_bytes(pool.releasable_bytes), f"{pool.fragmentation:.1%}",
        )
        for pool in pools
    ]  # fmt: skip
    legend = (
        "split free: free, but beside live blocks, so nothing can give it back; releasable: empty_cache() gives it back"
    )
    return table(names, rows, right=_RIGHT) + faint(escaped(legend))


def _moment(moment: TracePoint, *, is_open: bool) -> str:
    request = ""
    if moment.request:
        lines = "<br>".join(
            code(shorten(f"{frame.filename}:{frame.line} {frame.name}", _LABEL_LIMIT))
            for frame in moment.request[:_N_FRAMES]
        )
        request = f"<div>asked for by</div>{lines}"
    words = moment_words(moment)
    markup = request + _stack_rows(moment.stacks, _N_MOMENT_ROWS)
    return fold(escaped(f"{words[:1].upper()}{words[1:]}"), markup, is_open=is_open or moment.kind == "oom")


def _series_parts(series: SnapshotSeries, *, is_page: bool) -> Iterator[str]:
    verdict = series.verdict
    colour = COLOURS[verdict.outcome]
    word = f'<b style="color:{colour}">{verdict.outcome.value.upper()}</b>'
    lines = [f'<div style="font-size:17px">{word}&nbsp; {escaped(verdict.reason)}</div>']
    lines += [f"<div>{escaped(line)}</div>" for line in projection_lines(series)]
    lines.append(f"<div>{faint(escaped(f'{len(series.names)} snapshots, {series.key_reason}'))}</div>")
    yield panel("".join(lines), colour)
    yield from _notes(series.notes)
    yield picture(plot_series(series).png(), "image/png", f"Live bytes in each snapshot. {verdict.reason}")
    changed = [stack for stack in series.stacks if len(set(stack.live_bytes)) > 1]
    if changed:
        title = f"Call stacks that changed ({len(changed):,} of {len(series.stacks):,})"
        yield fold(title, _growth_rows(changed), is_open=True)
    if series.tree.children:
        alt = "Growth by frame, outermost first"
        yield picture(plot_icicle(series.tree).png(), "image/png", alt)
        title = "Where the growth comes from, outermost frame first"
        yield fold(title, tree_markup(series.tree, is_open=is_page), is_open=is_page)
    yield fold("Devices", _device_rows(series), is_open=is_page)


def _growth_rows(stacks: Sequence[StackGrowth]) -> str:
    rows = []
    for stack in stacks[:_N_ROWS]:
        is_leak = stack.outcome is Outcome.LEAK
        word = pill("leak" if is_leak else stack.change.value, ACCENT if is_leak else _CHANGE_COLOURS[stack.change])
        sign = "+" if stack.growth_bytes > 0 else ""
        rows.append(
            (sign + format_bytes(stack.growth_bytes), word, escaped(levels_words(stack.live_bytes)), _label(stack))
        )
    more = faint(f"{len(stacks) - _N_ROWS:,} more rows are in .stacks") if len(stacks) > _N_ROWS else ""
    return table(("growth", "change", "requested live bytes", "call stack, innermost first"), rows, right=_RIGHT) + more


def _device_rows(series: SnapshotSeries) -> str:
    rows = [
        (
            escaped(shorten(name, _LABEL_LIMIT)), f"{step:,}", escaped(use.device), format_bytes(use.active_bytes),
            format_bytes(use.reserved_bytes), format_bytes(use.inactive_split_bytes), f"{use.fragmentation:.1%}",
        )
        for name, step, uses in zip(series.names, series.at_steps, series.devices, strict=True)
        for use in uses
    ]  # fmt: skip
    names = ("snapshot", "step", "device", "active", "reserved", "split free", "fragmentation")
    return table(names, rows, right=_RIGHT)


def _notes(notes: Sequence[str]) -> Iterator[str]:
    if notes:
        yield fold("Notes", bullets([escaped(note) for note in notes]), is_open=True)


def _wrapped(parts: Iterator[str]) -> str:
    return f'<div style="{_FRAGMENT}">{"".join(parts)}</div>'
