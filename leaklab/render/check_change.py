"""Say what became of the leaks of one check in another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from leaklab.model import Check, Leak, Outcome
from leaklab.model.before_after import ChangeRow, Fate
from leaklab.model.sentences import quoted
from leaklab.render.words import count_words
from leaklab.text import format_bytes, shorten

_NAME_LIMIT = 60
_SAME_RATE = 0.05  # relative difference below which two rates are one
_NAMESPACE = "globals()"
_N_TAIL = 3  # holders named one by one
_NONE = "none"


@dataclass(frozen=True, slots=True)
class CheckChange:
    """What became of the leaks of one check in another; the fields are those of the report on it."""

    fixed: bool
    lines: tuple[str, ...]
    rows: tuple[ChangeRow, ...]


def change_of_checks(before: Check, after: Check, *, is_other: bool = False) -> CheckChange:
    """Return what became of the leaks of *before* in *after*, told by fingerprint, rate and holders.

    ``fixed`` is strict: a leak that is gone while another one stays or comes is not enough, and neither is a second
    check without a verdict. A leak whose fingerprint is gone while another of its holders keeps the same is told as
    what it is: one of several holders was fixed. What the first check told in its notes, or as bounded, is not new. If
    the second *is_other*, a check of other code, it has not looked for what it does not show.
    """
    is_proven = after.verdict.outcome is not Outcome.INCONCLUSIVE and not after.failure and not is_other
    old, new = _by_fingerprint(before.leaks), _by_fingerprint(after.leaks)
    bounded = {leak.fingerprint for leak in after.bounded}
    small = _by_fingerprint(after.noted) if after.settings.min_bytes else {}
    moved = _moved({key: old[key] for key in old if key not in new}, {key: new[key] for key in new if key not in old})
    lines, rows = [], []
    for fingerprint, leaks in old.items():
        fate = Fate.FIXED if is_proven else Fate.UNPROVEN
        if fingerprint in new:
            lines.append(_staying_line(leaks, new[fingerprint]))
            rows.append(_row(leaks, new[fingerprint], Fate.STILL))
        elif fingerprint in moved:
            lines.append(_moved_line(leaks, new[moved[fingerprint]]))
            rows.append(_row(leaks, new[moved[fingerprint]], Fate.STILL))
        elif still := _listing(leaks, new.values()):
            rows.append(_row(leaks, still, Fate.STILL))
            lines.append(
                f"{_name(leaks)}: was {_rate(leaks)}, still a holder of {shorten(still[0].what, _NAME_LIMIT)} in "
                f"{shorten(still[0].holder, _NAME_LIMIT)}: not fixed"
            )
        elif not is_proven:
            rows.append(_row(leaks, [], fate))
            why = "another check" if is_other else "the second check, which proves nothing"
            lines.append(f"{_name(leaks)}: was {_rate(leaks)}, not seen in {why}")
        elif fingerprint in small:
            rows.append(_row(leaks, small[fingerprint], Fate.STILL))
            lines.append(f"{_name(leaks)}: was {_rate(leaks)}, now {_rate(small[fingerprint])}: left aside, not fixed")
        elif fingerprint in bounded:
            rows.append(_row(leaks, [], fate))
            lines.append(f"{_name(leaks)}: was {_rate(leaks)}, now bounded: fixed")
        else:
            rows.append(_row(leaks, [], fate))
            lines.append(f"{_name(leaks)}: was {_rate(leaks)}, now 0: fixed")
    fresh = {key: leaks for key, leaks in new.items() if key not in old and key not in moved.values()}
    known = _by_fingerprint((*before.bounded, *before.noted))
    lines += [_fresh_line(known.get(key, []), leaks, before) for key, leaks in fresh.items()]
    rows += [_row(known.get(key, []), leaks, Fate.STILL if key in known else Fate.NEW) for key, leaks in fresh.items()]
    if is_other:
        names = [f'"{shorten(check.settings.name, _NAME_LIMIT)}"' for check in (before, after)]
        lines.append(
            f"these are different checks, {' and '.join(names)}: nothing is called fixed. To compare the same "
            "code before and after a change, give both checks one name"
        )
    elif not is_proven:
        lines.append(f"the second check is no proof: {after.failure or after.verdict.reason}")
    is_gone = after.verdict.outcome is not Outcome.LEAK and old.keys().isdisjoint(small)
    is_fixed = bool(old) and is_proven and is_gone
    return CheckChange(is_fixed, tuple(lines), tuple(rows))


def _moved(gone: dict[str, list[Leak]], fresh: dict[str, list[Leak]]) -> dict[str, str]:
    """Pair leaks that are gone with new ones in which another holder keeps the same; each at most once.

    A holder that the first check knew is proof; else the same objects at the same rate are taken for the same.
    """
    pairs: dict[str, str] = {}
    for is_same in (_is_known_holder, _is_same_stuff):
        for key, leaks in gone.items():
            if key not in pairs:
                candidates = (other for other in fresh if other not in pairs.values() and is_same(leaks, fresh[other]))
                pairs.update((key, other) for other in list(candidates)[:1])
    return pairs


def _is_known_holder(before: list[Leak], after: list[Leak]) -> bool:
    known = set(_holders(before))
    return bool(known) and ({leak.holder for leak in after} <= known or bool(_listing(before, [after])))


def _listing(before: list[Leak], others: Iterable[list[Leak]]) -> list[Leak]:
    """Return those of *others* of which the holder of *before* still holds the same; empty if there are none.

    The namespace holds many things, and so may any object: they have to be of one kind.
    """
    holders = {leak.holder for leak in before if leak.holder} - {_NAMESPACE}
    same = (leaks for leaks in others if leaks[0].what == before[0].what)
    return next((leaks for leaks in same if holders & set(_holders(leaks))), [])


def _is_same_stuff(before: list[Leak], after: list[Leak]) -> bool:
    return before[0].what == after[0].what and _is_same(_amount(before), _amount(after))


def _fresh_line(known: list[Leak], leaks: list[Leak], before: Check) -> str:
    """Return the sentence on a leak that *before* did not call one; *known* is what it said of the same place."""
    if not known:
        return f"{_name(leaks)}: {_rate(leaks)}, new leak"
    was = "bounded" if known[0] in before.bounded else "in the notes"
    return f"{_name(leaks)}: was {was} with {_rate(known)}, now a leak of {_rate(leaks)}: not new"


def _moved_line(before: list[Leak], after: list[Leak]) -> str:
    """Return the sentence on a leak that lost one holder and is kept by another."""
    known = _holders(before)
    rate = f"{shorten(before[0].what, _NAME_LIMIT)}: was {_rate(before)}, now {_rate(after)}"
    holder = shorten(after[0].holder, _NAME_LIMIT)
    left = _holders(after)
    gone = [name for name in known if name not in left]
    if not gone:
        return f"{rate}: still leaks, no holder let go ({_listed(known)}), and {holder} is told first now"
    if after[0].holder in known:
        words = f"{len(gone)} of {len(known)} holders fixed ({_listed(gone)})"
        return f"{rate}: {words}, {holder} still holds it"
    return f"{rate}: {_listed(gone)} lets go, but {holder} holds the same: one of several holders fixed"


def _by_fingerprint(leaks: Iterable[Leak]) -> dict[str, list[Leak]]:
    grouped: dict[str, list[Leak]] = {}
    for leak in leaks:
        grouped.setdefault(leak.fingerprint, []).append(leak)
    return grouped


def _staying_line(before: list[Leak], after: list[Leak]) -> str:
    """Return the sentence on a leak of both checks, with the direction in which its rate went."""
    old, new = _amount(before), _amount(after)
    change = "still leaks" if _is_same(old, new) else "still leaks, but less" if new < old else "leaks even more"
    known, left = _holders(before), _holders(after)
    gone = [name for name in known if name not in left]
    if gone and len(left) < len(known):  # else a variable was renamed
        change += f", {len(gone)} of {len(known)} holders fixed ({_listed(gone)})"
    return f"{_name(before)}: was {_rate(before)}, now {_rate(after)}: {change}"


def _holders(leaks: list[Leak]) -> list[str]:
    """Return the expressions of all known holders, each once."""
    names = (name for leak in leaks for name in (leak.holder, *leak.holders))
    return list(dict.fromkeys(name for name in names if name))


def _listed(names: list[str]) -> str:
    shown = ", ".join(shorten(name, _NAME_LIMIT) for name in names[:_N_TAIL])
    return f"{shown} and {len(names) - _N_TAIL} more" if len(names) > _N_TAIL else shown


def _is_same(old: float, new: float) -> bool:
    return abs(new - old) <= _SAME_RATE * max(old, new)


def _amount(leaks: list[Leak]) -> float:
    """Return bytes per run, or the count where no bytes are known."""
    return sum(leak.bytes_per_run for leak in leaks) or sum(leak.count_per_run for leak in leaks)


def _rate(leaks: list[Leak]) -> str:
    n_bytes = sum(leak.bytes_per_run for leak in leaks)
    if n_bytes:
        return f"{format_bytes(n_bytes)} per run"
    return f"{count_words(sum(leak.count_per_run for leak in leaks), leaks[0].unit)} per run"


def _name(leaks: list[Leak]) -> str:
    return f"{shorten(leaks[0].what, _NAME_LIMIT)} in {shorten(leaks[0].holder, _NAME_LIMIT)}"


def _row(before: list[Leak], after: list[Leak], fate: Fate) -> ChangeRow:
    """Return a leak before and after; empty lists stand for none."""
    named = (before or after)[0]
    place = quoted(named.holder) if named.holder else named.what
    words = " -> ".join(_rate(leaks) if leaks else _NONE for leaks in (before, after))
    return ChangeRow(place, fate, _amount(before), _amount(after), words)
