"""Keep what is known of the growing places of a loop: growing, stopped, a leak.

One look cannot tell a buffer that fills from a leak, whatever test is used: both grow until they do not. So a place
that grows is first *growing*, and only when it still does so at twice the steps a *leak*, at eight times within the
first check; sooner where it has gained as much in each step, and the code was read and has nothing that could end that.
What gets longer more and more slowly is no leak, however often it is seen. It has *stopped*, and what was said of it is
withdrawn, when a later check does not find it, its container gets no longer, and nothing came for twice its longest
pause. The end of the loop withdraws nothing: what dies with the function that had the loop has grown until then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from leaklab.decide.length_readings import NOTHING_SEEN, GrowthWitness, LengthReadings
from leaklab.decide.rising_level import Consequence, Free, consequence_of
from leaklab.decide.survivors import longest_pause
from leaklab.model import Leak, Outcome
from leaklab.model.check import GRAPH_UNIT, UNFOLLOWED_NODES, UNREAD_GRAPH
from leaklab.model.loop import ACCELERATOR, HOST, LEVEL, MEMORIES, GrowingPlace, LoopState, StateChange, StretchCheck
from leaklab.model.sentences import growth_sentence, told_of_steps
from leaklab.text import format_bytes

_MOST_PLACES = 64
_MUCH = 0.5
_CLEAR_BYTES = 32 * 2**20
_STILL = 0.25
_LATER = 4
_SPAN = 8
"""A check that ends at so many times the steps it began at has seen that growth goes on at twice the steps."""
_CLEAR_COUNT, _LONGER, _OVERDUE = 16, 1.2, 2
Series = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
_NATIVE, _GRAPH = "native", "graph-kept"
_DECISIVE = (Outcome.LEAK, Outcome.CLEAN, Outcome.BOUNDED)
_EXPLAINED = 0.5
"""A level whose rise is by so large a part that of known places says nothing new."""


class LoopStates:
    """The places of one loop. Everything that comes in and goes out is plain data."""

    def __init__(self) -> None:
        self._places: dict[str, GrowingPlace] = {}
        self._is_checked = False
        self._lengths: dict[str, tuple[int, int]] = {}  # the step of the last look that showed it longer, its length
        self._longest: dict[str, int] = {}  # of what was emptied
        self._readings = LengthReadings()
        self._pauses: dict[str, int] = {}  # the most steps between two times that something was left there
        self._native = frozenset[str](), 0.0  # what malloc hands out per step for these places, whatever their memory

    @property
    def standing(self) -> tuple[GrowingPlace, ...]:
        """The places that grow, those that are leaks first, then by their rates."""
        places = (place for place in tuple(self._places.values()) if place.stands)  # other threads ask, too
        return tuple(sorted(places, key=lambda place: (place.state is not LoopState.LEAK, -place.bytes_per_step)))

    @property
    def state(self) -> LoopState:
        """The worst state of all places."""
        states = {place.state for place in tuple(self._places.values())}
        for worst in (LoopState.LEAK, LoopState.GROWING):
            if worst in states:
                return worst
        return LoopState.STEADY if self._is_checked else LoopState.WARMING_UP

    @property
    def bytes_per_step(self) -> float:
        """What all places take per step; a level and the places under it are counted once."""
        return sum(map(self._rate_in, MEMORIES))

    def full_at_step(self, step: int, total_steps: int | None, free: Free) -> int | None:
        """Return the first step at which a memory is full at the rates known; None if none is before the end."""
        results = (consequence_of(self._rate_in(memory), step, total_steps, free.of(memory)) for memory in MEMORIES)
        return min((result.full_at_step for result in results if result.full_at_step is not None), default=None)

    def next_look(self, done: StretchCheck) -> int | None:
        """Return the step at which a check has to look again at what stands; None if nothing does.

        At twice the steps what grows is called a leak, or withdrawn, unless its length tells; later, what was called
        one may still stop.
        """
        if not self.standing:
            return None
        is_open = any(
            place.state is LoopState.GROWING and place.fingerprint not in self._lengths for place in self.standing
        )
        return (2 if is_open else _LATER) * done.last_step

    @property
    def has_all_lines(self) -> bool:
        """Whether something grows, and the line is known of everything that does."""
        standing = self.standing
        return bool(standing) and all(place.leak is not None and place.leak.sites for place in standing)

    def take_check(
        self,
        done: StretchCheck,
        total_steps: int | None,
        free: Free,
        lengths: Mapping[str, int] | None = None,
        witness: GrowthWitness = NOTHING_SEEN,
        *,
        is_cut: bool = False,
    ) -> list[StateChange]:
        """Take in the check of a stretch that has ended; return what became of the places.

        Args:
            done: The check.
            total_steps: Steps of the whole loop; None if not given.
            free: What is free now.
            lengths: How long the containers of its leaks are now, by fingerprint, where that is known.
            witness: What it has seen of its places besides.
            is_cut: Whether the end of the loop ended it: what it does not find may have gone with the loop, or was
                waiting for its next time.
        """
        check = done.check
        is_decisive = check.verdict.outcome in _DECISIVE and not check.failure
        self._is_checked |= is_decisive
        found = {leak.fingerprint: per_step(leak, done.steps_per_run) for leak in check.leaks}
        if any(UNFOLLOWED_NODES in note for note in check.notes):
            found = self._with_known_graphs(found)
        limits = {leak.fingerprint: leak for leak in check.bounded}
        gone = [
            place
            for place in self.standing
            if is_decisive
            and place.leak is not None
            and place.fingerprint not in found
            and (place.fingerprint in limits or not is_cut)
            and self._gain(place.fingerprint, lengths or {}) <= 0  # longer than it ever was, it has not stopped
            and done.last_step - done.first_step >= self._overdue(place.fingerprint)
        ]
        self._pauses |= {leak.fingerprint: longest_pause(leak.kept) * done.steps_per_run for leak in check.leaks}
        self._readings.note_seen((*check.leaks, *check.noted), witness.lengths)
        self._note_lengths(done.last_step, {key: length for key, length in (lengths or {}).items() if key in found})
        places = [
            self._with(leak, (done.first_step, done.last_step), witness.endless)
            for leak in found.values()
            if leak.fingerprint not in self._longest
        ]
        places += [self._stopped(place, done.first_step) for place in gone]
        return [
            change
            for place in places[:_MOST_PLACES]
            for change in self._put(place, done.last_step, total_steps, free, limits.get(place.fingerprint))
        ]

    def take_growing(
        self,
        leaks: Sequence[Leak],
        steps: tuple[int, int],
        total_steps: int | None,
        free: Free,
        witness: GrowthWitness = NOTHING_SEEN,
    ) -> list[StateChange]:
        """Take in what a check under way has found to grow, from the first of *steps* to the second, rates per step."""
        self._readings.note_seen(leaks, witness.lengths)
        places = [self._with(leak, steps) for leak in leaks]
        return [
            change for place in places[:_MOST_PLACES] for change in self._put(place, steps[1], total_steps, free, None)
        ]

    def note_native(self, bytes_per_step: float) -> None:
        """Note what malloc hands out for what stands: also the graph of tensors on an accelerator is in there."""
        self._native = frozenset(place.fingerprint for place in self.standing if place.leak is not None), bytes_per_step

    def _overdue(self, fingerprint: str) -> int:
        """Return for how many steps nothing has to come before a place has stopped: longer than any pause so far."""
        return _OVERDUE * self._pauses.get(fingerprint, 0)

    def _gain(self, fingerprint: str, lengths: Mapping[str, int]) -> int:
        """Return by how much the container of a place is longer than it ever was; 0 where that is not known."""
        length, known = lengths.get(fingerprint), self._lengths.get(fingerprint)
        return 0 if length is None or known is None else length - known[1]

    def take_level(
        self, memory: str, step: int, rise: tuple[int, float] | None, total_steps: int | None, free: Free
    ) -> list[StateChange]:
        """Take in whether the level of *memory* rises without end: since which step, by how many bytes per step."""
        known = self._places.get(LEVEL + memory)
        if rise is not None and self._explained_in(memory) >= _EXPLAINED * rise[1]:
            self._places.pop(LEVEL + memory, None)  # told by its places
            return self._confirmed_native(memory, step, total_steps, free)
        if rise is None:
            if known is None or not known.stands:
                return []
            if self._explained_in(memory) >= _EXPLAINED * known.bytes_per_step:
                del self._places[LEVEL + memory]  # the rise was that of places which are known by now
                return []
            return list(self._put(self._stopped(known, step), step, total_steps, free, None))
        since, rate = rise
        state = LoopState.GROWING
        seen = step if known is None or not known.stands else known.seen_at
        place = GrowingPlace(
            LEVEL + memory, state, since, seen, rate, memory, is_alarm=known is not None and known.is_alarm
        )
        return list(self._put(place, step, total_steps, free, None))

    def _with_known_graphs(self, found: dict[str, Leak]) -> dict[str, Leak]:
        """Return *found* with the graphs that an earlier check could still read, where they are too large by now.

        A graph that grows by every step soon has more nodes than can be followed. What hangs on it, and the memory of
        its nodes, would pass for other leaks.
        """
        known = {place.fingerprint: place.leak for place in self.standing if place.leak is not None}
        graphs = {key: leak for key, leak in known.items() if leak.cause == _GRAPH}
        of_nodes = sum(leak.bytes_per_run for leak in found.values() if leak.cause == _NATIVE)
        if of_nodes < _EXPLAINED * sum(leak.bytes_per_run for leak in graphs.values()):
            return found  # whatever grows now, those graphs do not
        read = {key: leak for key, leak in found.items() if leak.holder != UNREAD_GRAPH and leak.cause != _NATIVE}
        return {**graphs, **read}

    def _note_lengths(self, step: int, lengths: Mapping[str, int]) -> None:
        for fingerprint, length in lengths.items():
            self._lengths[fingerprint] = step, length
            self._readings.note(fingerprint, [(step, length)])
            # What was emptied before is filled again: news only when it gets longer than it ever was.
            if length > _LONGER * self._longest.get(fingerprint, 0):
                self._longest.pop(fingerprint, None)

    def emptied(self, lengths: Mapping[str, int]) -> str:
        """Return the holder of a place that grew, and whose container is shorter by *lengths* now; else empty."""
        shorter = (place.leak for place in self.standing if self._gain(place.fingerprint, lengths) < 0)
        return next((leak.holder for leak in shorter if leak is not None), "")

    def take_lengths(
        self, step: int, lengths: Mapping[str, int], total_steps: int | None, free: Free, *, is_last: bool = False
    ) -> list[StateChange]:
        """Withdraw the places whose container is not longer than it was, such as one that every epoch empties.

        One that got longer at the same pace all along, to eight times the steps, is a leak. What is emptied when the
        loop has ended, *is_last*, has grown until then.
        """
        changes: list[StateChange] = []
        for place in self.standing:
            length, known = lengths.get(place.fingerprint), self._lengths.get(place.fingerprint)
            if length is None or known is None or place.leak is None or (is_last and length < known[1]):
                continue
            before, longest = known
            if length > longest:
                self._lengths[place.fingerprint] = step, length
                if self._keeps_pace(place, step, length):
                    changes += self._put(replace(place, state=LoopState.LEAK), step, total_steps, free, None)
            elif place.leak.count_per_run * (step - before) >= _CLEAR_COUNT and step - before >= self._overdue(
                place.fingerprint
            ):
                self._longest[place.fingerprint] = longest
                self._readings.forget(place.fingerprint)
                changes += self._put(self._stopped(place, step), step, total_steps, free, None)
        return changes

    def _keeps_pace(self, place: GrowingPlace, step: int, length: int) -> bool:
        """Return whether the container of *place* got longer as fast lately as before; *length* is its latest."""
        if place.state is not LoopState.GROWING:
            return False
        self._readings.note(place.fingerprint, [(step, length)])
        return step >= _decisive_step(place) and self._readings.goes_on(place.fingerprint)

    def next_reading(self, step: int) -> int | None:
        """Return the step after *step* at which a length is to tell of a place what it is; None where none can."""
        known = (place for place in self.standing if place.fingerprint in self._lengths)
        spans = [(place.seen_at, _decisive_step(place)) for place in known if place.state is LoopState.GROWING]
        return min((at for first, last in spans for at in ((first + last) // 2, last) if at > step), default=None)

    def take_standstill(
        self, step: int, seen_at: int, levels: Mapping[str, Sequence[Series]], total_steps: int | None, free: Free
    ) -> list[StateChange]:
        """Withdraw what the levels contradict: a place that took so much at every step would show in them.

        Args:
            step: Steps so far.
            seen_at: The step at which the last check ended.
            levels: For each memory the series that all of them have to stand still: steps, and bytes after each.
            total_steps: Of the whole loop; None if not given.
            free: What is free.
        """
        changes: list[StateChange] = []
        for place in self.standing:
            known = [series for series in levels.get(place.memory, ()) if len(series[0])]
            if known and all(_stands_still(series, seen_at, place.bytes_per_step) for series in known):
                changes += self._put(self._stopped(place, step), step, total_steps, free, None)
        return changes

    def weigh(self, step: int, total_steps: int | None, free: Free) -> list[StateChange]:
        """Return the alarms that are due now: a rate that did not matter does when the loop goes on long enough."""
        changes = []
        for place in self.standing:
            result = consequence_of(place.bytes_per_step, step, total_steps, free.of(place.memory))
            if not place.is_alarm and _is_alarming(place, result):
                place = replace(place, is_alarm=True)  # noqa: PLW2901 - the same place, told
                self._places[place.fingerprint] = place
                changes.append(_change(place, step, result, total_steps, None))
        return changes

    def _with(self, leak: Leak, steps: tuple[int, int], endless: Collection[str] | None = None) -> GrowingPlace:
        """Return the place of *leak* after a check of *steps*; one that is under way has proven nothing: None."""
        first_step, last_step = steps
        known = self._places.get(leak.fingerprint)
        memory = ACCELERATOR if is_on_accelerator(leak) else HOST
        state, since, seen, is_again = LoopState.GROWING, first_step, last_step, False
        if known is not None and known.stands:
            since, seen, state = known.since_step, known.seen_at, known.state
            is_again = first_step >= 2 * known.seen_at
        elif known is not None:
            since = max(known.since_step, first_step)
        if since == first_step:
            since = self._readings.began(leak.fingerprint, first_step)
        is_endless = leak.fingerprint in (endless or ()) and self._readings.is_exact(leak.fingerprint)
        is_proven = endless is not None and (last_step >= _SPAN * first_step or is_endless)
        if (is_again or is_proven) and leak.cause != _NATIVE and not self._readings.slows(leak.fingerprint):
            state = LoopState.LEAK
        if leak.unit == GRAPH_UNIT:  # an autograd graph has no limit
            state = LoopState.LEAK
        is_alarm = known is not None and known.stands and known.is_alarm
        if known is not None and known.leak is not None and not leak.sites:  # found before, and not looked for again
            leak = replace(leak, sites=known.leak.sites, advice=known.leak.advice)
        return GrowingPlace(leak.fingerprint, state, since, seen, leak.bytes_per_run, memory, leak, is_alarm)

    def _confirmed_native(self, memory: str, step: int, total_steps: int | None, free: Free) -> list[StateChange]:
        """Call native memory that grows a leak, where the level has risen all along until twice the steps.

        Two checks do not tell: native libraries fill caches of their own, which in a loop cannot be switched off.
        """
        changes: list[StateChange] = []
        for place in self.standing:
            is_native = place.leak is not None and place.leak.cause == _NATIVE and place.memory == memory
            if is_native and step >= 2 * place.seen_at:
                changes += self._put(replace(place, state=LoopState.LEAK), step, total_steps, free, None)
        return changes

    def _stopped(self, place: GrowingPlace, step: int) -> GrowingPlace:
        return replace(place, state=LoopState.STOPPED, since_step=step, bytes_per_step=0.0, is_alarm=False)

    def _put(
        self, place: GrowingPlace, step: int, total_steps: int | None, free: Free, limit: Leak | None
    ) -> Iterator[StateChange]:
        """Note *place*; yield the change if its state, or whether it matters, is another one than before."""
        known = self._places.get(place.fingerprint)
        result = consequence_of(place.bytes_per_step, step, total_steps, free.of(place.memory))
        if place.stands:
            place = replace(place, is_alarm=place.is_alarm or _is_alarming(place, result))
        self._places[place.fingerprint] = place
        self._forget_oldest()
        if known is None or known.state is not place.state or known.is_alarm < place.is_alarm:
            yield _change(place, step, result, total_steps, limit)

    def _forget_oldest(self) -> None:
        """Keep the table small: what stopped longest ago goes first."""
        if len(self._places) > _MOST_PLACES:
            stopped = sorted((p for p in self._places.values() if not p.stands), key=lambda p: p.since_step)
            for place in (stopped or list(self._places.values()))[:1]:
                del self._places[place.fingerprint]
                self._lengths.pop(place.fingerprint, None)
                self._readings.forget(place.fingerprint)
                self._pauses.pop(place.fingerprint, None)

    def _rate_in(self, memory: str) -> float:
        return max(self._rate_of_places(memory), self._rate_of_level(memory))

    def _rate_of_places(self, memory: str) -> float:
        places = (place for place in self.standing if place.memory == memory and place.leak is not None)
        return sum(max(place.bytes_per_step, 0.0) for place in places)

    def _explained_in(self, memory: str) -> float:
        """Return by how much the level of *memory* rises for places that are known."""
        places, native = self._native
        stand = places and places <= {place.fingerprint for place in self.standing}
        return max(self._rate_of_places(memory), native if memory == HOST and stand else 0.0)

    def _rate_of_level(self, memory: str) -> float:
        place = self._places.get(LEVEL + memory)
        return place.bytes_per_step if place is not None and place.stands else 0.0


def _decisive_step(place: GrowingPlace) -> int:
    """Return the step from which on growth that goes on as before is a leak."""
    return max(_SPAN * place.since_step, 2 * place.seen_at)


def _is_alarming(place: GrowingPlace, result: Consequence) -> bool:
    """Return whether somebody has to know of *place* now: what may stop by itself only if memory may end first."""
    return result.matters and (place.state is LoopState.LEAK or result.n_bytes >= _MUCH * result.free_bytes)


def _stands_still(series: Series, since_step: int, bytes_per_step: float) -> bool:
    """Return whether a level has not risen in the latter half of the steps since *since_step*, as it would have had to.

    False where the rise to be expected is too small to be told from what else comes and goes.
    """
    steps, levels = series
    if not len(steps):
        return False
    begin = int(np.searchsorted(steps, (since_step + steps[-1]) / 2))
    expected = bytes_per_step * (steps[-1] - steps[begin])
    return bool(expected >= _CLEAR_BYTES and levels[-1] - levels[begin] < _STILL * expected)


def per_step(leak: Leak, steps_per_run: int) -> Leak:
    """Return *leak* with its rates per step instead of per run, and advice for steps: a program is run once."""
    return replace(
        leak, bytes_per_run=leak.bytes_per_run / steps_per_run, count_per_run=leak.count_per_run / steps_per_run,
        advice=told_of_steps(leak.advice),
    )  # fmt: skip


def is_on_accelerator(leak: Leak) -> bool:
    """Return whether what grows are tensors of an accelerator: their device is the last word of the first kind."""
    kind, _, rest = leak.what.partition(" and ")[0].partition(" ")
    device = rest.rpartition(" ")[2].partition(":")[0]
    return kind.endswith(("Tensor", "Parameter")) and device.isalpha() and device not in ("cpu", "meta", "")


def _change(
    place: GrowingPlace, step: int, result: Consequence, total_steps: int | None, limit: Leak | None
) -> StateChange:
    return StateChange(
        step=step,
        state=place.state,
        words=_words(place, result, total_steps, limit),
        since_step=place.since_step,
        fingerprint=place.fingerprint,
        bytes_per_step=place.bytes_per_step,
        full_at_step=result.full_at_step if place.stands else None,
        is_alarm=place.is_alarm,
    )


def _words(place: GrowingPlace, result: Consequence, total_steps: int | None, limit: Leak | None) -> str:
    if place.state is LoopState.STOPPED:
        reason = f": {limit.reason}" if limit is not None else ""
        return f"{place.name} stopped growing by step {place.since_step:,}{reason}"
    since = f" since step {place.since_step:,}"
    if place.leak is None:
        amount = format_bytes(place.bytes_per_step)
        growth = f"{place.name} grows by {amount} every step{since}; the place is not known yet"
    else:
        line = f", {_line_words(place.leak)}" if place.leak.sites else ""
        growth = f"{growth_sentence(place.leak, 'step')}{since}{line}"
    consequence = result.words(total_steps) if place.bytes_per_step > 0 else ""
    return f"{growth}; {consequence}" if consequence else growth


def _line_words(leak: Leak) -> str:
    place, _, does = leak.sites[0].rpartition("  # ")
    return f"{place} {does}" if place else leak.sites[0]
