"""What is said of one CUDA memory snapshot, and what it shares with a comparison of several: frames and stacks.

The page of a file has the maps of its blocks as data, and one script that draws them.
"""

from __future__ import annotations

import base64
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields as dataclass_fields
from pathlib import PurePath

from markupsafe import Markup

from leaklab.model.cuda import (
    BEFORE,
    CPP,
    NO_STACK,
    OTHERS,
    BlockMap,
    CallFrame,
    LiveStack,
    PoolUse,
    SnapshotFacts,
    StackGrowth,
    Timeline,
    TracePhase,
    TracePoint,
)
from leaklab.render.document import (
    Cell,
    Chapter,
    Document,
    DocumentBlock,
    Drawn,
    Either,
    Foldout,
    Headline,
    Image,
    Lines,
    Points,
    Remark,
    Styled,
    Table,
    Tone,
    Typeface,
    Words,
    code,
    faint,
    plain,
)
from leaklab.render.json import one_line, script_data
from leaklab.render.templates import joined, unfolding
from leaklab.reports.check_html import more_rows
from leaklab.reports.plots import N_DEVICES, plot_icicle, plot_timeline, stack_colours
from leaklab.reports.stacks import frame_outline, tree_lines
from leaklab.text import format_bytes, shorten, unit_words, visible

SCRIPT = f'"use strict";\n{joined("page_parts.js", "cuda_map.js")}\n{unfolding()}'
"""Draws the maps of a page."""
N_STACKS = 15
LABEL_LIMIT = 120
_N_ROWS, _N_MOMENT_ROWS = 30, 12  # of HTML
_N_POOLS, _N_MOMENTS, _N_PHASES = 64, 64, 24
_N_MOMENT_STACKS, _N_MOST = 5, 3
_N_FRAMES, _CODE_LIMIT = 60, 160
_BANDS = {
    BEFORE: "older than the recording: start recording before the model is built to see their call stacks",
    NO_STACK: "recorded without a call stack",
    CPP: "asked for by C++ code, such as that of backward()",
    OTHERS: "call stacks too small to be drawn separately",
}
_RISE_SHARE, _LATE_SHARE = 0.1, 0.2
"""A line grows along a trace if it gained this part of the peak, and this part of that in the second half."""


def snapshot_title(facts: SnapshotFacts) -> str:
    """Return the title of the page."""
    return f"memory snapshot {PurePath(facts.name).name}"


def snapshot_document(facts: SnapshotFacts, *, is_page: bool = False, maps: Sequence[BlockMap] = ()) -> Document:
    """Return what is said of a snapshot; why memory ended comes before where it was highest.

    Args:
        facts: What is known of it.
        is_page: Whether everything is unfolded.
        maps: Where the blocks lay, for each device where that is known; only the file itself tells, no record of it.
    """
    return Document((Either((lines_of(_text(facts)),), (Drawn(lambda: _html(facts, maps, is_page=is_page)),)),))


def lines_of(lines: Iterable[str]) -> Lines:
    """Return *lines* of columns, which are never broken, without empty ones at the end."""
    return Lines(tuple("\n".join(lines).rstrip().split("\n")))


def _text(facts: SnapshotFacts) -> Iterator[str]:
    """Yield what fits a screen or two."""
    yield from (snapshot_line(facts.name, facts.devices), *_free_words(facts.devices))
    yield from (*_failure_words(facts), *map(plain, _risen(facts.timelines)), "")
    moments = _shown_moments(facts.moments)
    for moment in moments:
        if moment.kind == "oom":
            yield from _moment_lines(moment)
    yield from _stack_lines(facts.stacks, is_one_device=len(facts.devices) < 2)  # noqa: PLR2004 - more than one
    yield from _pool_lines(facts.pools)
    for moment in moments:
        if moment.kind != "oom":
            yield from _moment_lines(moment)
    yield from _phase_lines(facts.phases)
    if facts.stacks:
        yield from ("frames, outermost first, with what was allocated below them:", *tree_lines(facts.tree), "")
    yield from (f"note: {visible(note)}" for note in facts.notes)


