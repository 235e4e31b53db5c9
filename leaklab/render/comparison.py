"""Put two checks side by side: which leaks are gone, which stay, which are new."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from leaklab.model import Check, Leak, Outcome
from leaklab.render.wording import count_words, shorten
from leaklab.words import format_bytes

_NAME_LIMIT = 60
_SAME_RATE = 0.05  # relative difference below which two rates are one


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """What became of the leaks of one check in another.

    Attributes:
        fixed: Whether the first check leaked and the second proves that nothing leaks any more.
        lines: One sentence for each leak, and one for what is not proven.
    """

    fixed: bool
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        word = "fixed" if self.fixed else "not fixed"
        first = shorten(self.lines[0], _NAME_LIMIT) if self.lines else "no leak in either check"
        more = f" (+{len(self.lines) - 1} more)" if len(self.lines) > 1 else ""
        return f"<Comparison {word}: {first}{more}>"


def compare_checks(before: Check, after: Check) -> Comparison:
    """Return what became of the leaks of *before* in *after*, told by fingerprint and rate.

    ``fixed`` is strict: a leak that is gone while another one stays or comes is not enough, and neither is a second
    check without a verdict.
    """
    is_proven = after.verdict.outcome is not Outcome.INCONCLUSIVE and not after.failure
    old, new = _by_fingerprint(before.leaks), _by_fingerprint(after.leaks)
    bounded = {leak.fingerprint for leak in after.bounded}
    lines = []
    for fingerprint, leaks in old.items():
        if fingerprint in new:
            lines.append(_staying_line(leaks, new[fingerprint]))
        elif not is_proven:
            lines.append(f"{_name(leaks)}: was {_rate(leaks)}, not seen in the second check, which proves nothing")
        elif fingerprint in bounded:
            lines.append(f"{_name(leaks)}: was {_rate(leaks)}, now bounded: fixed")
        else:
            lines.append(f"{_name(leaks)}: was {_rate(leaks)}, now 0: fixed")
    lines += [f"{_name(leaks)}: {_rate(leaks)}, new leak" for key, leaks in new.items() if key not in old]
    if not is_proven:
        lines.append(f"the second check is no proof: {after.failure or after.verdict.reason}")
    return Comparison(fixed=bool(old) and is_proven and after.verdict.outcome is not Outcome.LEAK, lines=tuple(lines))


def _by_fingerprint(leaks: Iterable[Leak]) -> dict[str, list[Leak]]:
    grouped: dict[str, list[Leak]] = {}
    for leak in leaks:
        grouped.setdefault(leak.fingerprint, []).append(leak)
    return grouped


def _staying_line(before: list[Leak], after: list[Leak]) -> str:
    """Return the sentence on a leak of both checks, with the direction in which its rate went."""
    old, new = _amount(before), _amount(after)
    if abs(new - old) <= _SAME_RATE * max(old, new):
        change = "still leaks"
    else:
        change = "still leaks, but less" if new < old else "leaks even more"
    return f"{_name(before)}: was {_rate(before)}, now {_rate(after)}: {change}"


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
