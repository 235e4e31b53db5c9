"""Write a check as plain text: what the user of a terminal sees, the answer in its first lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leaklab.model import Check, Leak, Run
from leaklab.model.sentences import growth_sentence, growth_words, place_words
from leaklab.render.advice import LeakRow, LineGroup, advice_of, headline, line_groups, shown_in_full
from leaklab.render.words import (
    LABEL_WIDTH,
    STATEMENT_COLUMNS,
    STATEMENTS_NOTE,
    STATEMENTS_TITLE,
    effort_words,
    failure_words,
    is_leak,
    leak_facts,
    projection_words,
    render_path,
    share_words,
    statement_rows,
    undecided_words,
)
from leaklab.text import (
    SHOWN_LIMIT,
    clipped,
    columns,
    format_bytes,
    format_seconds,
    shorten,
    signed_bytes,
    unit_words,
    wrap,
)

_N_SHOWN_IN_FULL = 5
_N_TABLE_ROWS = 30
_N_STATEMENTS = 100
_N_RUN_ROWS = 4  # at either end of the table of runs
_TITLE_LIMIT = 400
_NARROW = 100  # columns: in fewer the table of runs has no place for all of its columns
_MEASURED = "measured"


def render_text(check: Check) -> str:
    """Return the whole report as lines of `columns` at most: verdict, place, rate, line and change, then the evidence.

    A check that found nothing is told in a few lines; the table of runs is shown only where something is to be seen.
    """
    check = clipped(check, SHOWN_LIMIT)
    blocks = [list(_verdict(check))]
    if is_leak(check) and check.leaks:
        blocks += _leak_blocks(check)
    blocks += [list(_statements_block(check)), list(_bounded_block(check.bounded)), list(_notes_block(check.notes))]
    if check.runs and (is_leak(check) or check.failure):
        blocks.append(list(_runs_block(check.runs)))
    blocks.append(list(_environment_block(check)))
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _verdict(check: Check) -> Iterator[str]:
    """Yield the verdict with its sentence, and the answer where there is one leak."""
    word = check.verdict.outcome.value.upper()
    yield from _labelled(word, shorten(headline(check), _TITLE_LIMIT), len(word) + 2)
    indent = " " * (len(word) + 2)
    if failure := failure_words(check):
        yield from wrap(failure, indent, indent)
    if is_leak(check) and len(check.leaks) == 1:
        yield from _answer(check.leaks[0])
    if is_leak(check):
        yield from _fact(_MEASURED, _measured_words(check))
        for label, share in zip(_labels("explained"), check.shares, strict=False):
            yield from _fact(label, share_words(share))
    else:
        yield from wrap(_measured_words(check), indent, indent)
        if undecided := undecided_words(check, columns() - len(indent)):
            yield from wrap(undecided, indent, indent)


def _measured_words(check: Check) -> str:
    return "; ".join(filter(None, (effort_words(check).replace("measured ", "", 1), projection_words(check))))


def _answer(leak: Leak) -> Iterator[str]:
    """Yield what a person acts on: the line, the change, its proof."""
    advice = advice_of(leak)
    if advice.line:
        yield from _fact("line", advice.line)
    if advice.words:
        yield from _fact("change", advice.words)
    for sign, text, _ in advice.diff:
        yield from _fact("", f"  {'' if sign == '@' else sign + ' '}{text}")
    if advice.proof:
        yield from _fact("tried", advice.proof)
    for name, line in zip(_labels("advice"), advice.text.splitlines(), strict=False):
        yield from _fact(name, line)


def _leak_blocks(check: Check) -> list[list[str]]:
    """Return a block for a single leak's evidence; of many their table, then those that are worth telling in full."""
    leaks = check.leaks
    if len(leaks) == 1:
        return [["Evidence", *_evidence(leaks[0])]]
    blocks = [list(_table(line_groups(leaks)))]
    for position in shown_in_full(leaks, _N_SHOWN_IN_FULL):
        leak = leaks[position]
        title = wrap(f"Leak {position + 1} of {len(leaks)}: {shorten(growth_sentence(leak), _TITLE_LIMIT)}", "", "  ")
        blocks.append([*title, *_answer(leak), *_evidence(leak)])
    return blocks