def _html(facts: SnapshotFacts, maps: Sequence[BlockMap], *, is_page: bool) -> Iterator[DocumentBlock]:
    """Yield the answer, the pictures, and all figures in folded tables."""
    moments = sorted(_shown_moments(facts.moments), key=lambda moment: moment.kind != "oom")
    yield _answer(facts, moments)
    yield Chapter("Notes", (Points(facts.notes),))
    colours = stack_colours(facts.timelines, facts.stacks)
    if facts.timelines:
        peaks = "; ".join(_moment_words(moment) for moment in moments if moment.kind == "peak")
        yield Image(plot_timeline(facts.timelines, colours).png(), f"Memory along the trace. {peaks}")
    yield from (Remark(faint(words)) for words in _band_words(facts.timelines))
    yield Drawn(lambda: maps_markup(maps, colours))
    if facts.stacks:
        image = plot_icicle(facts.tree, colours).png()
        yield Image(image, f"Live bytes by frame; the largest stack is {facts.stacks[0].label}")
        yield Chapter(f"Live bytes by call stack ({len(facts.stacks):,})", _stack_table(facts.stacks, _N_ROWS))
        yield Chapter("Frames, outermost first", (frame_outline(facts.tree, is_open=is_page),), is_page)
    yield Chapter(f"Pools ({len(facts.pools):,})", tuple(_pool_table(facts.pools)), is_page)
    yield Chapter(f"Annotated parts ({len(facts.phases):,})", tuple(_phase_table(facts.phases)), is_page)
    for moment in moments:
        request: tuple[DocumentBlock, ...] = ()
        if moment.request:
            frames = Foldout("All frames of that call, innermost first", _frame_words(moment.request))
            request = (Remark(("asked for by ", code(moment.request_label))), frames)
        table = _stack_table(moment.stacks, _N_MOMENT_ROWS)
        yield Chapter(_capital(_moment_words(moment)), (*request, *table), is_page or moment.kind == "oom")


def _answer(facts: SnapshotFacts, moments: Sequence[TracePoint]) -> Headline:
    """Return why memory ended, or what it holds."""
    line = snapshot_line(facts.name, facts.devices)
    is_out_of_memory = any(moment.kind == "oom" for moment in moments)
    lines: list[Words] = [] if is_out_of_memory else [line, *_most_held(facts.stacks)]
    for number, moment in enumerate(moments):
        lines.append(_capital(_moment_words(moment)))
        lines += [(faint(name), " ", words) for name, words in _moment_facts(moment)]
        if moment.kind == "oom":
            lines += [*_most_held(moment.stacks), *(() if number else (line,))]
    lines += _risen(facts.timelines)
    if not is_out_of_memory:
        lines += _free_words(facts.devices)
    lines += map(_capital, _failure_words(facts))
    return Headline(lines[0], Tone.BAD if is_out_of_memory else Tone.CALM, tuple(lines[1:]), is_large=True)


def _most_held(stacks: Sequence[LiveStack]) -> Iterator[Words]:
    parts: list[str | Styled] = []
    for stack in stacks[:_N_MOST]:
        held = (code(shorten(stack.label, LABEL_LIMIT)), f" {format_bytes(stack.active_bytes)}")
        parts += [", " if parts else " ", *held]
    if parts:
        yield (faint("most held by"), *parts)


