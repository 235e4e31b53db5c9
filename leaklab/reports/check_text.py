"""What a check says as plain text: what the user of a terminal sees, the answer in its first lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leaklab.model import Check, Leak, Outcome, Run, StatementGrowth
from leaklab.model.sentences import growth_sentence, growth_words, place_words
from leaklab.render.advice import LeakRow, LineGroup, advice_of, headline, line_groups, shown_in_full
from leaklab.render.document import (
    Chapter,
    Document,
    DocumentBlock,
    Fact,
    FactTable,
    Gap,
    Headline,
    Lines,
    PathSteps,
    Points,
    Remark,
    environment_of,
    marked,
)
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
    share_words,
    statement_rows,
    undecided_words,
)
from leaklab.render.writers import text_of
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


def render_text(check: Check) -> str:
    """Return the whole report as lines of `columns` at most: verdict, place, rate, line and change, then the evidence.

    A check that found nothing is told in a few lines; the table of runs is shown only of a check that ended early, of
    which there is nothing else to see.
    """
    check = clipped(check, SHOWN_LIMIT)
    has_leaks, has_runs = is_leak(check) and check.leaks, check.runs and check.failure
    return text_of(
        Document(
            (
                *_verdict(check),
                *(_leaks(check) if has_leaks else ()),
                Chapter(STATEMENTS_TITLE, tuple(_statements(check.statements))),
                Chapter("Not counted as leaks, because they stop growing:", (bounded_points(bounded_places(check)),)),
                Chapter("Notes", (Points(check.notes),)),
                Chapter("Runs", (Lines(tuple(_run_lines(check.runs))),) if has_runs else ()),
                *environment_of(check.environment),
            )
        )
    )


def card_text(check: Check) -> str:
    """Return the answer alone, without the evidence: verdict, place and rate, line, change, proof."""
    return text_of(Document(tuple(_verdict(clipped(check, SHOWN_LIMIT)))))


def _verdict(check: Check) -> Iterator[DocumentBlock]:
    """Yield the verdict with its sentence and what was run, and the answer where there is one leak."""
    word = check.verdict.outcome.value.upper()
    indent = len(word) + 2
    yield Headline(shorten(headline(check), _TITLE_LIMIT), badge=word)
    measured = "; ".join(filter(None, (effort_words(check), projection_words(check))))
    below = (failure_words(check), measured, undecided_words(check, columns() - indent))
    yield from (Remark(words, indent=indent, hang=0) for words in below if words)
    if is_leak(check) and len(check.leaks) == 1:
        yield FactTable(tuple(_answer(check.leaks[0])), LABEL_WIDTH)


def _answer(leak: Leak) -> Iterator[Fact]:
    """Yield what a person acts on: the line, the change, its proof."""
    advice = advice_of(leak)
    diff = tuple(f"  {'' if sign == '@' else sign + ' '}{text}" for sign, text, _ in advice.diff)
    if advice.line:
        yield Fact("line", (advice.line,))
    if advice.words:
        yield Fact("change", (advice.words, *diff))
        yield Fact("proof", (advice.proof,))
    yield Fact("change", tuple(advice.text.splitlines()))


def _leaks(check: Check) -> Iterator[DocumentBlock]:
    """Yield a single leak's evidence; several leaks in full; of many their table, then those that are worth telling."""
    leaks, explained = check.leaks, Fact("explained", tuple(map(share_words, check.shares)))
    if len(leaks) == 1:
        yield Chapter("Evidence", (*_evidence(leaks[0]), FactTable((explained,), LABEL_WIDTH)))
        return
    if len(leaks) > _N_SHOWN_IN_FULL:
        yield from (Gap(), Lines(tuple(_table(line_groups(leaks)))))
    for position in shown_in_full(leaks, _N_SHOWN_IN_FULL):
        leak = leaks[position]
        title = f"Leak {position + 1} of {len(leaks)}: {shorten(growth_sentence(leak), _TITLE_LIMIT)}"
        yield Chapter(title, (FactTable(tuple(_answer(leak)), LABEL_WIDTH), *_evidence(leak)))
    yield Chapter("", (FactTable((explained,), LABEL_WIDTH),))


