"""What the user holds after a check: the report, and its comparison with another one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from leaklab.model import SCHEMA_VERSION, Check, Leak, Outcome, Verdict
from leaklab.render import tables
from leaklab.render.advice import patch_text
from leaklab.render.base import Displayed, Forms, Report, Table
from leaklab.render.check_html import render_html, render_page
from leaklab.render.check_text import render_text
from leaklab.render.dot import LEAKLAB, PathGraph
from leaklab.render.json import FORMAT, check_fields
from leaklab.render.notebook_export import render_markdown
from leaklab.render.plots import plot_growth
from leaklab.render.tables import leaks_csv
from leaklab.render.templates import render
from leaklab.render.words import count_words
from leaklab.text import format_bytes, shorten, unit_words

if TYPE_CHECKING:
    import leaklab
    from leaklab.render.figure import ReportFigure
    from leaklab.reports.ranks import RanksReport


_NAME_LIMIT = 60
_SAME_RATE = 0.05  # relative difference below which two rates are one
_NAMESPACE = "globals()"
_NO_LEAK = "no leak in either check"
_N_TAIL = 3  # holders named one by one


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Displayed):
    """What became of the leaks of one check in another.

    Attributes:
        fixed: Whether the first check leaked and the second proves that nothing leaks any more.
        lines: One sentence for each leak, and one for what is not proven.
    """

    fixed: bool
    lines: tuple[str, ...]

    def _text(self) -> str:
        return "\n".join(self.lines) or _NO_LEAK

    def __repr__(self) -> str:
        word = "fixed" if self.fixed else "not fixed"
        first = shorten(self.lines[0], _NAME_LIMIT) if self.lines else _NO_LEAK
        more = f" (+{len(self.lines) - 1} more)" if len(self.lines) > 1 else ""
        return f"<Comparison {word}: {first}{more}>"

    def _fragment(self) -> str:
        if not self.lines:
            return ""
        title = "Fixed" if self.fixed else "Not fixed"
        return str(render("comparison.html.j2", title=title, is_good=self.fixed, lines=self.lines))


def compare_checks(before: Check, after: Check) -> Comparison:
    """Return what became of the leaks of *before* in *after*, told by fingerprint, rate and holders.

    ``fixed`` is strict: a leak that is gone while another one stays or comes is not enough, and neither is a second
    check without a verdict. A leak whose fingerprint is gone while another of its holders keeps the same is told as
    what it is: one of several holders was fixed.
    """
    is_proven = after.verdict.outcome is not Outcome.INCONCLUSIVE and not after.failure
    old, new = _by_fingerprint(before.leaks), _by_fingerprint(after.leaks)
    bounded = {leak.fingerprint for leak in after.bounded}
    moved = _moved({key: old[key] for key in old if key not in new}, {key: new[key] for key in new if key not in old})
    lines = []
    for fingerprint, leaks in old.items():
        if fingerprint in new:
            lines.append(_staying_line(leaks, new[fingerprint]))
        elif fingerprint in moved:
            lines.append(_moved_line(leaks, new[moved[fingerprint]]))
        elif still := _listing(leaks, new.values()):
            lines.append(
                f"{_name(leaks)}: was {_rate(leaks)}, still a holder of {shorten(still[0].what, _NAME_LIMIT)} in "
                f"{shorten(still[0].holder, _NAME_LIMIT)}: not fixed"
            )
        elif not is_proven:
            lines.append(f"{_name(leaks)}: was {_rate(leaks)}, not seen in the second check, which proves nothing")
        elif fingerprint in bounded:
            lines.append(f"{_name(leaks)}: was {_rate(leaks)}, now bounded: fixed")
        else:
            lines.append(f"{_name(leaks)}: was {_rate(leaks)}, now 0: fixed")
    fresh = [leaks for key, leaks in new.items() if key not in old and key not in moved.values()]
    lines += [f"{_name(leaks)}: {_rate(leaks)}, new leak" for leaks in fresh]
    if not is_proven:
        lines.append(f"the second check is no proof: {after.failure or after.verdict.reason}")
    return Comparison(fixed=bool(old) and is_proven and after.verdict.outcome is not Outcome.LEAK, lines=tuple(lines))


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


_REASON_LIMIT = 72
_FORMS = Forms(
    kind=Check,
    format=FORMAT,
    schema=SCHEMA_VERSION,
    fields=check_fields,
    text=render_text,
    html=render_html,
    page=partial(render_page, has_record=True),
    more={".csv": leaks_csv, ".md": render_markdown},
)
SUFFIXES: Final = _FORMS.suffixes
"""Of the files that a report can be saved to."""


@dataclass(frozen=True, slots=True, repr=False)
class LeakReport(Report[Check]):
    """The result of a check.

    It holds records and nothing else, so it can be pickled and keeps nothing of the user's alive; tables, plots and
    graphs are made anew each time they are asked for.

    Attributes:
        record: The record, with every figure.
    """

    _forms: ClassVar = _FORMS
    record: Check
    _ranks: Any = field(default=None, compare=False)

    objects = Table(tables.object_table)
    """What the runs left behind, by type."""
    tensors = Table(tables.tensor_table)
    """The tensors that the runs left behind, by shape, dtype and device."""
    containers = Table(tables.container_table)
    """The containers, buffers and graphs that grew in place."""
    runs = Table(tables.run_table)
    """The measured runs."""

    @property
    def check(self) -> Check:
        """The record, by its older name."""
        return self.record

    @property
    def ranks(self) -> RanksReport | None:
        """The report on all ranks, on the first of those that checked together; else None. It is saved apart."""
        ranks: RanksReport | None = self._ranks
        return ranks

    @property
    def leaked(self) -> bool:
        """Whether the verdict is a leak; ``bounded`` and ``inconclusive`` are none."""
        return self.record.verdict.outcome is Outcome.LEAK

    @property
    def verdict(self) -> Verdict:
        """The outcome, its reason, its figures; ``str()`` begins with the outcome."""
        return self.record.verdict

    @property
    def leaks(self) -> tuple[Leak, ...]:
        """The leaks, largest first."""
        return self.record.leaks

    @property
    def bounded(self) -> tuple[Leak, ...]:
        """The places that grew and stopped, or whose limit is known."""
        return self.record.bounded

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats, and what could not be measured."""
        return self.record.notes

    def plot(self) -> ReportFigure:
        """Return a figure of what each run left behind and of the memory after each run."""
        return plot_growth(self.record)

    def graph(self, i: int = 0, style: str = LEAKLAB) -> PathGraph:
        """Return the path to leak number *i*, the largest first, as a graph.

        Args:
            i: Number of the leak, from 0.
            style: ``leaklab``, or ``objgraph`` for the picture that objgraph draws of the same objects.

        Raises:
            IndexError: if there is no such leak.
            ValueError: for any other style.
        """
        self._require(i)
        return PathGraph(self.leaks[i], style)

    def patch(self, i: int = 0) -> str:
        """Return the change that cured leak number *i* when it was tried, as a unified diff without context.

        Args:
            i: Number of the leak, from 0.

        Returns:
            The diff, for ``patch`` or ``git apply --unidiff-zero``; empty if no change was tried that cures the leak.

        Raises:
            IndexError: if there is no such leak.
        """
        self._require(i)
        return patch_text(self.leaks[i])

    def _require(self, i: int) -> None:
        n_leaks = len(self.leaks)
        if not 0 <= i < n_leaks:
            have = f"this report has {n_leaks}, numbered from 0" if n_leaks else "this report has none"
            msg = f"there is no leak {i}: {have}"
            raise IndexError(msg)

    def explore(self) -> leaklab.Explorer:
        """Show this report as a page with tables, graphs and buttons; the static report is displayed first."""
        from leaklab import explore  # noqa: PLC0415 - widgets are paid by those who explore

        return explore(self)

    def compare(self, other: LeakReport) -> Comparison:
        """Return what became of the leaks of this report in *other*, the check of the mended code."""
        return compare_checks(self.record, other.record)

    def __repr__(self) -> str:
        verdict, n_leaks = self.verdict, len(self.leaks)
        found = f"; {unit_words(n_leaks, 'leaks')}" if n_leaks else ""
        return f"<LeakReport {verdict.outcome.value}: {shorten(verdict.reason, _REASON_LIMIT)}{found}>"
