"""Attribute the file descriptors and child processes that every run leaves to the objects that keep them.

One truth is one leak. What an object keeps that leaks anyway is part of that leak; only the rest is a leak of its own.

An object keeps one if it knows its number. Files and sockets are asked by the C code of their base. Whoever opens a
descriptor or starts a process himself keeps its number in an attribute that is named after it. Of C code of an
extension (a database, a mapped file), and of shared memory of torch, no number is known: of these it is told only that
they may keep some.
"""

from __future__ import annotations

import io
import re
import select
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from leaklab.check.findings import Finding, Survey
from leaklab.check.judging import Grown
from leaklab.check.ranking import NUMBERS_KEPT, USER_SIDE
from leaklab.decide.growth import NATIVE_FLOOR_BYTES, Growth
from leaklab.decide.per_run_level import judge_per_run_bytes
from leaklab.decide.survivors import judge_survivors
from leaklab.explain.counterparts import STARTERS
from leaklab.explain.cycles.cycles import UNSEEN_ROOT
from leaklab.explain.idioms import find_cause
from leaklab.explain.leaks.evidence import Evidence
from leaklab.explain.leaks.groups import LeakAddress
from leaklab.explain.leaks.sizes import has_opaque, newest_entries
from leaklab.heap.paths import fingerprint
from leaklab.lines.arrival import ArrivalLines
from leaklab.measure.measurement import Measurement
from leaklab.measure.process_counts import CHILDREN, DESCRIPTORS, SHARED_MEMORY, Counted, descriptor_limit
from leaklab.model import Leak, Outcome, RootPath
from leaklab.runtime.containers import entries_in
from leaklab.runtime.objects import (
    HEAP_TYPE,
    flags_of,
    has_base,
    inline_attributes,
    is_exactly,
    is_tensor_type,
    loaded_type,
    no_torch_functions,
    type_name,
)
from leaklab.runtime.referents import get_referents, is_own_dict
from leaklab.text import format_bytes, unit_words

_UNTRACKED = tuple(vars(select)[name] for name in ("epoll", "kqueue") if name in vars(select))
"""No collector lists these: they are asked for in the attributes of what does."""
_FILENO: dict[type, Callable[[Any], int]] = {
    base: vars(base)["fileno"] for base in (io.FileIO, socket.socket.__mro__[1], *_UNTRACKED)
}
_NAMES = {
    DESCRIPTORS.unit: re.compile(r"(^|_)(fd|fds|handle|fileno|sentinel)$"),
    CHILDREN.unit: re.compile(r"(^|_)pid$"),
}
_FEWEST = 4
"""Fewer numbers that agree may do so by chance."""
_SHARE = 0.9


def numbers_kept(things: Sequence[object], counted: Counted, wanted: Collection[int]) -> set[int]:
    """Return those of the numbers *wanted* that *things* keep."""
    return {number for thing in things for number in _numbers_of(thing, counted) if number in wanted}


def _numbers_of(thing: object, counted: Counted) -> Iterator[int]:
    kind = type(thing)
    if counted is DESCRIPTORS:
        ask = next((ask for base, ask in _FILENO.items() if has_base(kind, base)), None)
        if ask is not None:
            yield from _asked(ask, thing)
            return
    names = _NAMES[counted.unit]
    for name, value in _named(thing, kind):
        if type(value) is int and type(name) is str and names.search(name):
            yield value
        elif counted is DESCRIPTORS and is_exactly(value, _UNTRACKED):
            yield from _asked(_FILENO[type(value)], value)


def _named(thing: Any, kind: type) -> Iterable[tuple[Any, Any]]:
    if kind is dict:
        return entries_in(thing)
    if not flags_of(kind) & HEAP_TYPE:
        return ()
    own = next((child for child in get_referents(thing) if is_own_dict(thing, child)), None)
    return inline_attributes(thing) if own is None else entries_in(own)


def _asked(ask: Callable[[Any], int], thing: object) -> Iterator[int]:
    try:
        yield ask(thing)
    except (ValueError, OSError):  # closed, or never opened
        return


def are_entries(thing: object, numbers: Sequence[int]) -> bool:
    """Return whether *numbers*, the newest last, are the newest entries of a container, or the values of a dict.

    One after the other: a list of the numbers of steps has nearly the same entries as one of descriptors.
    """
    newest = newest_entries(thing, len(numbers))
    entries = newest[1::2] if has_base(type(thing), dict) else newest
    pairs = list(zip(entries, reversed(numbers), strict=False))
    n_same = sum(type(entry) is int and entry == number for entry, number in pairs)
    return len(pairs) >= _FEWEST and n_same >= _SHARE * len(pairs)


