"""Write what many processes found as plain text, in words that its page shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leaklab.decide.ranks import outcome_of_all
from leaklab.model.check import Outcome
from leaklab.model.ranks import RanksRecord, SharedLeak
from leaklab.model.sentences import growth_sentence, more_words, place_words
from leaklab.render.advice import advice_of
from leaklab.render.ranks_rows import (
    ENDED_EARLY,
    NO_ANSWER,
    RankAnswer,
    RankRow,
    answers_of,
    named,
    names_of,
    noun_of,
    rates_words,
    rows_of,
    shared_leaks,
)
from leaklab.text import SHOWN_LIMIT, clipped, shorten, unit_words, wrap

_N_LEAKS, _N_ROWS = 10, 40
_PLACE_LIMIT, _WHO_LIMIT = 200, 90
_UNDECIDED = (NO_ANSWER, ENDED_EARLY)


class RanksView:
    """What is said of many processes, for text and page alike.

    Args:
        record: Of all of them.
    """

    def __init__(self, record: RanksRecord) -> None:
        self.record = clipped(record, SHOWN_LIMIT)
        self.answers = answers_of(self.record)
        self.noun = noun_of(answer.record for answer in self.answers)
        self.rows = rows_of(self.answers)
        self.leaks = shared_leaks(self.answers)
        self._n = len(self.answers)

    @property
    def badge(self) -> str:
        """The verdict on all of them in a word or two."""
        words = {answer.word for answer in self.answers}
        if self.outcome is Outcome.LEAK:
            return "LEAK"
        if "growing" in words:
            return "GROWING"
        if self.outcome is Outcome.INCONCLUSIVE:
            return "NO VERDICT"
        return "NO LEAK" if len(words) > 1 else words.pop().upper()

    @property
    def outcome(self) -> Outcome:
        """The verdict on all of them, for its colour."""
        return outcome_of_all({answer.outcome for answer in self.answers})

    @property
    def headline(self) -> str:
        """The answer in one sentence, without the badge; expressions stand between backticks."""
        leaking = [answer for answer in self.answers if answer.outcome is Outcome.LEAK]
        growing = [answer for answer in self.answers if answer.word == "growing"]
        if leaking:
            certain = [shared for shared in self.leaks if shared.is_certain]
            worst = max(certain, key=lambda shared: shared.highest, default=None)
            told = leaking[0].reason if worst is None else growth_sentence(worst.leak, worst.turn)
            return f"{self._among(leaking)}: {told}{more_words(certain, 'leak')}"
        if growing:
            return f"{self._among(growing)}: {growing[0].reason}; not yet told from something that fills"
        open_ones = [answer for answer in self.answers if not answer.is_proof]
        if open_ones:
            proven = self._n - len(open_ones)
            without = f"{self.who(open_ones)} {'has' if len(open_ones) == 1 else 'have'} none"
            if not proven:
                return f"none of the {self.count()} came to a verdict: {open_ones[0].reason}"
            return f"no leak in {proven:,} of {self.count()}, but {without}: {open_ones[0].reason}"
        if len({answer.word for answer in self.answers}) > 1:
            parts = (f"{self.who(row.answers)} {row.answers[0].word}" for row in self.rows)
            return f"in any of the {self.count()}: {', '.join(parts)}"
        return f"in {self.all_words()}"

    def count(self) -> str:
        """Return ``4 ranks``."""
        return unit_words(self._n, f"{self.noun}s")

    def all_words(self) -> str:
        """Return ``all 4 ranks``, or ``rank 0`` where it is the only one."""
        return self.who(self.answers) if self._n == 1 else f"all {self.count()}"

    def who(self, answers: Sequence[RankAnswer]) -> str:
        """Return ``rank 2``, ``ranks 0-62``."""
        return named([answer.record for answer in answers], self.noun)

    def who_of(self, row: RankRow) -> str:
        """Return whose row it is, for a column of a table."""
        return shorten(names_of([answer.record for answer in row.answers]), _WHO_LIMIT)

    def rate_of(self, row: RankRow) -> str:
        """Return what every run or step of these processes leaves behind."""
        rates = [answer.bytes_per_turn for answer in row.answers]
        return rates_words(min(rates), max(rates), row.answers[0].turn)

    def place_of(self, row: RankRow) -> str:
        """Return the place that grows most, or why there is no verdict."""
        worst = row.worst
        if worst.leaks and worst.word not in _UNDECIDED:
            return shorten(f"{place_words(worst.leaks[0])}{more_words(worst.leaks, 'leak')}", _PLACE_LIMIT)
        if worst.is_proof:
            return ""
        more = "" if len({answer.reason for answer in row.answers}) == 1 else " (of the first)"
        return shorten(f"{row.answers[0].reason}{more}", _PLACE_LIMIT)

    def where(self, shared: SharedLeak) -> str:
        """Return which processes have a leak, and what is known of the others."""
        having = [answer for answer in self.answers if answer.record.rank in shared.ranks]
        certain = [answer for answer in having if answer.outcome is Outcome.LEAK] or having
        growing = [answer for answer in having if answer not in certain]
        others = [answer for answer in self.answers if answer.record.rank not in shared.ranks]
        silent = [answer for answer in others if not answer.is_proof]
        bounded = [answer for answer in others if answer.is_proof and answer.record.rank in shared.bounded]
        if not others and not growing:
            return f"in {self.all_words()}"
        only = " only" if not (silent or bounded or growing) else ""
        words = f"in {self.who(certain)}{only}"
        if growing:
            words += f"; in {self.who(growing)} it grows, so far"
        if bounded:
            words += f"; in {self.who(bounded)} it stopped growing"
        if silent:
            words += f"; {self.who(silent)} came to no verdict"
        return words

    @staticmethod
    def rates_of(shared: SharedLeak) -> str:
        """Return from where to where the rates of a leak go; empty where it is one, which its sentence says."""
        words = rates_words(shared.lowest, shared.highest, shared.turn)
        return words if " to " in words else ""

    def _among(self, answers: Sequence[RankAnswer]) -> str:
        if len(answers) == self._n:
            return f"in {self.all_words()}"
        return f"in {len(answers):,} of {self.count()} ({self.who(answers)})"


def ranks_headline(record: RanksRecord) -> str:
    """Return the answer of all of them in one line."""
    view = RanksView(record)
    return f"{view.badge} {view.headline}"


def ranks_text(record: RanksRecord) -> str:
    """Return *record* as lines of `columns` at most: the answer, a row for those that are alike, each leak once."""
    return "\n".join(_lines(RanksView(record))) + "\n"


def _lines(view: RanksView) -> Iterator[str]:
    indent = " " * (len(view.badge) + 2)
    yield from wrap(f"{view.badge}  {view.headline}", "", indent)
    yield ""
    yield from _table(view)
    for shared in view.leaks[:_N_LEAKS]:
        yield ""
        yield from _leak_lines(view, shared)
    if len(view.leaks) > _N_LEAKS:
        yield f"and {len(view.leaks) - _N_LEAKS:,} more (report.leaks has all)"
    if view.record.notes:
        yield ""
    for note in view.record.notes:
        yield from wrap(f"note: {note}", "", "  ")


def _table(view: RanksView) -> Iterator[str]:
    """Yield whose row it is, verdict, rate and worst place in columns; what is too long has a line of its own."""
    cells = [(view.who_of(row), row.answers[0].word, view.rate_of(row), view.place_of(row)) for row in view.rows]
    titles = (f"{view.noun}s", "verdict", "leaves behind", "worst place, or why there is no verdict")
    shown = [titles, *cells[:_N_ROWS]]
    widths = [min(max(len(row[number]) for row in shown), limit) for number, limit in enumerate((30, 12, 34))]
    left = "  ".join(" " * width for width in widths) + "  "
    for row in shown:
        who = row[0]
        if len(who) > widths[0]:
            yield from wrap(who, "  ", "    ")
            who = ""
        start = "  ".join(f"{cell:<{width}}" for cell, width in zip((who, *row[1:3]), widths, strict=True))
        yield from (line.rstrip() for line in wrap(row[3], f"  {start.rstrip():<{len(left)}}", f"  {left}"))
    if len(cells) > _N_ROWS:
        yield f"  and {len(cells) - _N_ROWS:,} more rows (report.to_frame() has all)"


def _leak_lines(view: RanksView, shared: SharedLeak) -> Iterator[str]:
    yield from wrap(f"* {growth_sentence(shared.leak, shared.turn)}: {view.where(shared)}", "", "  ")
    if rates := view.rates_of(shared):
        yield from wrap(rates, "  ", "  ")
    advice = advice_of(shared.leak)
    for label, words in (("line", advice.line), ("change", advice.words), ("tried", advice.proof)):
        if words:
            yield from wrap(f"{label}: {words}", "  ", "    ")
    if not advice.words:
        for line in advice.text.splitlines()[:_N_LEAKS]:
            yield from wrap(line, "  ", "    ")