def _evidence(leak: Leak) -> Iterator[str]:
    """Yield what the answer rests on: the path first, then the figures."""
    yield from _block("path", render_path(leak.path).splitlines())
    for label, words, _ in leak_facts(leak, columns() - LABEL_WIDTH):
        is_list = label in ("other lines", "all paths")
        for name, line in zip(_labels(label), words if is_list else [", ".join(words)], strict=False):
            yield from _fact(name, line)


def _table(groups: Sequence[LineGroup]) -> Iterator[str]:
    """Yield the leaks, a line each, under the lines of code that do it."""
    n_left = _N_TABLE_ROWS
    is_alone = len(groups) == 1 and not groups[0].place_lines
    shown = [group.rows[: n_left if is_alone else group.n_shown] for group in groups]
    rows = [row for some in shown for row in some][:n_left]
    place = min(max(len(shorten(row.place, _TITLE_LIMIT)) for row in rows), columns() // 3)
    rate = min(max(len(row.rate) for row in rows), columns() // 3)
    for group, some in zip(groups, shown, strict=True):
        if n_left <= 0:
            break
        total = f" ({group.total})" if group.total else ""
        yield from wrap(f"{group.line or 'by an unknown line'}{total}", "  ", "    ")
        for tree_line in group.place_lines:
            yield from wrap(tree_line.indented.lstrip(), "      " + "  " * tree_line.depth, "        ")
        for row in some[:n_left]:
            yield from _table_row(row, place, rate)
        n_left -= len(some)
        if hidden := len(group.rows) - len(some):
            yield f"        ... {hidden:,} more of this line"
    n_told = sum(map(len, shown[: len(groups)]))
    if n_told > _N_TABLE_ROWS:
        yield "        ... and more lines"


def _table_row(row: LeakRow, place: int, rate: int) -> Iterator[str]:
    """Yield number, place, rate and change; what does not fit goes on below."""
    start = f"  {row.number:>4}  {shorten(row.place, place):<{place}}  {shorten(row.rate, rate):<{rate}}  "
    indent = " " * len(start)
    yield from wrap(("tried: " if row.is_tried else "") + row.change, start, indent)


def _statements_block(check: Check) -> Iterator[str]:
    """Yield the cell's statements, each with what it left behind beside its source."""
    if not check.statements:
        return
    yield STATEMENTS_TITLE
    yield from wrap(STATEMENTS_NOTE, "  ", "  ")
    widths = (9, 9, 9, 12)
    yield "".join(f"{name:>{width}}" for name, width in zip(STATEMENT_COLUMNS, widths, strict=False)) + "  statement"
    for row in statement_rows(check.statements[:_N_STATEMENTS]):
        start = "".join(f"{cell:>{width}}" for cell, width in zip(row.cells, widths, strict=True)) + "  "
        yield shorten(start + row.source, columns())
        if row.keeps:
            yield from wrap(row.keeps, " " * len(start), " " * (len(start) + 2))
    if (hidden := len(check.statements) - _N_STATEMENTS) > 0:
        yield f"  ... {unit_words(hidden, 'more statements')}"


def _bounded_block(places: tuple[Leak, ...]) -> Iterator[str]:
    """Yield the places that grew and stopped: no leaks, and said so."""
    if places:
        yield "Not counted as leaks, because they stop growing:"
    for place in places:
        grew = "" if not place.count_per_run else f" ({growth_words(place)} every run while it grew)"
        yield from wrap(f"{place_words(place)}: {place.reason}{grew}", "  - ", "    ")


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
    left_out = () if columns() >= _NARROW else ("born", "tensors kept")
    yield "Runs"
    yield _row(names, names, left_out)
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
        yield _row(cells, names, left_out)


def _environment_block(check: Check) -> Iterator[str]:
    if check.environment:
        yield from wrap(", ".join(f"{name} {version}" for name, version in check.environment), "", "")


def _row(cells: list[str], names: list[str], left_out: Sequence[str]) -> str:
    """Return the cells flush right below their names; a byte count needs ten columns."""
    narrow = {"run": 5, "time": 9, "born": 9, "kept": 9}
    return "".join(
        f"{cell:>{narrow.get(name, max(len(name), 10) + 2)}}"
        for cell, name in zip(cells, names, strict=True)
        if name not in left_out
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