def shares_memory(thing: object) -> bool:
    """Return whether *thing* is a tensor of the host whose memory other processes can see."""
    if not is_tensor_type(type(thing)):
        return False
    base: Any = loaded_type("torch", "Tensor")
    with no_torch_functions():
        try:
            return not base.is_cuda.__get__(thing) and bool(base.is_shared(thing))
        except (RuntimeError, NotImplementedError):  # a tensor without a storage of its own
            return False


_OPEN = (Outcome.LEAK, Outcome.INCONCLUSIVE)
_PACE_DOUBT = 0.1
_OF_CHILDREN = ("pipe", "socket")
"""What a process that starts another talks to it by."""
_N_SHOWN = 3
_SLUGS = {DESCRIPTORS.unit: "open-descriptors", CHILDREN.unit: "child-processes"}
_HINTS = {
    DESCRIPTORS.unit: "Each keeps a file descriptor open: close it when it has been used.",
    CHILDREN.unit: "Each keeps a child process: end it and wait for it when it has done its work.",
}
_ENDING = {DESCRIPTORS.unit: "call `os.close(fd)` for", CHILDREN.unit: "end, and wait by `os.waitpid(pid, 0)` for,"}
NO_HOLDER = "nothing that Python can see"


def attribute_counts(survey: Survey, findings: Sequence[Finding]) -> list[Finding]:
    """Return *findings*, with the file descriptors and child processes that they keep, and the rest of these.

    What a library keeps in a small table of its own is a leak if it keeps those.
    """
    counts = survey.judgement.counts
    if not counts:
        return list(findings)
    keepers = [finding for finding in findings if finding.is_leak or finding.aside]
    attribution = _Attribution(survey, keepers)
    own = [Finding(leak, growth) for count in counts for leak, growth in attribution.of(count)]
    changed = {id(one): leak for one, leak in zip(keepers, attribution.leaks, strict=True) if leak is not one.leak}
    found = [
        finding
        if (leak := changed.get(id(finding))) is None
        else replace(finding, leak=leak, growth=Growth(Outcome.LEAK, leak.count_per_run, leak.reason), aside="")
        for finding in findings
    ]
    return [*found, *own]