def _risen(timelines: Sequence[Timeline]) -> Iterator[Words]:
    """Yield which lines of code grow along a trace, most first: not those that grew in its first half alone."""
    for timeline in timelines[:N_DEVICES]:
        middle = bisect_left(timeline.at_events, timeline.n_events // 2)
        least = _RISE_SHARE * max(timeline.live_bytes)
        rises = [
            (levels[-1] - levels[0], label)
            for label, levels in timeline.bands
            if label not in _BANDS and levels[-1] - levels[middle] > _LATE_SHARE * (levels[-1] - levels[0])
        ]
        parts: list[str | Styled] = []
        for growth, label in sorted(rises, reverse=True)[:_N_MOST]:
            if growth > least:
                held = (code(shorten(label, LABEL_LIMIT)), f" +{format_bytes(growth)}")
                parts += [", " if parts else " ", *held]
        if parts:
            where = f" on {timeline.device}" if len(timelines) > 1 else ""
            yield (faint(f"grew most along the trace{where}"), *parts)


def _stack_table(stacks: Sequence[LiveStack], n_rows: int) -> tuple[DocumentBlock, ...]:
    total = sum(stack.active_bytes for stack in stacks) or 1
    rows = tuple(
        (
            Styled(format_bytes(stack.active_bytes), Typeface.UNBROKEN), f"{stack.active_bytes / total:.1%}",
            f"{stack.n_blocks:,}", stack.device, stack_label(stack),
        )
        for stack in stacks[:n_rows]
    )  # fmt: skip
    table = Table((">bytes", ">share", ">blocks", "device", "call stack, innermost first"), rows)
    return (table, *more_rows(len(stacks) - n_rows, ".by_stack()"))


def stack_label(stack: LiveStack | StackGrowth) -> Cell:
    """Return the label of a stack; where it has frames, they unfold."""
    label = code(shorten(stack.label, _CODE_LIMIT))
    return Foldout(label, _frame_words(stack.frames)) if stack.frames else label


def _frame_words(frames: Sequence[CallFrame]) -> tuple[Words, ...]:
    shown = [f"{frame.filename}:{frame.line} {frame.name}" for frame in frames[:_N_FRAMES]]
    if len(frames) > _N_FRAMES:
        shown.append(f"... {unit_words(len(frames) - _N_FRAMES, 'more frames')}")
    return tuple(code(shorten(line, _CODE_LIMIT)) for line in shown)


def _pool_table(pools: Sequence[PoolUse]) -> Iterator[DocumentBlock]:
    rows = tuple(
        (
            f"{pool.device} {pool.pool}", format_bytes(pool.reserved_bytes), format_bytes(pool.active_bytes),
            format_bytes(pool.inactive_split_bytes), format_bytes(pool.releasable_bytes), f"{pool.fragmentation:.1%}",
        )
        for pool in pools[:_N_POOLS]
    )  # fmt: skip
    if rows:
        yield Table(("pool", ">reserved", ">active", ">split free", ">releasable", ">fragmentation"), rows)
        words = "split free: free, but beside live blocks, so empty_cache() cannot give it back; releasable: it can"
        yield Remark(faint(words))


def _phase_table(phases: Sequence[TracePhase]) -> Iterator[DocumentBlock]:
    rows = tuple(
        (
            code(shorten(phase.name, LABEL_LIMIT)), phase.device, f"{phase.n_times:,}", format_bytes(phase.start_bytes),
            format_bytes(phase.highest_bytes), format_bytes(phase.end_bytes),
        )
        for phase in _shown_phases(phases)
    )  # fmt: skip
    if rows:
        yield Table(("annotation", "device", ">times", ">live at its start", ">highest", ">live at its end"), rows)
        yield from more_rows(len(phases) - _N_PHASES, ".phases")


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def snapshot_line(name: str, devices: Sequence[PoolUse]) -> str:
    """Return one line on a snapshot."""
    uses = [
        f"{use.device} {format_bytes(use.active_bytes)} active of {format_bytes(use.reserved_bytes)} reserved"
        for use in devices[:N_DEVICES]
    ]
    if len(devices) > N_DEVICES:
        uses.append(f"and {unit_words(len(devices) - N_DEVICES, 'more devices')}")
    return f"{shorten(PurePath(name).name or name, 60)}: {'; '.join(uses)}"


def _free_words(devices: Sequence[PoolUse]) -> Iterator[str]:
    """Yield for each device what of its reserved memory is free."""
    for use in devices[:N_DEVICES]:
        free = use.inactive_split_bytes + use.releasable_bytes
        if free > 0:
            yield (
                f"{use.device} has {format_bytes(free)} free within reserved memory, the largest block "
                f"{format_bytes(use.largest_free_bytes)}; empty_cache() would return "
                f"{format_bytes(use.releasable_bytes)}"
            )


def _failure_words(facts: SnapshotFacts) -> Iterator[str]:
    """Yield whether an allocation failed, where no moment tells."""
    if any(moment.kind == "oom" for moment in facts.moments):
        return
    if facts.timelines:
        yield "no allocation failed within the trace"
    else:
        yield "the file has no trace of events: it does not say whether an allocation failed"


def _band_words(timelines: Sequence[Timeline]) -> Iterator[str]:
    """Yield what the bands are that are no call stack."""
    there = {label for timeline in timelines for label, _bytes in timeline.bands}
    for label, words in _BANDS.items():
        if label in there:
            yield f"{label}: {words}"


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
            f"  {device}{shorten(stack.label, LABEL_LIMIT)}"
        )
    if len(stacks) > N_STACKS:
        rest = sum(stack.active_bytes for stack in stacks[N_STACKS:])
        yield f"  {format_bytes(rest):>10}  {rest / total:>5.1%}  in {len(stacks) - N_STACKS:,} more"
    yield ""


