"""Write a snapshot, or the comparison of several, as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from leaklab.model import Outcome
from leaklab.model.cuda import (
    BEFORE,
    CPP,
    NO_STACK,
    OTHERS,
    FrameNode,
    LiveStack,
    PoolUse,
    SnapshotFacts,
    SnapshotSeries,
    Timeline,
    TracePhase,
    TracePoint,
)
from leaklab.text import format_bytes, format_seconds, levels_words, shorten, unit_words, visible

SCHEMA_VERSION = 1
"""Of the JSON files of snapshots and of their comparison."""
N_STACKS = 15
N_DEVICES = 16
"""No machine has more; a damaged or hostile file may claim thousands."""
N_POOLS = 64
N_MOMENTS = 64
N_PHASES = 24
_N_MOMENT_STACKS = 5
_LABEL_LIMIT = 120
_BANDS = {
    BEFORE: "these blocks are older than the recording; start it before the model is built to see their call stacks",
    NO_STACK: "recorded without a call stack",
    CPP: "asked for by C++ code, such as that of backward()",
    OTHERS: "call stacks too small to be drawn separately",
}
_TREE_SHARE = 0.01
_TREE_LINES = 40
_TREE_DEPTH = 24


def snapshot_line(name: str, devices: Sequence[PoolUse]) -> str:
    """Return one line on a snapshot."""
    uses = [
        f"{use.device} {format_bytes(use.active_bytes)} active of {format_bytes(use.reserved_bytes)} reserved"
        for use in devices[:N_DEVICES]
    ]
    if len(devices) > N_DEVICES:
        uses.append(f"and {unit_words(len(devices) - N_DEVICES, 'more devices')}")
    return f"{shorten(PurePath(name).name or name, 60)}: {'; '.join(uses)}"


def free_words(devices: Sequence[PoolUse]) -> Iterator[str]:
    """Yield for each device what of its reserved memory is free."""
    for use in devices[:N_DEVICES]:
        free = use.inactive_split_bytes + use.releasable_bytes
        if free > 0:
            yield (
                f"{use.device} has {format_bytes(free)} free within reserved memory, the largest block "
                f"{format_bytes(use.largest_free_bytes)}; empty_cache() would return "
                f"{format_bytes(use.releasable_bytes)}"
            )


def failure_words(facts: SnapshotFacts) -> str:
    """Return whether an allocation failed, where no moment tells."""
    if any(moment.kind == "oom" for moment in facts.moments):
        return ""
    if facts.timelines:
        return "no allocation failed within the trace"
    return "the file has no trace of events: it does not say whether an allocation failed"


def band_words(timelines: Sequence[Timeline]) -> Iterator[str]:
    """Yield what the bands are that are no call stack."""
    there = {label for timeline in timelines for label, _bytes in timeline.bands}
    for label, words in _BANDS.items():
        if label in there:
            yield f"{label}: {words}"


def snapshot_text(facts: SnapshotFacts) -> str:
    """Return everything about one snapshot that fits a screen or two; why memory ended comes first."""
    lines = [snapshot_line(facts.name, facts.devices), *free_words(facts.devices)]
    lines += [words for words in [failure_words(facts)] if words] + [""]
    moments = telling_moments(facts.moments)
    for moment in moments:
        if moment.kind == "oom":
            lines += _moment_lines(moment)
    lines += _stack_lines(facts.stacks, is_one_device=len(facts.devices) < 2)  # noqa: PLR2004 - more than one
    lines += _pool_lines(facts.pools)
    for moment in moments:
        if moment.kind != "oom":
            lines += _moment_lines(moment)
    lines += phase_lines(facts.phases)
    if facts.stacks:
        lines += ["frames, outermost first, with what was allocated below them:"]
        lines += [f"  {line}" for line in tree_lines(facts.tree)]
        lines.append("")
    lines += [f"note: {visible(note)}" for note in facts.notes]
    return "\n".join(lines).rstrip() + "\n"


def _stack_lines(stacks: Sequence[LiveStack], *, is_one_device: bool) -> Iterator[str]:
    if not stacks:
        return
    total = sum(stack.active_bytes for stack in stacks) or 1
    framed = sum(stack.active_bytes for stack in stacks if stack.frames)
    yield f"live bytes by call stack ({len(stacks):,}; {framed / total:.0%} of the bytes have one):"
    for stack in stacks[:N_STACKS]:
        blocks = unit_words(stack.n_blocks, "blocks")
        device = "" if is_one_device else f"{stack.device:<11}  "
        yield (
            f"  {format_bytes(stack.active_bytes):>10}  {stack.active_bytes / total:>5.1%}  {blocks:>13}"
            f"  {device}{shorten(stack.label, _LABEL_LIMIT)}"
        )
    if len(stacks) > N_STACKS:
        rest = sum(stack.active_bytes for stack in stacks[N_STACKS:])
        yield f"  {format_bytes(rest):>10}  {rest / total:>5.1%}  in {len(stacks) - N_STACKS:,} more"
    yield ""


def _pool_lines(pools: Sequence[PoolUse]) -> Iterator[str]:
    if not pools:
        return
    yield "pools:      reserved      active  split free  releasable  fragmentation"
    for pool in pools[:N_POOLS]:
        figures = "  ".join(
            f"{format_bytes(size):>10}"
            for size in (pool.reserved_bytes, pool.active_bytes, pool.inactive_split_bytes, pool.releasable_bytes)
        )
        yield f"          {figures}  {pool.fragmentation:>13.1%}  {visible(f'{pool.device} {pool.pool}')}"
    if len(pools) > N_POOLS:
        yield f"          ... and {len(pools) - N_POOLS:,} more"
    yield ""


def telling_moments(moments: Sequence[TracePoint]) -> Sequence[TracePoint]:
    """Return the moments that are shown: all, or those with the most live bytes of very many."""
    if len(moments) <= N_MOMENTS:
        return moments
    return sorted(moments, key=lambda moment: moment.live_bytes, reverse=True)[:N_MOMENTS]


def _moment_lines(moment: TracePoint) -> Iterator[str]:
    yield f"{moment_words(moment)}:"
    for name, words in moment_facts(moment):
        yield f"  {name:<12}  {words}"
    for stack in moment.stacks[:_N_MOMENT_STACKS]:
        yield f"  {format_bytes(stack.active_bytes):>12}  {shorten(stack.label, _LABEL_LIMIT)}"
    if len(moment.stacks) > _N_MOMENT_STACKS:
        yield f"  ... and {len(moment.stacks) - _N_MOMENT_STACKS:,} more"
    yield ""


def phase_lines(phases: Sequence[TracePhase]) -> Iterator[str]:
    """Yield what memory did within each annotated part of the program, those with the highest level at most."""
    if not phases:
        return
    yield "annotated parts:  at begin     highest      at end   times"
    for phase in telling_phases(phases):
        figures = "  ".join(
            f"{format_bytes(size):>10}" for size in (phase.start_bytes, phase.highest_bytes, phase.end_bytes)
        )
        yield f"                {figures}  {phase.n_times:>6,}  {phase.device} {shorten(phase.name, _LABEL_LIMIT)}"
    if len(phases) > N_PHASES:
        yield f"                ... and {len(phases) - N_PHASES:,} more"
    yield ""


def telling_phases(phases: Sequence[TracePhase]) -> Sequence[TracePhase]:
    """Return the parts that are shown, in their order: all, or of many those in which most was live."""
    if len(phases) <= N_PHASES:
        return phases
    chosen = set(sorted(range(len(phases)), key=lambda place: -phases[place].highest_bytes)[:N_PHASES])
    return [phase for place, phase in enumerate(phases) if place in chosen]


def moment_words(moment: TracePoint) -> str:
    """Return what a moment is, in one clause."""
    place = f"event {moment.event:,} of {moment.n_events:,}" if moment.event else "before the first event of the trace"
    live = f"{format_bytes(moment.live_bytes)} requested"
    if moment.kind == "peak":
        return f"peak of {moment.device} within the trace: {live} at {place}"
    wanted = "" if moment.wanted_bytes is None else f" for {format_bytes(moment.wanted_bytes)}"
    asked = f", asked for by {shorten(moment.request_label, _LABEL_LIMIT)}" if moment.request_label else ""
    return f"out of memory on {moment.device}: no room{wanted}{asked} ({place})"


def moment_facts(moment: TracePoint) -> Iterator[tuple[str, str]]:
    """Yield what is known of an out-of-memory event beside its stacks: the name of a fact, and its words."""
    if moment.kind != "oom":
        return
    yield "live", f"{format_bytes(moment.live_bytes)} requested"
    if moment.reserved_bytes is not None and moment.reserved_free_bytes is not None:
        pieces = ""
        if moment.largest_free_bytes:
            pieces = f", {format_bytes(moment.reserved_free_bytes)} of it free, in pieces of at most"
            pieces += f" {format_bytes(moment.largest_free_bytes)}"
        yield "reserved", format_bytes(moment.reserved_bytes) + pieces
    if moment.free_bytes is not None:
        yield "on the card", f"{format_bytes(moment.free_bytes)} were left beside that"
    if is_fragmented(moment):
        yield (
            "so",
            "enough was free, but in pieces: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True joins such pieces",
        )


def is_fragmented(moment: TracePoint) -> bool:
    """Return whether there was room for what was wanted, were it in one piece."""
    if moment.wanted_bytes is None or moment.reserved_free_bytes is None or moment.largest_free_bytes is None:
        return False
    room = moment.reserved_free_bytes + (moment.free_bytes or 0)
    return moment.largest_free_bytes < moment.wanted_bytes <= room


def tree_lines(root: FrameNode) -> Iterator[str]:
    """Yield the frames that hold at least 1 % of the bytes, indented; chains of single calls stay at one depth."""
    least = max(1, root.active_bytes * _TREE_SHARE)
    waiting = [(root, 0)]
    for _ in range(_TREE_LINES):
        if not waiting:
            return
        node, depth = waiting.pop()
        indent = "  " * min(depth, _TREE_DEPTH)
        yield f"{format_bytes(node.active_bytes):>10}  {indent}{shorten(node.label, _LABEL_LIMIT)}"
        shown = [child for child in node.children if child.active_bytes >= least]
        deeper = depth + (len(shown) > 1 or node is root)
        waiting += [(child, deeper) for child in reversed(shown)]
    if waiting:
        yield f"{'':>10}  ... and more below: see the page that to_html() writes"


def series_line(series: SnapshotSeries) -> str:
    """Return one line on a comparison."""
    return f"{series.verdict.outcome.value}: {shorten(series.verdict.reason, 90)}"


def series_text(series: SnapshotSeries) -> str:
    """Return the comparison as text."""
    verdict = series.verdict
    lines = [f"{verdict.outcome.value.upper()}  {visible(verdict.reason)}"]
    lines += projection_lines(series)
    lines += ["", f"{len(series.names)} snapshots, {visible(series.key_reason)}", ""]
    lines += _device_lines(series)
    lines += _growth_lines(series)
    if series.tree.children:
        lines += ["where the growth comes from, outermost frame first:"]
        lines += [f"  {line}" for line in tree_lines(series.tree)]
        lines.append("")
    lines += [f"note: {visible(note)}" for note in series.notes]
    return "\n".join(lines).rstrip() + "\n"


def projection_lines(series: SnapshotSeries) -> Iterator[str]:
    """Yield what the rate comes to, where there is one, and what becomes of reserved memory."""
    verdict, unit = series.verdict, step_unit(series)
    if verdict.outcome is Outcome.LEAK:
        rate = verdict.bytes_per_run
        yield f"{format_bytes(rate)} per {unit}, {format_bytes(rate * 1000)} per 1,000 {unit}s"
        if series.full_at_step is not None and series.card_bytes and verdict.full_after_runs:
            where = f"at step {series.full_at_step:,}" if series.has_steps else "then"
            yield f"the card ({format_bytes(series.card_bytes)}) is full {where}, earlier if memory fragments"
        elif series.card_bytes is None:
            yield "the size of the card is not known: give it (card_bytes=..., --card 80GB) to see when it is full"
    yield from map(visible, series.statements)


def step_unit(series: SnapshotSeries) -> str:
    """Return what the snapshots are counted by."""
    return "step" if series.has_steps else "snapshot"


def _device_lines(series: SnapshotSeries) -> Iterator[str]:
    yield "                active    reserved  split free  fragmentation"
    for name, uses in zip(series.names, series.devices, strict=True):
        for use in uses[:N_DEVICES]:
            figures = "  ".join(
                f"{format_bytes(size):>10}" for size in (use.active_bytes, use.reserved_bytes, use.inactive_split_bytes)
            )
            yield f"            {figures}  {use.fragmentation:>13.1%}  {shorten(name, 60)} {use.device}"
    yield ""


def _growth_lines(series: SnapshotSeries) -> Iterator[str]:
    changed = [stack for stack in series.stacks if stack.growth_bytes or len(set(stack.live_bytes)) > 1]
    n_same = len(series.stacks) - len(changed)
    if changed:
        yield f"requested live bytes by call stack ({len(changed):,} changed, {n_same:,} did not):"
    else:
        yield f"all {n_same:,} call stacks are unchanged"
    for stack in changed[:N_STACKS]:
        sign = "+" if stack.growth_bytes > 0 else ""
        word = stack.outcome.value if stack.outcome is Outcome.LEAK else stack.change.value
        yield (
            f"  {sign + format_bytes(stack.growth_bytes):>11}  {word:<7}  {shorten(stack.label, _LABEL_LIMIT)}"
            f"  ({levels_words(stack.live_bytes)})"
        )
    if len(changed) > N_STACKS:
        yield f"  ... and {len(changed) - N_STACKS:,} more"
    yield ""


def span_words(seconds: float | None, n_events: int) -> str:
    """Return how long a trace is."""
    return f"{n_events:,} events" + ("" if seconds is None else f" in {format_seconds(seconds)}")


def facts_fields(facts: SnapshotFacts) -> dict[str, Any]:
    """Return what a file of *facts* holds; the tree is left out, the stacks say the same.

    Phases only where there are any: files of 0.1.0 have none.
    """
    record = {name: value for name, value in asdict(facts).items() if name != "tree" and (value or name != "phases")}
    return {"schema": SCHEMA_VERSION, **record}


def series_fields(series: SnapshotSeries) -> dict[str, Any]:
    """Return what a file of *series* holds: no tree, and the growth of each stack and of all beside the levels.

    Statements only where there are any: files of 0.1.0 have none.
    """
    record = {
        name: value for name, value in asdict(series).items() if name != "tree" and (value or name != "statements")
    }
    for entry, stack in zip(record["stacks"], series.stacks, strict=True):
        entry["growth_bytes"] = stack.growth_bytes
    return {"schema": SCHEMA_VERSION, **record, "growth_bytes": series.growth_bytes}
