"""Write a check as plain text: what the user of a terminal sees, at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Iterator

from leaklab.model import Check, Leak, Run
from leaklab.render.words import (
    LABEL_WIDTH,
    advice_text,
    amount_words,
    effort_words,
    failure_words,
    is_leak,
    kept_words,
    leak_facts,
    projection_words,
    render_path,
)
from leaklab.text import SHOWN_LIMIT, WIDTH, clipped, format_bytes, format_seconds, shorten, signed_bytes, wrap

_N_TOLD_IN_FULL = 5
_N_RUN_ROWS = 4  # at either end of the table of runs
_TITLE_LIMIT = 200


def render_text(check: Check) -> str:
    """Return the whole report as lines of at most 100 columns, the verdict first.

    A check that found nothing is told in a few lines; the table of runs is shown only where something is to be seen.
    """
    check = clipped(check, SHOWN_LIMIT)
    blocks = [list(_head(check))]
    blocks += [
        list(_leak_block(leak, number, len(check.leaks)))
        for number, leak in enumerate(check.leaks[:_N_TOLD_IN_FULL], 1)
    ]
    blocks.append(list(_smaller_block(check.leaks)))
    blocks += [list(_bounded_block(check.bounded)), list(_notes_block(check.notes))]
    if check.runs and (is_leak(check) or check.failure):
        blocks.append(list(_runs_block(check.runs)))
    blocks.append(list(_environment_block(check)))
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _head(check: Check) -> Iterator[str]:
    """Yield the verdict, what was run, and what the verdict comes to."""
    word = check.verdict.outcome.value.upper()
    yield from _labelled(word, check.verdict.reason, len(word) + 2)
    indent = " " * (len(word) + 2)
    details = [effort_words(check), projection_words(check)]
    if check.failure:
        details.append(failure_words(check))
    if check.runs and not is_leak(check):
        details.append(kept_words([run.n_kept for run in check.runs], "objects", WIDTH - len(indent)))
    for detail in filter(None, details):
        yield from wrap(detail, indent, indent)


def _leak_block(leak: Leak, number: int, n_leaks: int) -> Iterator[str]:
    """Yield everything that is known of one leak, in the order in which it is asked for."""
    yield from wrap(f"Leak {number} of {n_leaks}: {shorten(leak.what, _TITLE_LIMIT)}", "", "  ")
    for label, words, _ in leak_facts(leak, WIDTH - LABEL_WIDTH):
        if label == "id":
            for name, line in zip(
                _labels("try" if leak.cures else "advice"), advice_text(leak).splitlines(), strict=False
            ):
                yield from _fact(name, line)
        for line in words if label == "lines" else [", ".join(words)]:
            yield from _fact(label.removesuffix("s") if label == "lines" else label, line)
        if label == "held by":
            yield from _block("path", render_path(leak.path).splitlines())


def _smaller_block(leaks: tuple[Leak, ...]) -> Iterator[str]:
    """Yield one item for each leak that is not told in full."""
    if len(leaks) > _N_TOLD_IN_FULL:
        yield f"Smaller leaks (report.leaks[{_N_TOLD_IN_FULL}] and following tell all of them)"
    for number, leak in enumerate(leaks[_N_TOLD_IN_FULL:], _N_TOLD_IN_FULL + 1):
        words = f"{number}: {shorten(leak.what, _TITLE_LIMIT)}, {amount_words(leak)} per run, held by {leak.holder}"
        yield from wrap(words, "  - ", "    ")


def _bounded_block(places: tuple[Leak, ...]) -> Iterator[str]:
    """Yield the places that grew and stopped: no leaks, and said so."""
    if places:
        yield "Not counted as leaks, because they stop growing:"
    for place in places:
        grew = "" if not place.count_per_run else f" ({amount_words(place)} per run while it grew)"
        yield from wrap(f"{place.holder or place.what}: {place.reason}{grew}", "  - ", "    ")


def _notes_block(notes: tuple[str, ...]) -> Iterator[str]:
    if notes:
        yield "Notes"
    for note in notes:
        yield from wrap(note, "  - ", "    ")


def _runs_block(runs: tuple[Run, ...]) -> Iterator[str]:
    """Yield the runs as a table; of many runs the first and the last. Levels are told as changes since run 1."""
    has_accelerator = any(run.accelerator_bytes is not None for run in runs)
    names = ["run", "time", "born", "kept", "tensors kept", "tensor bytes", "native heap", "accelerator", "process"]
    if not has_accelerator:
        names.remove("accelerator")
    yield "Runs"
    yield _row(names, names)
    n_hidden = len(runs) - 2 * _N_RUN_ROWS
    for position, run in enumerate(runs):
        if n_hidden > 1 and _N_RUN_ROWS <= position < len(runs) - _N_RUN_ROWS:
            if position == _N_RUN_ROWS:
                yield f"  ... {n_hidden:,} more runs"
            continue
        cells = [str(run.number), format_seconds(run.seconds), f"{run.n_born:,}", f"{run.n_kept:,}"]
        cells += [f"{run.n_tensors_kept:,}", format_bytes(run.tensor_bytes_kept)]
        first = runs[0] if position else None
        cells.append(_level(run.heap_bytes, None if first is None else first.heap_bytes))
        if has_accelerator:
            cells.append(_level(run.accelerator_bytes, None if first is None else first.accelerator_bytes))
        cells.append(_level(run.rss_bytes, None if first is None else first.rss_bytes))
        yield _row(cells, names)


def _environment_block(check: Check) -> Iterator[str]:
    if check.environment:
        yield from wrap(", ".join(f"{name} {version}" for name, version in check.environment), "", "")


def _row(cells: list[str], names: list[str]) -> str:
    """Return the cells flush right below their names; a byte count needs ten columns."""
    narrow = {"run": 5, "time": 9, "born": 9, "kept": 9}
    return "".join(
        f"{cell:>{narrow.get(name, max(len(name), 10) + 2)}}" for cell, name in zip(cells, names, strict=True)
    )


def _level(level: int | None, first: int | None) -> str:
    """Return a level, or its change since the *first*: three digits of 64 MiB would hide a growth of some KiB."""
    if level is None:
        return "unknown"
    if first is None:
        return format_bytes(level)
    return signed_bytes(level - first)


def _labels(label: str) -> Iterator[str]:
    """Yield *label* once and blanks ever after."""
    yield label
    while True:
        yield ""


def _fact(label: str, text: str) -> list[str]:
    return _labelled(f"  {label}", text, LABEL_WIDTH)


def _block(label: str, lines: list[str]) -> Iterator[str]:
    """Yield lines that are already laid out, *label* before the first."""
    for name, line in zip(_labels(label), lines, strict=False):
        yield f"  {name}".ljust(LABEL_WIDTH) + line


def _labelled(label: str, text: str, label_width: int) -> list[str]:
    indent = " " * label_width
    own = text[: len(text) - len(text.lstrip(" "))]  # the layout of code in an advice is kept
    return wrap(text.lstrip(" "), label.ljust(label_width) + own, indent + own)
