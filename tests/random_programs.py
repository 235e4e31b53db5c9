"""Random programs whose truth is known by construction: containers, owners and rhythms that people use.

A program is a function of one to three parts. A part works on something in an object ``owner``; a harmless part has
reached its limit after a known number of runs, a leaking one adds a known number of objects, entries, characters or
bytes per run to a known place.
"""

from __future__ import annotations

import array
import bisect
import collections
import heapq
import io
import itertools
import queue
import random
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch


class Owner:
    """What the parts of a program hang their data on; `__dict__` holds nothing else."""


class Entry:
    """One entry that a program makes."""

    def __init__(self, value: object = None) -> None:
        self.value = value


class Slotted:
    """An entry without a dict of its own."""

    __slots__ = ("__weakref__", "next", "value")

    def __init__(self, value: object = None, following: object = None) -> None:
        self.value, self.next = value, following


@dataclass
class Meter:
    """A running statistic as training code keeps it."""

    values: list[object] = field(default_factory=list)
    total: float = 0.0


@dataclass(frozen=True)
class Part:
    """One part of a program.

    Attributes:
        name: What it does.
        work: Does that once.
        place: Where it grows; a report names this, or something below.
        per_run: What is added there in each run, in objects, entries, characters or bytes; 0 for a harmless part.
        settled: After so many runs nothing grows any more; 0 for a leaking part.
    """

    name: str
    work: Callable[[], object]
    place: str
    per_run: float = 0.0
    settled: int = 0


@dataclass(frozen=True)
class Program:
    """A program: its parts, in the order in which a run does them, and the owner of what they keep."""

    owner: Owner
    parts: tuple[Part, ...]

    def cell(self) -> None:
        """Run once."""
        for part in self.parts:
            part.work()

    @property
    def leaking(self) -> tuple[Part, ...]:
        """The parts that grow without end."""
        return tuple(part for part in self.parts if part.per_run)

    @property
    def settled(self) -> int:
        """After so many runs no harmless part grows any more."""
        return max(part.settled for part in self.parts)


Maker = Callable[[random.Random, Owner, str], Part]


def _entry(draw: random.Random) -> Callable[[], object]:
    """Return a function that makes one entry of a kind drawn here; each is one object that the collector lists."""
    size = draw.choice([1, 10, 100])
    return draw.choice(
        [
            Entry,
            lambda: Slotted([0] * size),
            lambda: Entry("x" * 10 * size),
            lambda: Entry(np.zeros(8 * size)),
            lambda: [None] * size,
            lambda: {"step": [size]},
            lambda: torch.zeros(4 * size),
            lambda: torch.ones(4, requires_grad=True).exp().mean(),
        ]
    )


# Harmless parts.


def _top_of_a_heap(draw: random.Random, owner: Owner, name: str) -> Part:
    best: list[tuple[float, int, object]] = []
    limit, make, numbers = draw.randint(3, 40), _entry(draw), itertools.count()
    setattr(owner, name, best)

    def work() -> None:
        candidate = (draw.random(), next(numbers), make())
        if len(best) < limit:
            heapq.heappush(best, candidate)
        else:
            heapq.heapreplace(best, candidate)

    return Part(f"the best {limit} in a heap", work, name, settled=limit)


def _reservoir(draw: random.Random, owner: Owner, name: str) -> Part:
    sample: list[object] = []
    limit, make, seen = draw.randint(4, 50), _entry(draw), itertools.count(1)
    setattr(owner, name, sample)

    def work() -> None:
        number = next(seen)
        if len(sample) < limit:
            sample.append(make())
        elif (at := draw.randrange(number)) < limit:
            sample[at] = make()

    return Part(f"a reservoir of {limit}", work, name, settled=limit)


def _values_that_die(draw: random.Random, owner: Owner, name: str) -> Part:
    cache: weakref.WeakValueDictionary[int, object] = weakref.WeakValueDictionary()
    recent: collections.deque[object] = collections.deque(maxlen=draw.randint(1, 12))
    numbers = itertools.count()
    setattr(owner, name, cache)
    setattr(owner, f"{name}_recent", recent)

    def work() -> None:
        entry = Entry([0])
        cache[next(numbers)] = entry
        recent.append(entry)

    return Part("a weak cache of recent entries", work, name, settled=recent.maxlen or 0)


def _cached_function(draw: random.Random, owner: Owner, name: str) -> Part:
    limit, keys, make = draw.choice([8, 16, 32]), draw.randint(10, 60), _entry(draw)
    cached = lru_cache(maxsize=limit)(lambda key: (key, make()))
    setattr(owner, name, cached)
    return Part(f"lru_cache({limit}), {keys} keys", lambda: cached(draw.randrange(keys)), name, settled=limit * 3)


