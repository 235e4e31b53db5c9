"""Put the checks of two reports side by side: which were repaired, which leak, which are missing."""

from __future__ import annotations

from dataclasses import dataclass

from leaklab.model import Check, Outcome
from leaklab.model.collection import Collection
from leaklab.render.comparison import Comparison, compare_checks
from leaklab.render.display import Displayed
from leaklab.render.parts import ACCENT, GOOD, bullets, escaped, panel
from leaklab.render.wording import shorten
from leaklab.words import unit_words

_NAME_LIMIT = 80
_REASON_LIMIT = 200


@dataclass(frozen=True, slots=True, repr=False)
class CollectionComparison(Displayed):
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

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        compared = unit_words(len(self.pairs), "checks")
        return f"<CollectionComparison {'passed' if self.passed else 'not passed'}: {compared} compared>"

    def _fragment(self) -> str:
        title = f"<b>{'Passed' if self.passed else 'Not passed'}</b>"
        return panel(title + bullets([escaped(line) for line in self.lines]), GOOD if self.passed else ACCENT)


def compare_collections(before: Collection, after: Collection) -> CollectionComparison:
    """Return what became of the checks of *before* in *after*.

    Checks are the same if they have the same ``--name``; of several with one name the last counts, as it is the one
    after the repair. Checks without a name are paired in their order if both reports have equally many of them; two
    reports of one check each are compared whatever their names.
    """
    old, new = _by_name(before), _by_name(after)
    if len(before.checks) == len(after.checks) == 1:
        name = next(iter(new))
        old = {name: next(iter(old.values()))}
    elif _n_nameless(old) != _n_nameless(new):
        # Which is which cannot be told: the second report's are then judged alone.
        old = {f"{name} of the first report" if not check.settings.name else name: check for name, check in old.items()}
    lines, pairs, passed = [], [], bool(new)
    for name, check in new.items():
        if name in old:
            pairs.append((name, compare_checks(old[name], check)))
        lines += _lines(name, check, pairs[-1][1] if name in old else None)
        passed = passed and _is_proven(check)
    for name, check in old.items():
        if name not in new:
            leaked = check.verdict.outcome is Outcome.LEAK
            lines.append(f"{name}: {'leaked, and ' if leaked else ''}is not in the second report")
            passed = passed and not leaked
    if not new:
        lines.append("the second report has no check")
    return CollectionComparison(passed, tuple(pairs), tuple(lines))


def _by_name(collection: Collection) -> dict[str, Check]:
    found: dict[str, Check] = {}
    for noted in collection.checks:
        name = shorten(noted.check.settings.name, _NAME_LIMIT) or f"check {_n_nameless(found) + 1} without a name"
        found.pop(name, None)
        found[name] = noted.check
    return found


def _n_nameless(checks: dict[str, Check]) -> int:
    return sum(not check.settings.name for check in checks.values())


def _is_proven(check: Check) -> bool:
    return check.verdict.outcome in (Outcome.CLEAN, Outcome.BOUNDED) and not check.failure


def _lines(name: str, check: Check, comparison: Comparison | None) -> list[str]:
    verdict = check.failure or f"{check.verdict.outcome.value}: {check.verdict.reason}"
    new = "" if comparison else " (not in the first report)"
    lines = [f"{name}{new}: {shorten(verdict, _REASON_LIMIT)}"]
    return lines + [f"  {line}" for line in (comparison.lines if comparison else ())]