class _Attribution:
    """Attributes what the kernel counts to those who keep it.

    Args:
        survey: The heap, and what was counted.
        keepers: The places that leak, and those of libraries that were left out for being small.
    """

    def __init__(self, survey: Survey, keepers: Sequence[Finding]) -> None:
        self._view, self._measurement, self._keepers = survey.view, survey.measurement, keepers
        self.leaks = [keeper.leak for keeper in keepers]
        self._has_children = False

    def of(self, count: Grown[Counted]) -> Iterator[tuple[Leak, Growth]]:
        """Attribute *count* to the keepers where they keep it; yield what remains."""
        if count.growth.outcome not in _OPEN:
            return
        since = self._measurement.counts.numbers_since_start(count.what, self._measurement.n_runs)
        rest = self._to_keepers(count, since)
        by_kind: dict[str, dict[int, int]] = defaultdict(dict)
        for number, run in rest.items():
            by_kind[count.what.kind_of(number)[0]][number] = run
        growths = {kind: judge_survivors(self._series(numbers)) for kind, numbers in by_kind.items()}
        if len(rest) == len(since) and not any(growth.outcome is Outcome.LEAK for growth in growths.values()):
            by_kind, growths = {"": rest}, {"": count.growth}  # of all together it is known, of no kind by itself
        for kind, growth in growths.items():
            if growth.outcome in _OPEN and not self._is_of_unseen(count, kind, growth):
                self._has_children |= count.what is CHILDREN
                kept = self._series(by_kind[kind]) if kind else count.series
                yield self._own(count.what, kind, by_kind[kind], growth, kept), growth

    def _to_keepers(self, count: Grown[Counted], since: Mapping[int, int]) -> dict[int, int]:
        """Attribute the numbers *since* the start to those who keep them; return the others.

        A library's table is one of these only where no leak of the user's own keeps the like: in the table of
        multiprocessing there are the processes of the user's pool.
        """
        rest, speaker = dict(since), self._worker_keeper(count)
        for place in sorted(range(len(self._keepers)), key=lambda place: bool(self._keepers[place].aside)):
            if not (kept := self._kept_by(place, count.what, rest)):
                continue
            rate = count.growth.rate * self._n_settled(kept, since) / max(self._n_settled(since, since), 1)
            rest = {number: run for number, run in rest.items() if number not in kept}
            if speaker is None or self._is_users(place):
                self._to_keeper(place, count, sorted(kept), rate)
                speaker = place if speaker is None else speaker
            elif count.what is CHILDREN or not self._keepers[place].aside:
                of_children = count.what is CHILDREN
                self._to_keeper(speaker if of_children else place, count, sorted(kept), rate)
        return rest

    def _is_users(self, place: int) -> bool:
        return self._keepers[place].leak.path.root in USER_SIDE

    def _n_settled(self, numbers: Iterable[int], since: Mapping[int, int]) -> int:
        """Return how many of *numbers* earlier runs than the newest left: the objects of that one are in use."""
        return sum(since[number] < self._measurement.n_runs for number in numbers)

    def _series(self, numbers: Mapping[int, int]) -> tuple[int, ...]:
        arrived = Counter(numbers.values())
        return tuple(arrived[run] for run in range(1, self._measurement.n_runs + 1))

    def _kept_by(self, place: int, counted: Counted, since: Mapping[int, int]) -> set[int]:
        keeper = self._keepers[place]
        if keeper.members:
            return numbers_kept([self._view.objects[member] for member in keeper.members], counted, since)
        grown = None if keeper.address is None or not keeper.address.grows else self._grown(keeper.address)
        return set(since) if grown is not None and are_entries(grown, list(since)) else set()

    def _worker_keeper(self, count: Grown[Counted]) -> int | None:
        """Return the largest leak of pools and workers, at whose pace children are left; None without one."""
        if count.what is not CHILDREN:
            return None
        places = [
            place
            for place, keeper in enumerate(self._keepers)
            if not keeper.aside
            and _is_multiple(count.growth.rate, keeper.leak.count_per_run)
            and any(type_name(type(thing)).startswith(STARTERS) for thing in keeper.newest(self._view))
        ]
        return max(
            places, key=lambda place: (self._is_users(place), self._keepers[place].leak.bytes_per_run), default=None
        )

    def _grown(self, address: LeakAddress) -> object:
        """Return what grows at *address*: a container of numbers may be none of the collector's."""
        *above, last = address.chain or (0,)
        vertex = self._view.index.vertex_of(last)
        if vertex >= 0:
            return self._view.objects[vertex]
        owner = self._view.index.vertex_of(above[-1]) if above else -1
        referents = get_referents(self._view.objects[owner]) if owner >= 0 else []
        return next((thing for thing in referents if id(thing) == last), None)

    def _to_keeper(self, place: int, count: Grown[Counted], numbers: Sequence[int], rate: float) -> None:
        leak, counted, keeper = self.leaks[place], count.what, self._keepers[place]
        self._has_children |= counted is CHILDREN
        if _SLUGS[counted.unit] in leak.also_causes:
            return
        each = f"each run leaves {unit_words(rate, counted.unit)} with it"
        shown = f" ({self._words(counted, numbers)})" if numbers else ""
        self.leaks[place] = replace(
            self._as_counted(keeper, leak, counted, numbers),
            reason=f"{leak.reason}; {each}{shown}{self._limit_words(counted, rate)}",
            also_causes=(*leak.also_causes, _SLUGS[counted.unit]),
        )

    def _as_counted(self, keeper: Finding, leak: Leak, counted: Counted, numbers: Sequence[int]) -> Leak:
        """Return *leak* with advice on what it keeps; where that is all that matters of it, as a leak of that."""
        is_known = not NUMBERS_KEPT.isdisjoint(leak.also_causes)
        if keeper.members and not keeper.aside:
            hint = "" if leak.cause == "thread-or-worker-kept" else _HINTS[counted.unit]
            return replace(leak, advice="\n".join(filter(None, (leak.advice, hint))))
        if is_known:
            return leak
        kinds = frozenset(counted.kind_of(number)[0] for number in numbers[-1:])
        cause = find_cause(self._evidence(counted, kinds, leak.what, leak.holder))
        advice = cause.advice
        if not keeper.members:
            advice = (
                f"`{leak.holder}` has only the numbers: {_ENDING[counted.unit]} each of them when it has been used."
            )
        return replace(leak, unit=counted.unit, cause=cause.slug, advice=advice, bytes_per_run=0.0)

    def _is_of_unseen(self, count: Grown[Counted], kind: str, growth: Growth) -> bool:
        """Attribute descriptors of *kind* to what leaks anyway, if it may keep such unseen; return whether it may."""
        if count.what is CHILDREN:
            return False
        if kind in _OF_CHILDREN and self._has_children:
            return True
        for place, keeper in enumerate(self._keepers):
            things = keeper.newest(self._view)
            may_keep = any(map(shares_memory, things)) if kind == SHARED_MEMORY else has_opaque(things)
            if may_keep and not keeper.aside and _is_multiple(growth.rate, keeper.leak.count_per_run):
                self._to_keeper(place, count, (), growth.rate)
                return True
        return False

    def _own(
        self, counted: Counted, kind: str, numbers: Mapping[int, int], growth: Growth, kept: tuple[int, ...]
    ) -> Leak:
        evidence = self._evidence(counted, frozenset([kind] if kind else ()), self._what(counted, kind, numbers))
        cause = find_cause(evidence)
        shown = self._words(counted, sorted(numbers))
        return Leak(
            what=evidence.what,
            path=evidence.path,
            holder=NO_HOLDER,
            cause=cause.slug,
            advice=cause.advice,
            bytes_per_run=0.0,
            count_per_run=growth.rate,
            unit=counted.unit,
            kept=kept,
            fingerprint=fingerprint_of(counted, kind),
            reason=f"{growth.reason}: {shown}{self._limit_words(counted, growth.rate)}",
        )

    @staticmethod
    def _evidence(counted: Counted, kinds: frozenset[str], what: str, holder: str = "") -> Evidence:
        return Evidence(
            RootPath(UNSEEN_ROOT, ()), holder, "", None, frozenset(), kinds, what, counted.unit,
            has_tensors=False, has_graph=False,
        )  # fmt: skip

    def _what(self, counted: Counted, kind: str, numbers: Mapping[int, int]) -> str:
        """Return what grows, in words: ``file descriptors: pipe``, ``child processes: running, sleep``."""
        more = {counted.kind_of(number)[1] for number in numbers} if self._view.summaries else set()
        words = ", ".join(filter(None, (kind, more.pop() if len(more) == 1 else "")))
        return f"{counted.unit}: {words}" if words else counted.unit

    def _words(self, counted: Counted, numbers: Sequence[int]) -> str:
        """Return the newest numbers in words: ``PID 40 and 41, running``, ``numbers 7, 8 and 9``."""
        shown = ", ".join(map(str, numbers[-_N_SHOWN:]))
        more = f" and {len(numbers) - _N_SHOWN:,} more" if len(numbers) > _N_SHOWN else ""
        if counted is DESCRIPTORS:
            return f"number {shown}{more}"
        states = Counter(counted.kind_of(number)[0] for number in numbers)
        return f"PID {shown}{more}; {', '.join(f'{n:,} {state}' for state, n in states.items())}"

    def _limit_words(self, counted: Counted, rate: float) -> str:
        limit = descriptor_limit() if counted is DESCRIPTORS else None
        if limit is None or rate <= 0:
            return ""
        left = limit - len(self._measurement.counts.numbers(counted))
        return (
            f"; this process may open {limit:,} (RLIMIT_NOFILE): `OSError: Too many open files` comes after about "
            f"{unit_words(max(int(left / rate), 0), 'more runs')}"
        )


