"""Decide what became of the leaks of one check in another, by fingerprint, rate and holders."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leaklab.model import MIN_RUNS, Check, Leak, Outcome
from leaklab.model.comparison import Fate

SAME_RATE = 0.05
"""Rates that differ by a smaller share of the larger one are the same."""
_NAMESPACE = "globals()"

Leaks = Sequence[Leak]
"""Those of one check that have one fingerprint."""


class How(enum.Enum):
    """How a leak comes to its fate."""

    STAYS = "the second check has it too"
    MOVED = "another holder keeps the same"
    HELD_TOO = "its holder still keeps the same, as another leak of the second check shows"
    UNSEEN = "the second check does not show it, and proves nothing"
    UNDECIDED = "in the second check it is not decided whether its place leaks"
    ASIDE = "the second check leaves it aside, as smaller than asked for"
    BOUNDED = "it has stopped growing"
    GONE = "the second check is proof that it is gone"
    KNOWN = "the first check said of it that it is bounded, or left it aside"
    FRESH = "the first check knew nothing of it"

    @property
    def fate(self) -> Fate:
        """What became of it in a word."""
        return _FATES.get(self, Fate.STILL)


_FATES = {
    How.UNSEEN: Fate.UNPROVEN, How.UNDECIDED: Fate.UNPROVEN, How.BOUNDED: Fate.FIXED,
    How.GONE: Fate.FIXED, How.FRESH: Fate.NEW,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LeakChange:
    """One leak before and after; empty where a check does not have it."""

    how: How
    before: Leaks
    after: Leaks


@dataclass(frozen=True, slots=True)
class CheckDifference:
    """What became of all leaks.

    Attributes:
        is_fixed: Whether all leaks of the first check are gone, the second one is proof of that, and finds no other.
        is_proven: Whether what the second check does not show is gone.
        leaks: Those of the first check, then the new ones.
    """

    is_fixed: bool
    is_proven: bool
    leaks: tuple[LeakChange, ...]


def difference_of_checks(before: Check, after: Check, *, is_other: bool = False) -> CheckDifference:
    """Decide what became of the leaks of *before* in *after*.

    A leak that is gone while another one stays or comes is not enough to be fixed, and neither is a second check
    without a verdict; where that is so because of a place that is not decided, the leaks of other places are gone all
    the same. A leak whose fingerprint is gone while another of its holders keeps the same has lost one of
    several holders. What the first check left in its notes, or called bounded, is not new. If the second *is_other*, a
    check of other code, it has not looked for what it does not show.
    """
    is_open = after.verdict.outcome is Outcome.INCONCLUSIVE and not after.undecided
    is_proven = not (is_open or after.failure or is_other) and after.verdict.n_runs >= MIN_RUNS
    undecided = _by_fingerprint(after.undecided)
    old, new = _by_fingerprint(before.leaks), _by_fingerprint(after.leaks)
    bounded = {leak.fingerprint for leak in after.bounded}
    small = _by_fingerprint(after.noted) if after.settings.min_bytes else {}
    moved = _moved({key: old[key] for key in old if key not in new}, {key: new[key] for key in new if key not in old})
    changes = []
    for key, leaks in old.items():
        if key in new:
            change = LeakChange(How.STAYS, leaks, new[key])
        elif key in moved:
            change = LeakChange(How.MOVED, leaks, new[moved[key]])
        elif still := _holding_the_same(leaks, new.values()):
            change = LeakChange(How.HELD_TOO, leaks, still)
        elif not is_proven:
            change = LeakChange(How.UNSEEN, leaks, ())
        elif unclear := undecided.get(key) or _holding_the_same(leaks, undecided.values()):
            change = LeakChange(How.UNDECIDED, leaks, unclear)
        elif key in small:
            change = LeakChange(How.ASIDE, leaks, small[key])
        else:
            change = LeakChange(How.BOUNDED if key in bounded else How.GONE, leaks, ())
        changes.append(change)
    known = _by_fingerprint((*before.bounded, *before.noted))
    for key, leaks in new.items():
        if key not in old and key not in moved.values():
            changes.append(LeakChange(How.KNOWN if key in known else How.FRESH, known.get(key, ()), leaks))
    is_gone = after.verdict.outcome not in (Outcome.LEAK, Outcome.INCONCLUSIVE) and old.keys().isdisjoint(small)
    return CheckDifference(bool(old) and is_proven and is_gone, is_proven, tuple(changes))


def holders_of(leaks: Leaks) -> list[str]:
    """Return the expressions of all known holders, each once."""
    names = (name for leak in leaks for name in (leak.holder, *leak.holders))
    return list(dict.fromkeys(name for name in names if name))


def is_same_rate(old: float, new: float) -> bool:
    """Return whether two rates are one."""
    return abs(new - old) <= SAME_RATE * max(old, new)


def amount_of(leaks: Leaks) -> float:
    """Return bytes per run, or the count where no bytes are known."""
    return sum(leak.bytes_per_run for leak in leaks) or sum(leak.count_per_run for leak in leaks)


def _by_fingerprint(leaks: Iterable[Leak]) -> dict[str, list[Leak]]:
    grouped: dict[str, list[Leak]] = {}
    for leak in leaks:
        grouped.setdefault(leak.fingerprint, []).append(leak)
    return grouped


def _moved(gone: dict[str, list[Leak]], fresh: dict[str, list[Leak]]) -> dict[str, str]:
    """Pair leaks that are gone with new ones in which another holder keeps the same; each at most once.

    A holder that the first check knew is proof; else the same objects at the same rate are taken for the same.
    """
    pairs: dict[str, str] = {}
    for is_same in (_is_known_holder, _is_same_stuff):
        for key, leaks in gone.items():
            if key not in pairs:
                free = (other for other in fresh if other not in pairs.values() and is_same(leaks, fresh[other]))
                pairs.update((key, other) for other in list(free)[:1])
    return pairs


def _is_known_holder(before: Leaks, after: Leaks) -> bool:
    known = set(holders_of(before))
    return bool(known) and ({leak.holder for leak in after} <= known or bool(_holding_the_same(before, [after])))


def _holding_the_same(before: Leaks, others: Iterable[Leaks]) -> Leaks:
    """Return those of *others* of which the holder of *before* still holds the same; empty if there are none.

    The namespace holds many things, and so may any object: they have to be of one kind.
    """
    holders = {leak.holder for leak in before if leak.holder} - {_NAMESPACE}
    same = (leaks for leaks in others if leaks[0].what == before[0].what)
    return next((leaks for leaks in same if holders & set(holders_of(leaks))), [])


def _is_same_stuff(before: Leaks, after: Leaks) -> bool:
    return before[0].what == after[0].what and is_same_rate(amount_of(before), amount_of(after))
