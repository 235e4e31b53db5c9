"""Compare what many processes found: rows that are alike are one, the odd one is first, each leak knows its ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leaklab.decide.verdict import is_proof_lost, outcome_of_loop
from leaklab.model.check import Check, Leak, Outcome
from leaklab.model.loop import LEVEL_WORDS, LoopState, MonitorRecord
from leaklab.model.ranks import RankRecord, RanksRecord, SharedLeak
from leaklab.render.advice import headline
from leaklab.reports.loop import state_words
from leaklab.text import format_bytes, shorten

RUN, STEP = "run", "step"
NO_ANSWER, ENDED_EARLY = "no answer", "ended early"
_WEIGHTS = ("leak", "growing", NO_ANSWER, ENDED_EARLY, "inconclusive", "warming up", "bounded", "stopped")
"""Words for verdicts, what a person has to know first before the others."""
_SAME_RATE = 0.05  # relative difference below which two rates are one
_N_NAMED = 3
_LABEL_LIMIT = 60


@dataclass(frozen=True, slots=True)
class RankAnswer:
    """What one process said, be it of a check or of a loop.

    Attributes:
        record: Its record.
        word: The verdict in a word or two.
        outcome: The verdict as far as it is one: of a loop that still grows, or a process without an answer, it is
            ``inconclusive``.
        reason: One sentence.
        leaks: What leaks, largest first.
        bounded: Fingerprints of what grew and stopped.
        bytes_per_turn: What every turn leaves behind.
        turn: ``run`` of a check, ``step`` of a loop.
    """

    record: RankRecord
    word: str
    outcome: Outcome
    reason: str
    leaks: tuple[Leak, ...] = ()
    bounded: frozenset[str] = frozenset()
    bytes_per_turn: float = 0.0
    turn: str = RUN

    @property
    def is_proof(self) -> bool:
        """Whether it says what leaks, or that nothing does."""
        return self.outcome is not Outcome.INCONCLUSIVE


def answer_of(record: RankRecord) -> RankAnswer:
    """Return what *record* says; of a check and a loop in one process, the worse."""
    answers = []
    if record.check is not None:
        answers.append(_of_check(record, record.check))
    if record.monitor is not None:
        answers.append(_of_monitor(record, record.monitor))
    if not answers:
        reason = record.error or "it sent no answer"
        return RankAnswer(record, NO_ANSWER, Outcome.INCONCLUSIVE, reason)
    return min(answers, key=_weight)


def _of_check(record: RankRecord, check: Check) -> RankAnswer:
    outcome, word, reason = check.verdict.outcome, check.verdict.outcome.value, headline(check)
    failure = record.error or check.failure
    if is_proof_lost(outcome, failure):
        outcome, word, reason = Outcome.INCONCLUSIVE, ENDED_EARLY, failure
    elif failure:
        reason = f"{reason}; it ended early: {failure}"
    return RankAnswer(
        record,
        word,
        outcome,
        reason,
        check.leaks if outcome is Outcome.LEAK else (),
        frozenset(leak.fingerprint for leak in check.bounded),
        check.verdict.bytes_per_run,
    )


def _of_monitor(record: RankRecord, monitor: MonitorRecord) -> RankAnswer:
    status, state = monitor.status, monitor.status.state
    outcome, word = outcome_of_loop(state), state.value
    reason = f"{state_words(monitor)} at step {status.step:,}"
    failure = record.error or monitor.failure
    if is_proof_lost(outcome, failure):
        outcome, word = Outcome.INCONCLUSIVE, ENDED_EARLY
    if failure:
        reason = f"{reason}; it ended early: {failure}"
    sought = LoopState.LEAK if state is LoopState.LEAK else LoopState.GROWING
    standing = [place for place in monitor.places if place.state is sought]
    if standing and standing[0].leak is None:
        reason = f"{LEVEL_WORDS[standing[0].memory]} grows, {reason}"
    return RankAnswer(
        record,
        word,
        outcome,
        reason,
        tuple(place.leak for place in standing if place.leak is not None),
        frozenset(place.fingerprint for place in monitor.places if place.state is LoopState.STOPPED),
        status.bytes_per_step,
        STEP,
    )


def _weight(answer: RankAnswer) -> int:
    return _WEIGHTS.index(answer.word) if answer.word in _WEIGHTS else len(_WEIGHTS)


@dataclass(frozen=True, slots=True)
class RankRow:
    """Processes that say the same.

    Attributes:
        answers: One for each of them, in the order of their ranks; the first speaks for all.
        is_odd: Whether more than half of all processes say something else, and the same.
    """

    answers: tuple[RankAnswer, ...]
    is_odd: bool = False

    @property
    def worst(self) -> RankAnswer:
        """The one of them with the highest rate."""
        return max(self.answers, key=lambda answer: answer.bytes_per_turn)


def answers_of(record: RanksRecord) -> tuple[RankAnswer, ...]:
    """Return what each process says, and that those which should be there say nothing."""
    missing = (
        RankRecord(rank, world_size(record), "", 0, error="nothing came from it") for rank in missing_ranks(record)
    )
    return tuple(map(answer_of, sorted((*record.ranks, *missing), key=lambda one: one.rank)))


def world_size(record: RanksRecord) -> int:
    """Return how many processes there should be, as far as one of them said so; else 0."""
    return max((one.world_size for one in record.ranks), default=0)


def missing_ranks(record: RanksRecord) -> tuple[int, ...]:
    """Return the ranks of which there is no record."""
    there = {one.rank for one in record.ranks}
    return tuple(rank for rank in range(world_size(record)) if rank not in there)


def rows_of(answers: Sequence[RankAnswer]) -> tuple[RankRow, ...]:
    """Return those that are alike as one row each, odd ones first, then what a person has to know first.

    Leaks are alike by their fingerprints, whatever their rates; all that is not a leak by its verdict, and by why there
    is none.
    """
    groups: dict[object, list[RankAnswer]] = {}
    for answer in answers:
        is_silent = answer.word in (NO_ANSWER, ENDED_EARLY)
        why = answer.reason if is_silent else ""
        key = (answer.word, answer.turn, frozenset(leak.fingerprint for leak in answer.leaks), why)
        groups.setdefault(key, []).append(answer)
    has_majority = max(map(len, groups.values()), default=0) * 2 > len(answers)
    rows = []
    for group in groups.values():
        is_majority = len(group) * 2 > len(answers)
        rows.append(RankRow(tuple(group), has_majority and not is_majority))
    return tuple(sorted(rows, key=lambda row: (not row.is_odd, _weight(row.answers[0]), len(row.answers))))


def shared_leaks(answers: Sequence[RankAnswer]) -> tuple[SharedLeak, ...]:
    """Return each leak once, what fewest processes have first, then the highest rate."""
    found: dict[tuple[str, str], list[tuple[RankAnswer, float, Leak]]] = {}
    for answer in answers:
        for fingerprint in dict.fromkeys(leak.fingerprint for leak in answer.leaks):
            same = [leak for leak in answer.leaks if leak.fingerprint == fingerprint]
            rate = sum(leak.bytes_per_run for leak in same)
            found.setdefault((fingerprint, answer.turn), []).append((answer, rate, same[0]))
    leaks = [
        SharedLeak(
            max(seen, key=lambda one: one[1])[2],
            tuple(answer.record.rank for answer, _, _ in seen),
            any(answer.outcome is Outcome.LEAK for answer, _, _ in seen),
            min(rate for _, rate, _ in seen),
            max(rate for _, rate, _ in seen),
            tuple(answer.record.rank for answer in answers if fingerprint in answer.bounded),
            turn,
        )
        for (fingerprint, turn), seen in found.items()
    ]
    return tuple(sorted(leaks, key=lambda shared: (not shared.is_certain, len(shared.ranks), -shared.highest)))


def rates_words(lowest: float, highest: float, turn: str) -> str:
    """Return ``1.00 MiB a run``, or from where to where the rates go; empty where nothing grows in bytes."""
    if highest <= 0:
        return ""
    if highest - lowest <= _SAME_RATE * highest:
        return f"{format_bytes(highest)} a {turn}"
    return f"{format_bytes(lowest)} to {format_bytes(highest)} a {turn}"


def noun_of(records: Iterable[RankRecord]) -> str:
    """Return what people call these processes, for one of them: ``rank``, ``engine``, ``worker``."""
    nouns = {_noun(one) for one in records}
    return nouns.pop() if len(nouns) == 1 else "worker"


def _noun(record: RankRecord) -> str:
    return "rank" if not record.label else record.label.partition(" ")[0] if _has_number(record) else "worker"


def _has_number(record: RankRecord) -> bool:
    """Return whether the rank is all that its name says beside the noun: ``engine 3``."""
    word, _, number = record.label.partition(" ")
    return not record.label or (word.isalpha() and number == str(record.rank))


def named(records: Sequence[RankRecord], noun: str) -> str:
    """Return ``rank 2``, ``ranks 0-62, 64``; workers by their labels."""
    return f"{noun}{'' if len(records) == 1 else 's'} {names_of(records)}"


def names_of(records: Sequence[RankRecord]) -> str:
    """Return ``2``, ``0-62, 64``; the labels of workers, of many the first."""
    if all(map(_has_number, records)):
        return spans(one.rank for one in records)
    names = [shorten(one.label, _LABEL_LIMIT) or f"number {one.rank}" for one in records]
    more = f" and {len(names) - _N_NAMED:,} more" if len(names) > _N_NAMED else ""
    return f"{', '.join(names[:_N_NAMED])}{more}"


def spans(numbers: Iterable[int]) -> str:
    """Return ``0-2, 5, 7-8``."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
