"""What became of the leaks of one check in another, and of all checks of a notebook: said, and held by the user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from markupsafe import Markup

from leaklab.decide.check_change import (
    CheckDifference,
    How,
    LeakChange,
    Leaks,
    amount_of,
    difference_of_checks,
    holders_of,
    is_same_rate,
)
from leaklab.files import FilePath
from leaklab.model import Check, Outcome
from leaklab.model.check import NotebookChecks
from leaklab.model.comparison import ChangeRow, Fate
from leaklab.model.sentences import growth_sentence, quoted
from leaklab.render.base import Displayed, returned_or_written
from leaklab.render.document import Changes, Document, DocumentBlock, Panel, Points, Remark, Tone, bold, marked
from leaklab.render.json import as_notebook_checks
from leaklab.render.templates import page
from leaklab.render.words import count_words
from leaklab.render.writers import html_of
from leaklab.text import format_bytes, shorten, unit_words

_NAME_LIMIT, _CHECK_NAME_LIMIT, _REASON_LIMIT = 60, 80, 200
_N_TAIL = 3  # holders named one by one
_NONE = "none"
_NO_LEAK = "no leak in either check"


class _OfChecks(Displayed):
    """What became of leaks: a sentence for each, in HTML with bars."""

    __slots__ = ()
    lines: tuple[str, ...]

    def to_html(self, path: FilePath | None = None) -> str | None:
        """Return the comparison as a page of its own; with *path* write it there and return None.

        Raises:
            ReportError: if the file cannot be written.
        """
        return returned_or_written(page(self._title(), Markup(self._fragment())), path)  # noqa: S704 - leaklab's own

    def _title(self) -> str:
        return "Before and after"

    def _text(self) -> str:
        return "\n".join(self.lines) or _NO_LEAK


def _answer(words: str, blocks: Iterable[DocumentBlock], tone: Tone) -> Panel:
    return Panel(bold(words), tone, blocks=tuple(blocks))


def _changes_of(rows: tuple[ChangeRow, ...], lines: Iterable[str] = ()) -> Iterator[DocumentBlock]:
    """Yield bars for what became of leaks, and *lines* below them."""
    if rows:
        yield Changes(rows, is_verdict=True)
    yield Points(tuple(map(marked, lines)))


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(_OfChecks):
    """What became of the leaks of one check in another.

    Attributes:
        fixed: Whether the first check leaked and the second proves that nothing leaks any more.
        lines: One sentence for each leak, and one for what is not proven.
        rows: Each leak before and after, in bytes per run.
        summary: All of them in a few words: ``2 of 3 fixed, 1 left``.
    """

    fixed: bool
    lines: tuple[str, ...]
    rows: tuple[ChangeRow, ...] = ()
    summary: str = ""

    def __repr__(self) -> str:
        word = "fixed" if self.fixed else "not fixed"
        first = shorten(self.lines[0], _NAME_LIMIT) if self.lines else _NO_LEAK
        more = f" (+{len(self.lines) - 1} more)" if len(self.lines) > 1 else ""
        return f"<Comparison {word}: {first}{more}>"

    def _text(self) -> str:
        if len(self.lines) < 2:  # noqa: PLR2004 - a single sentence says all that a summary would
            return "".join(self.lines) or _NO_LEAK
        return "\n".join((self.summary, *(f"  - {line}" for line in self.lines)))

    def _fragment(self) -> str:
        return str(html_of(Document(blocks_of(self)))) if self.lines else ""


def blocks_of(comparison: Comparison) -> tuple[DocumentBlock, ...]:
    """Return what a page says of *comparison*: its summary, each leak before and after, what no row tells."""
    more = comparison.lines[len(comparison.rows) :]
    summary = comparison.summary[:1].upper() + comparison.summary[1:]
    is_bad = not comparison.rows or any(row.fate in (Fate.STILL, Fate.NEW) for row in comparison.rows)
    tone = Tone.GOOD if comparison.fixed else Tone.BAD if is_bad else Tone.DOUBTFUL
    return (_answer(summary, _changes_of(comparison.rows, more), tone),)


def compare_checks(before: Check, after: Check, *, is_other: bool = False) -> Comparison:
    """Return what became of the leaks of *before* in *after*, told by fingerprint, rate and holders.

    If the second *is_other*, a check of other code, it proves nothing.
    """
    difference = difference_of_checks(before, after, is_other=is_other)
    lines = [_line(change, before, is_other=is_other) for change in difference.leaks]
    if is_other:
        names = [f'"{shorten(check.settings.name, _NAME_LIMIT)}"' for check in (before, after)]
        lines.append(
            f"these are different checks, {' and '.join(names)}: no leak is called fixed. To compare the same "
            "code before and after a change, give both checks the same name"
        )
    elif not difference.is_proven:
        lines.append(f"the second check is no proof: {after.failure or after.verdict.reason}")
    elif after.undecided and not any(change.how is How.UNDECIDED for change in difference.leaks):
        lines.append(f"not decided in the second check: {growth_sentence(after.undecided[0])} so far")
    rows = tuple(map(_row, difference.leaks, lines))
    return Comparison(difference.is_fixed, tuple(lines), rows, _summary(difference))


def _summary(difference: CheckDifference) -> str:
    """Return how many leaks of the first check are fixed, how many are left, and how many are new."""
    counts = Counter(change.how.fate for change in difference.leaks if change.how is not How.KNOWN)
    n_new, n_fixed, n_left, n_open = (counts[fate] for fate in (Fate.NEW, Fate.FIXED, Fate.STILL, Fate.UNPROVEN))
    if n_old := n_fixed + n_left + n_open:
        parts = ["fixed" if n_fixed == len(difference.leaks) == 1 else f"{n_fixed:,} of {n_old:,} fixed"]
        parts += [f"{n_left:,} left"] if n_left else []
        parts += [f"{n_open:,} not proven"] if n_open else []
    else:
        parts = ["no leak before"]
    parts += [f"{n_new:,} new"] if n_new else []
    n_known = sum(change.how is How.KNOWN for change in difference.leaks)
    parts += [f"{n_known:,} known before"] if n_known else []
    return ", ".join(parts)


def _line(change: LeakChange, before: Check, *, is_other: bool) -> str:
    old, new = change.before, change.after
    match change.how:
        case How.STAYS:
            return _staying_line(old, new)
        case How.MOVED:
            return _moved_line(old, new)
        case How.HELD_TOO:
            what, holder = shorten(new[0].what, _NAME_LIMIT), shorten(new[0].holder, _NAME_LIMIT)
            return f"{_name(old)}: was {_rate(old)}, still a holder of {what} in {holder}: not fixed"
        case How.UNSEEN:
            why = "another check" if is_other else "the second check, which proves nothing"
            return f"{_name(old)}: was {_rate(old)}, not seen in {why}"
        case How.UNDECIDED | How.ASIDE:
            now = " so far: not decided" if change.how is How.UNDECIDED else ": left aside, not fixed"
            return f"{_name(old)}: was {_rate(old)}, now {_rate(new)}{now}"
        case How.BOUNDED:
            return f"{_name(old)}: was {_rate(old)}, now bounded: fixed"
        case How.GONE:
            return f"{_name(old)}: was {_rate(old)}, now 0: fixed"
        case How.KNOWN:
            was = "bounded" if old[0] in before.bounded else "in the notes"
            return f"{_name(new)}: was {was} with {_rate(old)}, now a leak of {_rate(new)}: not new"
        case How.FRESH:
            return f"{_name(new)}: {_rate(new)}, new leak"


def _moved_line(before: Leaks, after: Leaks) -> str:
    """Return the sentence on a leak that lost one holder and is kept by another."""
    known = holders_of(before)
    rate = f"{shorten(before[0].what, _NAME_LIMIT)}: was {_rate(before)}, now {_rate(after)}"
    holder = shorten(after[0].holder, _NAME_LIMIT)
    left = holders_of(after)
    gone = [name for name in known if name not in left]
    if not gone:
        return f"{rate}: still leaks, no holder let go ({_listed(known)}), and {holder} is now listed first"
    if after[0].holder in known:
        words = f"{len(gone)} of {len(known)} holders fixed ({_listed(gone)})"
        return f"{rate}: {words}, {holder} still holds it"
    return f"{rate}: {_listed(gone)} lets go, but {holder} holds the same: one of several holders fixed"


def _staying_line(before: Leaks, after: Leaks) -> str:
    """Return the sentence on a leak of both checks, with the direction in which its rate went."""
    old, new = amount_of(before), amount_of(after)
    change = "still leaks" if is_same_rate(old, new) else "still leaks, but less" if new < old else "leaks even more"
    known, left = holders_of(before), holders_of(after)
    gone = [name for name in known if name not in left]
    if gone and len(left) < len(known):  # else a variable was renamed
        change += f", {len(gone)} of {len(known)} holders fixed ({_listed(gone)})"
    return f"{_name(before)}: was {_rate(before)}, now {_rate(after)}: {change}"


def _listed(names: list[str]) -> str:
    shown = ", ".join(shorten(name, _NAME_LIMIT) for name in names[:_N_TAIL])
    return f"{shown} and {len(names) - _N_TAIL} more" if len(names) > _N_TAIL else shown


def _rate(leaks: Leaks) -> str:
    n_bytes = sum(leak.bytes_per_run for leak in leaks)
    if n_bytes:
        return f"{format_bytes(n_bytes)} per run"
    return f"{count_words(sum(leak.count_per_run for leak in leaks), leaks[0].unit)} per run"


def _name(leaks: Leaks) -> str:
    return f"{shorten(leaks[0].what, _NAME_LIMIT)} in {shorten(leaks[0].holder, _NAME_LIMIT)}"


_IN_FIGURES = (How.GONE, How.BOUNDED, How.UNSEEN, How.FRESH)


def _row(change: LeakChange, line: str) -> ChangeRow:
    """Return a leak before and after as a row; *line* says it where the figures alone do not."""
    named = (change.before or change.after)[0]
    place = quoted(named.holder) if named.holder else named.what
    words = " -> ".join(_rate(leaks) if leaks else _NONE for leaks in (change.before, change.after))
    if change.how not in _IN_FIGURES and not line.endswith(": still leaks"):
        words = line.partition(": was ")[2] or words
    return ChangeRow(place, change.how.fate, amount_of(change.before), amount_of(change.after), words)


@dataclass(frozen=True, slots=True, repr=False)
class NotebookComparison(_OfChecks):
    """What became of the checks of one report in another.

    Attributes:
        passed: Whether every check of the second report proves that nothing leaks, and none of the first one's leaking
            checks is missing from it.
        pairs: The checks of both reports, by name, with what became of their leaks.
        lines: One sentence for each check, and one for each of its leaks.
    """

    passed: bool
    pairs: tuple[tuple[str, Comparison], ...]
    lines: tuple[str, ...]

    def __repr__(self) -> str:
        compared = unit_words(len(self.pairs), "checks")
        return f"<NotebookComparison {'passed' if self.passed else 'not passed'}: {compared} compared>"

    def _title(self) -> str:
        return f"Before and after: {unit_words(len(self.pairs), 'checks')}"

    def _fragment(self) -> str:
        words = "Passed" if self.passed else "Not passed"
        return str(html_of(Document((_answer(words, self._blocks(), Tone.GOOD if self.passed else Tone.BAD),))))

    def _blocks(self) -> Iterator[DocumentBlock]:
        """Yield the sentences that no bars stand beside, then bars and sentences of each check."""
        compared = {name: comparison for name, comparison in self.pairs if comparison.rows}
        shown = {f"  {line}" for comparison in compared.values() for line in comparison.lines}
        yield from _changes_of((), (line for line in self.lines if line not in shown))
        for name, comparison in compared.items():
            yield Remark((bold(name), f": {comparison.summary}"))
            yield from _changes_of(comparison.rows, comparison.lines[len(comparison.rows) :])


def compare_notebooks(before: Check | NotebookChecks, after: Check | NotebookChecks) -> NotebookComparison:
    """Return what became of the checks of *before* in *after*.

    Checks are the same if they have the same ``--name``; of several with one name the last counts, as it is the one
    after the repair. Checks without a name are paired in their order if both reports have equally many of them; two
    reports of one check each are compared whatever their names, but of different names nothing is called fixed.
    """
    first, second = as_notebook_checks(before), as_notebook_checks(after)
    old, new = _by_name(first), _by_name(second)
    if len(first.checks) == len(second.checks) == 1:
        name = next(iter(new))
        old = {name: next(iter(old.values()))}
    elif _n_nameless(old) != _n_nameless(new):
        # Which is which cannot be told: the second report's are then judged alone.
        old = {f"{name} of the first report" if not check.settings.name else name: check for name, check in old.items()}
    lines, pairs, passed = [], [], bool(new)
    for name, check in new.items():
        if name in old:
            is_other = _are_different(old[name], check)
            pairs.append((name, compare_checks(old[name], check, is_other=is_other)))
            passed = passed and not is_other
        lines += _check_lines(name, check, pairs[-1][1] if name in old else None)
        passed = passed and _is_proven(check)
    for name, check in old.items():
        if name not in new:
            leaked = check.verdict.outcome is Outcome.LEAK
            lines.append(f"{name}: {'leaked, and ' if leaked else ''}is not in the second report")
            passed = passed and not leaked
    if not new:
        lines.append("the second report has no check")
    return NotebookComparison(passed, tuple(pairs), tuple(lines))


def _by_name(collection: NotebookChecks) -> dict[str, Check]:
    found: dict[str, Check] = {}
    for noted in collection.checks:
        name = shorten(noted.check.settings.name, _CHECK_NAME_LIMIT) or f"check {_n_nameless(found) + 1} without a name"
        found.pop(name, None)
        found[name] = noted.check
    return found


def _n_nameless(checks: dict[str, Check]) -> int:
    return sum(not check.settings.name for check in checks.values())


def _are_different(before: Check, after: Check) -> bool:
    """Return whether two checks were given different names: then nobody has said that their code is the same."""
    names = {check.settings.name for check in (before, after)}
    return "" not in names and len(names) > 1


def _is_proven(check: Check) -> bool:
    return check.verdict.outcome in (Outcome.CLEAN, Outcome.BOUNDED) and not check.failure


def _check_lines(name: str, check: Check, comparison: Comparison | None) -> list[str]:
    verdict = check.failure or f"{check.verdict.outcome.value}: {check.verdict.reason}"
    new = "" if comparison else " (not in the first report)"
    lines = [f"{name}{new}: {shorten(verdict, _REASON_LIMIT)}"]
    return lines + [f"  {line}" for line in (comparison.lines if comparison else ())]
