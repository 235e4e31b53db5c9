"""What many processes found that checked one program: what is said of them, and what the user holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from leaklab.decide.verdict import outcome_of_all
from leaklab.errors import ReportError
from leaklab.model import SCHEMA_VERSION, Outcome
from leaklab.model.loop import MONITOR_SCHEMA
from leaklab.model.ranks import RANKS_SCHEMA, RankRecord, RanksRecord, SharedLeak
from leaklab.model.sentences import growth_sentence, more_words, place_words
from leaklab.render.advice import advice_of
from leaklab.render.base import Forms, Report
from leaklab.render.document import (
    Chapter,
    Document,
    DocumentBlock,
    Drawn,
    Either,
    Gap,
    Headline,
    Lines,
    Panel,
    Points,
    Remark,
    Styled,
    Table,
    Tone,
    Typeface,
    bold,
    faint,
    marked,
    notes_of,
)
from leaklab.render.json import check_fields
from leaklab.reports import loop
from leaklab.reports.check import LeakReport
from leaklab.reports.check_html import OUTCOME_TONES, Extent, answer_of, more_rows, render_body
from leaklab.reports.loop import MonitorReport
from leaklab.reports.rank_answers import (
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
from leaklab.reports.tables import bounded_bytes, frame_of
from leaklab.text import SHOWN_LIMIT, clipped, shorten, unit_words, wrap

if TYPE_CHECKING:
    import pandas as pd

_HEADLINE_LIMIT = 100
_N_LEAKS, _N_TEXT_ROWS, _N_HTML_ROWS = 10, 40, 100
_PLACE_LIMIT, _WHO_LIMIT, _LINE_LIMIT = 200, 90, 300
_N_REPORTS = 64
"""Reports of single processes on a page; a report takes some ten kilobytes, with its pictures ten times as much."""
_OF_ONE = Extent(n_leaks=5)
_UNDECIDED = (NO_ANSWER, ENDED_EARLY)
_COLUMNS = {
    "rank": "int64", "label": "string", "host": "string", "pid": "int64", "verdict": "string",
    "bytes_per_turn": "int64", "turn": "string", "worst_place": "string", "n_leaks": "int64",
    "fingerprints": "string", "reason": "string",
}  # fmt: skip


def document_of(record: RanksRecord, *, is_page: bool = False) -> Document:
    """Return what is said of many processes: the answer, a row for those that are alike, each leak, their own reports.

    Args:
        record: Of all of them.
        is_page: Whether there are the reports of all, with their pictures; else those of one process of each row.
    """
    view = _RanksView(record)
    titles = (f"{view.noun}s", "verdict", "leaves behind", "worst place, or why there is no verdict")
    blocks: list[DocumentBlock] = [
        Headline(marked(view.headline), OUTCOME_TONES[view.outcome], badge=view.badge),
        Either(
            (Gap(), Lines(tuple(_text_table(view, titles)))),
            (Table(titles, tuple(_cells(view))), *more_rows(len(view.rows) - _N_HTML_ROWS, "report.to_frame()")),
        ),
    ]
    blocks += [_leak(view, shared) for shared in view.leaks[:_N_LEAKS]]
    n_more = len(view.leaks) - _N_LEAKS
    rest = (Remark(f"and {n_more:,} more (report.leaks has all)"),) if n_more > 0 else ()
    blocks.append(Either(rest, more_rows(n_more, "report.leaks")))
    notes = view.record.notes
    if notes:
        blocks.append(Either((Gap(), *notes_of(notes)), (Chapter("Notes", (Points(notes),)),)))
    return Document((*blocks, Either(html=tuple(_reports(view, is_page=is_page)))))


def _cells(view: _RanksView) -> Iterator[tuple[str | Styled, ...]]:
    for row in view.rows[:_N_HTML_ROWS]:
        first = row.answers[0]
        verdict = Styled(first.word, Typeface.PILL, OUTCOME_TONES[first.outcome])
        yield bold(view.who_of(row)), verdict, view.rate_of(row), marked(view.place_of(row))


def _leak(view: _RanksView, shared: SharedLeak) -> Either:
    """Return what grows, in which processes, and what to change."""
    sentence, where = growth_sentence(shared.leak, shared.turn), view.where(shared)
    advice, rates = advice_of(shared.leak), view.rates_of(shared)
    named = (("line: ", advice.line), ("change: ", advice.words), ("proof: ", advice.proof))
    in_text = [f"{name}{words}" for name, words in (("", rates), *named) if words] + advice.text.splitlines()[:_N_LEAKS]
    blocks = (*((Remark(faint(rates)),) if rates else ()), *answer_of(shared.leak))
    words = (marked(shorten(sentence, 2 * _LINE_LIMIT)), ": ", bold(where))
    tone = Tone.GOOD if advice.words else Tone.NONE
    return Either(
        (Gap(), Remark(f"* {sentence}: {where}"), *(Remark(line, indent=2) for line in in_text)),
        (Panel(words, tone, blocks=blocks, is_filled=False),),
    )


def _reports(view: _RanksView, *, is_page: bool) -> Iterator[DocumentBlock]:
    """Yield the reports in the order of the rows: the first of each row with its pictures, the others without."""
    firsts = [row.answers[0].record for row in view.rows]
    others = [answer.record for row in view.rows for answer in row.answers[1:]] if is_page else []
    n_left_out = sum(_has_report(answer.record) for answer in view.answers)
    for number, record in enumerate([*firsts, *others][:_N_REPORTS]):
        if _has_report(record):
            n_left_out -= 1
            place = ", ".join(filter(None, (record.host, f"process {record.pid}" if record.pid else "")))
            title = (f"The report of {named([record], view.noun)}", *((" ", faint(place)) if place else ()))
            body = tuple(_report(record, has_pictures=is_page and number < len(firsts)))
            yield Chapter(title, body, is_open=False)
    yield from more_rows(n_left_out, "report.reports", f"reports of single {view.noun}s")


def _has_report(record: RankRecord) -> bool:
    return record.check is not None or record.monitor is not None


def _report(record: RankRecord, *, has_pictures: bool) -> Iterator[DocumentBlock]:
    if record.error:
        yield Remark(bold(record.error))
    if record.check is not None and has_pictures:
        yield Drawn(partial(render_body, record.check))
    elif record.check is not None:
        yield Drawn(partial(render_body, record.check, _OF_ONE, plot=_no_plot))
    if record.monitor is not None:
        yield from loop.document_of(record.monitor).blocks


def _no_plot(_check: object) -> None:
    """Draw nothing: the figures stand in the table."""


class _RanksView:
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
            words = leaking[0].reason if worst is None else growth_sentence(worst.leak, worst.turn)
            return f"{self._among(leaking)}: {words}{more_words(certain, 'leak')}"
        if growing:
            return (
                f"{self._among(growing)}: {growing[0].reason}; it may still stop growing, as a buffer that fills "
                "up does"
            )
        open_ones = [answer for answer in self.answers if not answer.is_proof]
        if open_ones:
            proven = self._n - len(open_ones)
            without = f"{self.who(open_ones)} {'has' if len(open_ones) == 1 else 'have'} no verdict"
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


def _text_table(view: _RanksView, titles: tuple[str, ...]) -> Iterator[str]:
    """Yield whose row it is, verdict, rate and worst place in columns; what is too long has a line of its own."""
    cells = [(view.who_of(row), row.answers[0].word, view.rate_of(row), view.place_of(row)) for row in view.rows]
    shown = [titles, *cells[:_N_TEXT_ROWS]]
    widths = [min(max(len(row[number]) for row in shown), limit) for number, limit in enumerate((30, 12, 34))]
    left = "  ".join(" " * width for width in widths) + "  "
    for row in shown:
        who = row[0]
        if len(who) > widths[0]:
            yield from wrap(who, "  ", "    ")
            who = ""
        start = "  ".join(f"{cell:<{width}}" for cell, width in zip((who, *row[1:3]), widths, strict=True))
        yield from (line.rstrip() for line in wrap(row[3], f"  {start.rstrip():<{len(left)}}", f"  {left}"))
    if len(cells) > _N_TEXT_ROWS:
        yield f"  and {len(cells) - _N_TEXT_ROWS:,} more rows (report.to_frame() has all)"


def ranks_headline(record: RanksRecord) -> str:
    """Return the answer of all of them in one line."""
    view = _RanksView(record)
    return f"{view.badge} {view.headline}"


def _table(answers: Sequence[RankAnswer]) -> pd.DataFrame:
    computed: Mapping[str, Callable[[Any], object]] = {
        **{name: partial(_of_record, name) for name in ("rank", "label", "host", "pid")},
        "verdict": lambda row: row.word,
        "bytes_per_turn": lambda row: bounded_bytes(row.bytes_per_turn),
        "worst_place": lambda row: row.leaks[0].holder if row.leaks else "",
        "n_leaks": lambda row: len(row.leaks),
        "fingerprints": lambda row: "; ".join(sorted({leak.fingerprint for leak in row.leaks})),
    }
    return frame_of(answers, _COLUMNS, "rank", computed)


def _of_record(name: str, answer: RankAnswer) -> object:
    return getattr(answer.record, name)


def _fields(record: RanksRecord) -> Mapping[str, object]:
    ranks = []
    for one in record.ranks:
        check = None if one.check is None else check_fields(one.check)
        ranks.append({**asdict(replace(one, check=None)), "check": check})
    return {"schema": record.schema, "notes": record.notes, "ranks": ranks}


def _restored(fields: Any) -> Any:
    """Return *fields*; refuse them where a report within is of another version than this one reads."""
    for one in fields["ranks"]:
        for name, schema in (("check", SCHEMA_VERSION), ("monitor", MONITOR_SCHEMA)):
            found = one[name]
            if found is not None and found["schema"] != schema:
                msg = f"the {name} of rank {one['rank']} was made by another version of leaklab: use one for all ranks"
                raise ReportError(msg)
    return fields


@dataclass(frozen=True, slots=True, repr=False)
class RanksReport(Report[RanksRecord]):
    """What many processes found that checked one program, made by `leaklab.merge` or ``leaklab merge``.

    Attributes:
        record: The records of all of them, with every figure.
    """

    _forms: ClassVar = Forms(
        kind=RanksRecord,
        format="leaklab ranks",
        schema=RANKS_SCHEMA,
        document=document_of,
        title=lambda record: f"leaklab: {ranks_headline(record)}",
        fields=_fields,
        restored=_restored,
    )
    record: RanksRecord

    @property
    def leaked(self) -> bool:
        """Whether one of them leaks."""
        return any(answer.outcome is Outcome.LEAK for answer in answers_of(self.record))

    @property
    def grows(self) -> bool:
        """Whether in one of them something grows of which it is not known yet whether it goes on."""
        return any(answer.word == "growing" for answer in answers_of(self.record))

    @property
    def is_proven(self) -> bool:
        """Whether each of them came to a verdict: without that, ``not leaked`` proves nothing."""
        return all(answer.is_proof for answer in answers_of(self.record))

    @property
    def leaks(self) -> tuple[SharedLeak, ...]:
        """Each leak once, with the ranks that have it; what fewest of them have comes first."""
        return shared_leaks(answers_of(self.record))

    @property
    def odd(self) -> tuple[int, ...]:
        """The ranks that say something else than more than half of all; empty where no answer has that majority."""
        rows = rows_of(answers_of(self.record))
        return tuple(sorted(answer.record.rank for row in rows if row.is_odd for answer in row.answers))

    @property
    def reports(self) -> dict[int, LeakReport | MonitorReport]:
        """The report of each rank that has one; of two answers of one rank the later."""
        found: dict[int, LeakReport | MonitorReport] = {}
        for one in self.record.ranks:
            if one.check is not None:
                found[one.rank] = LeakReport(one.check)
            elif one.monitor is not None:
                found[one.rank] = MonitorReport(one.monitor)
        return found

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each rank, indexed by its number: verdict, rate, worst place, fingerprints.

        ``bytes_per_turn`` is what each ``turn`` leaves behind: a run of a check, a step of a loop.
        """
        return _table(answers_of(self.record))

    def __repr__(self) -> str:
        return f"<RanksReport {shorten(ranks_headline(self.record), _HEADLINE_LIMIT)}>"


def rank_to_json(record: RankRecord) -> str:
    """Return *record* as one line of JSON: a `RanksReport` of one.

    Raises:
        ReportError: if a figure is NaN or infinite, which JSON cannot say.
    """
    return RanksReport(RanksRecord((record,))).to_json()
