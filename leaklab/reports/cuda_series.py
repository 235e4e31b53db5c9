"""Several CUDA memory snapshots compared by call stack: what is said of them, and what the user holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from leaklab.cuda.judging import growth_tree
from leaklab.model import Outcome, Verdict
from leaklab.model.cuda import SnapshotSeries, StackChange, StackGrowth, StackKey
from leaklab.render.base import Forms, FrameProperty, Report
from leaklab.render.document import (
    Chapter,
    Document,
    DocumentBlock,
    Drawn,
    Either,
    Headline,
    Image,
    Points,
    Styled,
    Table,
    Tone,
    TwoBars,
    Typeface,
    Words,
    faint,
)
from leaklab.reports.check_html import OUTCOME_TONES, more_rows
from leaklab.reports.cuda import SCHEMA_VERSION, with_frames
from leaklab.reports.cuda_document import LABEL_LIMIT, N_STACKS, lines_of, stack_label
from leaklab.reports.plots import N_DEVICES, plot_icicle, plot_series
from leaklab.reports.stacks import frame_outline, tree_lines
from leaklab.reports.tables import series_csv, series_device_table, series_table
from leaklab.text import format_bytes, levels_words, shorten, visible

if TYPE_CHECKING:
    from leaklab.reports.figure import ReportFigure

_N_ROWS, _NAME_LIMIT = 30, 160  # of HTML
_CHANGE_TONES = {
    StackChange.NEW: Tone.BAD, StackChange.GROWN: Tone.BAD, StackChange.SAME: Tone.CALM,
    StackChange.SHRUNK: Tone.GOOD, StackChange.GONE: Tone.GOOD,
}  # fmt: skip


def document_of(series: SnapshotSeries, *, is_page: bool = False) -> Document:
    """Return what is said of a comparison: the verdict, what changed by call stack, the devices."""
    changed = [stack for stack in series.stacks if len(set(stack.live_bytes)) > 1]
    text = lines_of(_text(series, changed))
    return Document((Either((text,), (Drawn(lambda: _html(series, changed, is_page=is_page)),)),))


def _text(series: SnapshotSeries, changed: Sequence[StackGrowth]) -> Iterator[str]:
    verdict = series.verdict
    yield f"{verdict.outcome.value.upper()}  {visible(verdict.reason)}"
    yield from _projection_lines(series)
    yield from ("", f"{len(series.names)} snapshots, {visible(series.key_reason)}", "")
    yield from _device_lines(series)
    yield from _growth_lines(changed, len(series.stacks) - len(changed))
    if series.tree.children:
        yield from ("where the growth comes from, outermost frame first:", *tree_lines(series.tree), "")
    yield from (f"note: {visible(note)}" for note in series.notes)


def _html(series: SnapshotSeries, changed: Sequence[StackGrowth], *, is_page: bool) -> Iterator[DocumentBlock]:
    verdict = series.verdict
    known_by = faint(f"{len(series.names)} snapshots, {series.key_reason}")
    below: tuple[Words, ...] = (*_projection_lines(series), known_by)
    yield Headline(verdict.reason, OUTCOME_TONES[verdict.outcome], below, verdict.outcome.value.upper())
    yield Chapter("Notes", (Points(series.notes),))
    yield Image(plot_series(series).png(), f"Live bytes in each snapshot. {verdict.reason}")
    if changed:
        title = f"Call stacks that changed ({len(changed):,} of {len(series.stacks):,})"
        yield Chapter(title, (_growth_table(changed), *more_rows(len(changed) - _N_ROWS, ".stacks")))
    if series.tree.children:
        yield Image(plot_icicle(series.tree).png(), "Growth by frame, outermost first")
        title = "Where the growth comes from, outermost frame first"
        yield Chapter(title, (frame_outline(series.tree, is_open=is_page),), is_page)
    yield Chapter("Devices", (_device_table(series),), is_page)


def _growth_table(changed: Sequence[StackGrowth]) -> Table:
    most = max(max(stack.live_bytes) for stack in changed) or 1
    rows = []
    for stack in changed[:_N_ROWS]:
        is_leak = stack.outcome is Outcome.LEAK
        tone = Tone.BAD if is_leak else _CHANGE_TONES[stack.change]
        word = Styled(_fate(stack), Typeface.PILL, tone)
        bars = TwoBars(stack.live_bytes[0] / most, stack.live_bytes[-1] / most, tone)
        rows.append((_growth(stack), word, bars, levels_words(stack.live_bytes), stack_label(stack)))
    columns = (">growth", "change", "first, last", "requested live bytes", "call stack, innermost first")
    return Table(columns, tuple(rows))


def _device_table(series: SnapshotSeries) -> Table:
    rows = tuple(
        (
            shorten(name, _NAME_LIMIT), f"{step:,}", use.device, format_bytes(use.active_bytes),
            format_bytes(use.reserved_bytes), format_bytes(use.inactive_split_bytes), f"{use.fragmentation:.1%}",
        )
        for name, step, uses in zip(series.names, series.at_steps, series.devices, strict=True)
        for use in uses[:N_DEVICES]
    )  # fmt: skip
    return Table(("snapshot", ">step", "device", ">active", ">reserved", ">split free", ">fragmentation"), rows)


def _projection_lines(series: SnapshotSeries) -> Iterator[str]:
    """Yield what the rate comes to, where there is one, and what becomes of reserved memory."""
    verdict, unit = series.verdict, _step_unit(series)
    if verdict.outcome is Outcome.LEAK:
        rate = verdict.bytes_per_run
        yield f"{format_bytes(rate)} per {unit}, {format_bytes(rate * 1000)} per 1,000 {unit}s"
        if series.full_at_step is not None and series.card_bytes and verdict.full_after_runs:
            where = f"at step {series.full_at_step:,}" if series.has_steps else "then"
            yield f"the card ({format_bytes(series.card_bytes)}) is full {where}, earlier if memory fragments"
        elif series.card_bytes is None:
            yield "the size of the card is not known: give it (card_bytes=..., --card 80GB) to see when it is full"
    yield from map(visible, series.statements)


def _step_unit(series: SnapshotSeries) -> str:
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


def _growth_lines(changed: Sequence[StackGrowth], n_same: int) -> Iterator[str]:
    if changed:
        yield f"requested live bytes by call stack ({len(changed):,} changed, {n_same:,} did not):"
    else:
        yield f"all {n_same:,} call stacks are unchanged"
    for stack in changed[:N_STACKS]:
        label = shorten(stack.label, LABEL_LIMIT)
        yield f"  {_growth(stack):>11}  {_fate(stack):<7}  {label}  ({levels_words(stack.live_bytes)})"
    if len(changed) > N_STACKS:
        yield f"  ... and {len(changed) - N_STACKS:,} more"
    yield ""


def _growth(stack: StackGrowth) -> str:
    return f"{'+' if stack.growth_bytes > 0 else ''}{format_bytes(stack.growth_bytes)}"


def _fate(stack: StackGrowth) -> str:
    return stack.outcome.value if stack.outcome is Outcome.LEAK else stack.change.value


def _fields(series: SnapshotSeries) -> dict[str, Any]:
    """Return what a file of *series* holds: no tree, and the growth of each stack and of all beside the levels.

    Statements only where there are any: files of 0.1.0 have none.
    """
    record = {
        name: value for name, value in asdict(series).items() if name != "tree" and (value or name != "statements")
    }
    for entry, stack in zip(record["stacks"], series.stacks, strict=True):
        entry["growth_bytes"] = stack.growth_bytes
    return {"schema": SCHEMA_VERSION, **record, "growth_bytes": series.growth_bytes}


def _restored(fields: Any) -> Any:
    """Return the fields of a series of those of its file, which leaves the tree out."""
    listed = with_frames(fields)
    stacks = msgspec.convert(listed["stacks"], tuple[StackGrowth, ...])
    return {**listed, "tree": growth_tree(stacks)}


@dataclass(frozen=True, slots=True, repr=False)
class SnapshotComparison(Report[SnapshotSeries]):
    """Two or more snapshots compared by call stack.

    Attributes:
        record: The record, with every figure.
    """

    _forms: ClassVar = Forms(
        kind=SnapshotSeries,
        format="leaklab snapshot series",
        schema=SCHEMA_VERSION,
        document=document_of,
        title=lambda series: f"{len(series.names)} memory snapshots: {series.verdict.outcome.value}",
        more={".csv": series_csv},
        fields=_fields,
        restored=_restored,
    )
    record: SnapshotSeries

    stacks = FrameProperty(series_table)
    """Each call stack with its live bytes in every snapshot, largest change first."""
    devices = FrameProperty(series_device_table)
    """Active, reserved and inactive-split bytes of each device in every snapshot."""

    @property
    def series(self) -> SnapshotSeries:
        """The record, by its older name."""
        return self.record

    @property
    def leaked(self) -> bool:
        """Whether the verdict is a leak; two snapshots never make one."""
        return self.record.verdict.outcome is Outcome.LEAK

    @property
    def verdict(self) -> Verdict:
        """The outcome, its reason, bytes per step; ``str()`` begins with the outcome."""
        return self.record.verdict

    @property
    def key(self) -> StackKey:
        """By what the stacks were matched; `key_reason` says why."""
        return self.record.key

    @property
    def key_reason(self) -> str:
        """Why the stacks were matched that way, with the shares that decided."""
        return self.record.key_reason

    @property
    def growth_bytes(self) -> int:
        """Live bytes of the last snapshot minus those of the first, as the program requested them."""
        return self.record.growth_bytes

    @property
    def notes(self) -> tuple[str, ...]:
        """What the files lack, or where they contradict themselves."""
        return self.record.notes

    def plot(self) -> ReportFigure:
        """Return a figure of the live bytes in every snapshot, stacked by call stack."""
        return plot_series(self.record)

    def __repr__(self) -> str:
        return visible(f"<SnapshotComparison {self.verdict.outcome.value}: {shorten(self.verdict.reason, 90)}>")