def _text_that_is_cut(draw: random.Random, owner: Owner, name: str) -> Part:
    text, limit = io.StringIO(), draw.randint(200, 2000)
    setattr(owner, name, text)

    def work() -> None:
        text.write("step done\n")
        if text.tell() > limit:
            text.seek(0)
            text.truncate()

    return Part(f"a text cut at {limit}", work, name, settled=limit // 10 + 1)


def _sorted_window(draw: random.Random, owner: Owner, name: str) -> Part:
    values: list[float] = []
    limit = draw.randint(5, 50)
    setattr(owner, name, values)

    def work() -> None:
        bisect.insort(values, draw.random())
        if len(values) > limit:
            values.pop(draw.randrange(len(values)))

    return Part(f"{limit} sorted numbers", work, name, settled=limit)


def _expiring(draw: random.Random, owner: Owner, name: str) -> Part:
    table: dict[int, tuple[int, object]] = {}
    life, each, make, now = draw.randint(2, 25), draw.randint(1, 4), _entry(draw), itertools.count()
    setattr(owner, name, table)

    def work() -> None:
        tick = next(now)
        for part in range(each):
            table[tick * each + part] = (tick + life, make())
        for key in [key for key, (end, _) in table.items() if end <= tick]:
            del table[key]

    return Part(f"entries that expire after {life} runs", work, name, settled=life)


def _groups_emptied(draw: random.Random, owner: Owner, name: str) -> Part:
    groups: collections.defaultdict[str, list[object]] = collections.defaultdict(list)
    period, make, now = draw.randint(2, 10), _entry(draw), itertools.count(1)
    setattr(owner, name, groups)

    def work() -> None:
        for key in ("loss", "accuracy", "grad"):
            groups[key].append(make())
        if next(now) % period == 0:
            for values in groups.values():
                values.clear()

    return Part(f"groups emptied every {period} runs", work, name, settled=period)


def _averaged(draw: random.Random, owner: Owner, name: str) -> Part:
    meter, limit = Meter(), draw.randint(3, 20)
    setattr(owner, name, meter)

    def work() -> None:
        meter.values.append(draw.random())
        meter.total += 1.5
        meter.values = meter.values[-limit:]

    return Part(f"the last {limit} values of a meter", work, name, settled=limit)


def _worker_queue(draw: random.Random, owner: Owner, name: str) -> Part:
    tasks: queue.Queue[object] = queue.Queue()
    each, make = draw.randint(1, 6), _entry(draw)
    setattr(owner, name, tasks)

    def work() -> None:
        for _ in range(each):
            tasks.put(make())
        while not tasks.empty():
            tasks.get()

    return Part("a queue that is emptied", work, name)


def _tree_rebuilt(draw: random.Random, owner: Owner, name: str) -> Part:
    depth, make = draw.randint(2, 5), _entry(draw)

    def grow(level: int) -> object:
        return {"left": grow(level - 1), "right": grow(level - 1)} if level else make()

    return Part("a tree that is rebuilt", lambda: setattr(owner, name, grow(depth)), name)


def _array_ring(draw: random.Random, owner: Owner, name: str) -> Part:
    ring, now = np.zeros((draw.randint(4, 60), 16)), itertools.count()
    setattr(owner, name, ring)

    def work() -> None:
        ring[next(now) % len(ring)] = draw.random()

    return Part("a ring of an array", work, name)


def _buffer_swapped(draw: random.Random, owner: Owner, name: str) -> Part:
    limit, make = draw.randint(3, 30), _entry(draw)
    setattr(owner, name, [])

    def work() -> None:
        values = getattr(owner, name)
        values.append(make())
        if len(values) >= limit:
            setattr(owner, name, [])

    return Part(f"a list replaced at {limit}", work, name, settled=limit)


# Leaking parts.


def _heap_without_end(draw: random.Random, owner: Owner, name: str) -> Part:
    waiting: list[tuple[float, int, object]] = []
    add, make, numbers = draw.randint(2, 5), _entry(draw), itertools.count()
    setattr(owner, name, waiting)

    def work() -> None:
        for _ in range(add):
            heapq.heappush(waiting, (draw.random(), next(numbers), make()))
        heapq.heappop(waiting)

    return Part(f"a heap +{add}-1", work, name, add - 1)


def _chain(draw: random.Random, owner: Owner, name: str) -> Part:
    setattr(owner, name, None)

    def work() -> None:
        setattr(owner, name, Slotted([0], getattr(owner, name)))

    return Part("a chain that gets a link", work, name, 1)


def _text(draw: random.Random, owner: Owner, name: str) -> Part:
    text, line = io.StringIO(), "x" * draw.randint(300, 3000) + "\n"
    setattr(owner, name, text)
    return Part("a text that is never cut", lambda: text.write(line), name, len(line))


def _numbers(draw: random.Random, owner: Owner, name: str) -> Part:
    values, each = array.array("d"), draw.randint(64, 512)
    setattr(owner, name, values)
    return Part(f"an array of numbers +{each}", lambda: values.extend([0.5] * each), name, each)


def _set_of_seen(draw: random.Random, owner: Owner, name: str) -> Part:
    seen: set[tuple[int, str]] = set()
    each, numbers = draw.randint(20, 60), itertools.count()
    setattr(owner, name, seen)

    def work() -> None:
        for _ in range(each):
            seen.add((next(numbers), "sample"))

    return Part(f"{each} new keys of a set", work, name, each)


def _round_robin(draw: random.Random, owner: Owner, name: str) -> Part:
    groups: dict[str, list[object]] = {f"rank{rank}": [] for rank in range(draw.randint(2, 7))}
    make, now = _entry(draw), itertools.count()
    setattr(owner, name, groups)

    def work() -> None:
        groups[f"rank{next(now) % len(groups)}"].append(make())

    return Part(f"{len(groups)} lists in turn", work, name, 1)


def _nested(draw: random.Random, owner: Owner, name: str) -> Part:
    runs: dict[str, dict[str, list[object]]] = {"train": {"loss": [], "lr": []}, "eval": {"loss": []}}
    make, period, now = _entry(draw), draw.randint(1, 4), itertools.count(1)
    setattr(owner, name, runs)

    def work() -> None:
        if next(now) % period == 0:
            runs["train"]["loss"].append(make())

    return Part(f"a nested list, every {period} runs", work, name, 1 / period)


def _closures(draw: random.Random, owner: Owner, name: str) -> Part:
    callbacks: list[Callable[[], object]] = []
    make = _entry(draw)
    setattr(owner, name, callbacks)

    def work() -> None:
        entry = make()
        callbacks.append(lambda: entry)

    return Part("a callback per run", work, name, 1)


def _joined_tuple(draw: random.Random, owner: Owner, name: str) -> Part:
    make = _entry(draw)
    setattr(owner, name, ())
    return Part("a tuple that is joined", lambda: setattr(owner, name, (*getattr(owner, name), make())), name, 1)


def _life_too_long(draw: random.Random, owner: Owner, name: str) -> Part:
    table: collections.OrderedDict[int, object] = collections.OrderedDict()
    add, take, make, numbers = draw.randint(3, 6), draw.randint(1, 2), _entry(draw), itertools.count()
    setattr(owner, name, table)

    def work() -> None:
        for _ in range(add):
            table[next(numbers)] = make()
        for _ in range(take):
            table.pop(draw.choice(list(table)))

    return Part(f"a table +{add}-{take}", work, name, add - take)


def _meter_values(draw: random.Random, owner: Owner, name: str) -> Part:
    meter, make = Meter(), _entry(draw)
    setattr(owner, name, meter)
    return Part("the values of a meter", lambda: meter.values.append(make()), name, 1)


def _bag_in_queue(draw: random.Random, owner: Owner, name: str) -> Part:
    tasks: queue.Queue[object] = queue.Queue()
    make = _entry(draw)
    setattr(owner, name, tasks)

    def work() -> None:
        for _ in range(3):
            tasks.put(make())
        tasks.get()

    return Part("a queue +3-1", work, name, 2)


def _attributes(draw: random.Random, owner: Owner, name: str) -> Part:
    holder, make, numbers = Owner(), _entry(draw), itertools.count()
    setattr(owner, name, holder)
    return Part("an attribute per run", lambda: setattr(holder, f"step{next(numbers)}", make()), name, 1)


def _columns(draw: random.Random, owner: Owner, name: str) -> Part:
    table: collections.defaultdict[str, list[float]] = collections.defaultdict(list)
    each = draw.randint(8, 64)
    setattr(owner, name, table)
    return Part(f"{each} numbers per run", lambda: table["loss"].extend(draw.random() for _ in range(each)), name, each)


HARMLESS: tuple[Maker, ...] = (
    _top_of_a_heap, _reservoir, _values_that_die, _cached_function, _text_that_is_cut, _sorted_window, _expiring,
    _groups_emptied, _averaged, _worker_queue, _tree_rebuilt, _array_ring, _buffer_swapped,
)  # fmt: skip
LEAKING: tuple[Maker, ...] = (
    _heap_without_end, _chain, _text, _numbers, _set_of_seen, _round_robin, _nested, _closures, _joined_tuple,
    _life_too_long, _meter_values, _bag_in_queue, _attributes, _columns,
)  # fmt: skip
_NAMES = ("losses", "cache", "buffer", "records", "pending", "history", "seen", "outputs")


def program(seed: int, n_leaking: int) -> Program:
    """Return the program of *seed*: so many leaking parts, and one to three parts in all."""
    draw, owner = random.Random(f"{n_leaking} {seed}"), Owner()
    makers = [draw.choice(LEAKING) for _ in range(n_leaking)]
    makers += [draw.choice(HARMLESS) for _ in range(draw.randint(int(not n_leaking), 2))]
    draw.shuffle(makers)
    names = draw.sample(_NAMES, len(makers))
    return Program(owner, tuple(make(draw, owner, name) for make, name in zip(makers, names, strict=True)))