def _is_multiple(rate: float, base: float) -> bool:
    """Return whether *rate* is once *base*, or a few times."""
    times = rate / base if base > 0 else 0.0
    return round(times) > 0 and abs(times - round(times)) <= _PACE_DOUBT * times


def fingerprint_of(counted: Counted, kind: str) -> str:
    """Return the fingerprint of a leak of what the kernel counts."""
    return fingerprint([counted.unit, kind])


def children_note(measurement: Measurement) -> str:
    """Say by how much the children of the check grow, into which no check looks; empty where they do not."""
    levels = measurement.counts.child_bytes(measurement.n_runs)
    growth = judge_per_run_bytes(levels, floor_per_run=NATIVE_FLOOR_BYTES)
    if growth.outcome is not Outcome.LEAK:
        return ""
    n_children = len(measurement.counts.numbers(CHILDREN))
    return (
        f"{unit_words(n_children, CHILDREN.unit)} grew by {format_bytes(growth.rate)} per run in total. The other "
        "figures do not include this, because a check sees its own process only; use leaklab.watch_calls in each of "
        "them"
    )


def arrival_lines(leaks: Sequence[Leak]) -> list[ArrivalLines]:
    """Return what names the lines of those of *leaks* that no object keeps."""
    found = []
    for counted in (CHILDREN, DESCRIPTORS):
        own = [leak for leak in leaks if leak.unit == counted.unit and not leak.path.steps]
        kinds = {leak.what.partition(": ")[2].partition(",")[0]: leak.fingerprint for leak in own}
        found += [ArrivalLines(counted, kinds)] if kinds else []
    return found