def _pool_lines(pools: Sequence[PoolUse]) -> Iterator[str]:
    if not pools:
        return
    yield "pools:      reserved      active  split free  releasable  fragmentation"
    for pool in pools[:_N_POOLS]:
        figures = "  ".join(
            f"{format_bytes(size):>10}"
            for size in (pool.reserved_bytes, pool.active_bytes, pool.inactive_split_bytes, pool.releasable_bytes)
        )
        yield f"          {figures}  {pool.fragmentation:>13.1%}  {visible(f'{pool.device} {pool.pool}')}"
    if len(pools) > _N_POOLS:
        yield f"          ... and {len(pools) - _N_POOLS:,} more"
    yield ""


def _shown_moments(moments: Sequence[TracePoint]) -> Sequence[TracePoint]:
    """Return the moments that are shown: all, or those with the most live bytes of very many."""
    if len(moments) <= _N_MOMENTS:
        return moments
    return sorted(moments, key=lambda moment: moment.live_bytes, reverse=True)[:_N_MOMENTS]


def _moment_lines(moment: TracePoint) -> Iterator[str]:
    yield f"{_moment_words(moment)}:"
    for name, words in _moment_facts(moment):
        yield f"  {name:<12}  {words}"
    for stack in moment.stacks[:_N_MOMENT_STACKS]:
        yield f"  {format_bytes(stack.active_bytes):>12}  {shorten(stack.label, LABEL_LIMIT)}"
    if len(moment.stacks) > _N_MOMENT_STACKS:
        yield f"  ... and {len(moment.stacks) - _N_MOMENT_STACKS:,} more"
    yield ""


def _phase_lines(phases: Sequence[TracePhase]) -> Iterator[str]:
    """Yield what memory did within each annotated part of the program, those with the highest level at most."""
    if not phases:
        return
    yield "annotated parts:  at start     highest      at end   times"
    for phase in _shown_phases(phases):
        figures = "  ".join(
            f"{format_bytes(size):>10}" for size in (phase.start_bytes, phase.highest_bytes, phase.end_bytes)
        )
        yield f"                {figures}  {phase.n_times:>6,}  {phase.device} {shorten(phase.name, LABEL_LIMIT)}"
    if len(phases) > _N_PHASES:
        yield f"                ... and {len(phases) - _N_PHASES:,} more"
    yield ""


def _shown_phases(phases: Sequence[TracePhase]) -> Sequence[TracePhase]:
    """Return the parts that are shown, in their order: all, or of many those in which most was live."""
    if len(phases) <= _N_PHASES:
        return phases
    chosen = set(sorted(range(len(phases)), key=lambda place: -phases[place].highest_bytes)[:_N_PHASES])
    return [phase for place, phase in enumerate(phases) if place in chosen]


def _moment_words(moment: TracePoint) -> str:
    """Return what a moment is, in one clause."""
    place = f"event {moment.event:,} of {moment.n_events:,}" if moment.event else "before the first event of the trace"
    live = f"{format_bytes(moment.live_bytes)} requested"
    if moment.kind == "peak":
        return f"peak of {moment.device} within the trace: {live} at {place}"
    wanted = "" if moment.wanted_bytes is None else f" for {format_bytes(moment.wanted_bytes)}"
    asked = f", asked for by {shorten(moment.request_label, LABEL_LIMIT)}" if moment.request_label else ""
    return f"out of memory on {moment.device}: no room{wanted}{asked} ({place})"


def _moment_facts(moment: TracePoint) -> Iterator[tuple[str, str]]:
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
        yield "on the card", f"{format_bytes(moment.free_bytes)} were free in addition"
    if _is_fragmented(moment):
        yield (
            "so",
            "enough was free, but in pieces: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True joins such pieces",
        )


def _is_fragmented(moment: TracePoint) -> bool:
    """Return whether there was room for what was wanted, were it in one piece."""
    if moment.wanted_bytes is None or moment.reserved_free_bytes is None or moment.largest_free_bytes is None:
        return False
    room = moment.reserved_free_bytes + (moment.free_bytes or 0)
    return moment.largest_free_bytes < moment.wanted_bytes <= room


def maps_markup(maps: Sequence[BlockMap], colours: Mapping[str, str]) -> Markup:
    """Return a place for each map, with its data; the script fills them. Without maps nothing."""
    shown = {visible(name): colour for name, colour in colours.items()}
    places = (script_data(one_line({**_fields(one), "colours": shown}, "map"), "blocks") for one in maps)
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
