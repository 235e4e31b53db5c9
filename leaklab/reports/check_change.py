"""Say what became of the leaks of one check in another."""

from __future__ import annotations

from dataclasses import dataclass

from leaklab.decide.check_change import (
    How,
    LeakChange,
    Leaks,
    amount_of,
    difference_of_checks,
    holders_of,
    is_same_rate,
)
from leaklab.model import Check
from leaklab.model.comparison import ChangeRow
from leaklab.model.sentences import quoted
from leaklab.render.words import count_words
from leaklab.text import format_bytes, shorten

_NAME_LIMIT = 60
_N_TAIL = 3  # holders named one by one
_NONE = "none"


@dataclass(frozen=True, slots=True)
class CheckChange:
    """What became of the leaks of one check in another; the fields are those of the report on it."""

    fixed: bool
    lines: tuple[str, ...]
    rows: tuple[ChangeRow, ...]


def change_of_checks(before: Check, after: Check, *, is_other: bool = False) -> CheckChange:
    """Return what became of the leaks of *before* in *after*, in words; *is_other* is a check of other code."""
    difference = difference_of_checks(before, after, is_other=is_other)
    lines = [_line(change, before, is_other=is_other) for change in difference.leaks]
    if is_other:
        names = [f'"{shorten(check.settings.name, _NAME_LIMIT)}"' for check in (before, after)]
        lines.append(
            f"these are different checks, {' and '.join(names)}: nothing is called fixed. To compare the same "
            "code before and after a change, give both checks one name"
        )
    elif not difference.is_proven:
        lines.append(f"the second check is no proof: {after.failure or after.verdict.reason}")
    return CheckChange(difference.is_fixed, tuple(lines), tuple(map(_row, difference.leaks)))


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
        case How.ASIDE:
            return f"{_name(old)}: was {_rate(old)}, now {_rate(new)}: left aside, not fixed"
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


def _row(change: LeakChange) -> ChangeRow:
    """Return a leak before and after as a row."""
    named = (change.before or change.after)[0]
    place = quoted(named.holder) if named.holder else named.what
    words = " -> ".join(_rate(leaks) if leaks else _NONE for leaks in (change.before, change.after))
    return ChangeRow(place, change.how.fate, amount_of(change.before), amount_of(change.after), words)