def _evidence(leak: Leak) -> tuple[DocumentBlock, ...]:
    """Return what the answer rests on: the path first, then the figures."""
    facts = leak_facts(leak, columns() - LABEL_WIDTH)
    lists = ("other lines", "all paths")
    rows = (Fact(label, words if label in lists else (", ".join(words),)) for label, words, _ in facts)
    return (PathSteps(leak.path, label="path", width=LABEL_WIDTH), FactTable(tuple(rows), LABEL_WIDTH))


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


def _statements(statements: Sequence[StatementGrowth]) -> Iterator[DocumentBlock]:
    """Yield the cell's statements, each with what it left behind beside its source."""
    if statements:
        yield Remark(STATEMENTS_NOTE, indent=2, hang=0)
        yield Lines(tuple(_statement_lines(statements)))


def _statement_lines(statements: Sequence[StatementGrowth]) -> Iterator[str]:
    widths = (9, 9, 9, 12)
    yield "".join(f"{name:>{width}}" for name, width in zip(STATEMENT_COLUMNS, widths, strict=False)) + "  statement"
    for row in statement_rows(statements[:_N_STATEMENTS]):
        start = "".join(f"{cell:>{width}}" for cell, width in zip(row.cells, widths, strict=True)) + "  "
        yield shorten(start + row.source, columns())
        if row.keeps:
            yield from wrap(row.keeps, " " * len(start), " " * (len(start) + 2))
    if (hidden := len(statements) - _N_STATEMENTS) > 0:
        yield f"  ... {unit_words(hidden, 'more statements')}"


def bounded_places(check: Check) -> tuple[Leak, ...]:
    """Return the places that grew and stopped, but for a single one of which the verdict tells the same."""
    is_told = check.verdict.outcome is Outcome.BOUNDED and len(check.bounded) == 1
    return () if is_told else check.bounded


def bounded_points(places: Sequence[Leak]) -> Points:
    """Return why places that grew and stopped are no leaks."""
    grew = (f" ({growth_words(place)} every run while it grew)" if place.count_per_run >= 1 else "" for place in places)
    reasons = (f"{place_words(place)}: {place.reason}" for place in places)
    return Points(tuple(marked(reason + more) for reason, more in zip(reasons, grew, strict=True)))


def _run_lines(runs: tuple[Run, ...]) -> Iterator[str]:
    """Yield the runs as a table; of many runs the first and the last. Levels are told as changes since run 1."""
    has_accelerator = any(run.accelerator_bytes is not None for run in runs)
    names = ["run", "time", "born", "kept", "tensors kept", "tensor bytes", "native heap", "accelerator", "process"]
    if not has_accelerator:
        names.remove("accelerator")
    left_out = () if columns() >= _NARROW else ("born", "tensors kept")
    yield _row(names, names, left_out)
    n_hidden = len(runs) - 2 * _N_RUN_ROWS
    for position, run in enumerate(runs):
        if n_hidden > 1 and _N_RUN_ROWS <= position < len(runs) - _N_RUN_ROWS:
            if position == _N_RUN_ROWS:
                yield f"  ... {unit_words(n_hidden, 'more runs')}"
            continue
        cells = [str(run.number), format_seconds(run.seconds), f"{run.n_born:,}", f"{run.n_kept:,}"]
        cells += [f"{run.n_tensors_kept:,}", format_bytes(run.tensor_bytes_kept)]
        first = runs[0] if position else None
        cells.append(_level(run.heap_bytes, None if first is None else first.heap_bytes))
        if has_accelerator:
            cells.append(_level(run.accelerator_bytes, None if first is None else first.accelerator_bytes))
        cells.append(_level(run.rss_bytes, None if first is None else first.rss_bytes))
        yield _row(cells, names, left_out)


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
