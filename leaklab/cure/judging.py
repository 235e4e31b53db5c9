"""Judge a trial by its figures: what grew without the change, and what grows with it.

Read between the runs is how much is alive: all objects, all memory, every container by its length.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from leaklab.measure.cheap_counts import count_descriptors, native_heap_bytes, python_blocks
from leaklab.measure.checkpoint import Lengths, container_lengths, take_checkpoint
from leaklab.measure.gauges import accelerator_bytes
from leaklab.measure.process_counts import Children
from leaklab.model.check import CHILDREN, DESCRIPTORS
from leaklab.model.cure import CureOutcome
from leaklab.runtime.addresses import KindTable, addresses_of, kinds_of
from leaklab.runtime.containers import items_in, newest_items, newest_pairs
from leaklab.runtime.gc_control import collect_quietly
from leaklab.runtime.objects import has_base, is_exactly, safe_len
from leaklab.text import format_bytes, format_rate, unit_words

Heap = Callable[[], AbstractContextManager[list[object]]]
"""Lends every object of the heap."""
N_LOOKS = 3
_COLUMNS = ("objects", "native", "accelerator", "blocks", "descriptors", "children", "nodes", "registered", "threads")
_N_CHEAP = 6
"""So many of them are read at every look, the others before and behind only."""
_N_LENGTHS = 3
"""So often containers are measured: before, between the halves, and behind them."""
_ROOM = 1.5
"""For so many times the containers that there are when the runs begin, room is made."""


@dataclass(frozen=True, slots=True)
class LevelGain:
    """What some runs added, in their first and in their second half.

    Attributes:
        n_runs: So many runs are in both halves together, as many in each.
        objects: Objects that the collector follows.
        native: Bytes that malloc has handed out.
        accelerator: Bytes on accelerators.
        blocks: Blocks of Python's own allocator, which objects are in that no collector follows.
        descriptors: Open file descriptors.
        children: Child processes.
        nodes: Autograd nodes, those of both halves together in the second.
        registered: Entries of registries that Python does not show, the same way.
        threads: Threads, the same way.
        containers: Entries that containers got, in one run more, by the address of the container; of those that got
            some in either half.
        registries: The addresses of those whose newest entries are functions: no log, but what is called ever more.
        n_callbacks: How many entries the longest of these has, behind the runs.
    """

    n_runs: int
    objects: tuple[float, float]
    native: tuple[float, float]
    accelerator: tuple[float, float]
    blocks: tuple[float, float]
    descriptors: tuple[float, float]
    children: tuple[float, float]
    nodes: tuple[float, float]
    registered: tuple[float, float]
    threads: tuple[float, float]
    containers: dict[int, int]
    registries: frozenset[int] = frozenset()
    n_callbacks: int = 0

    def per_run(self, name: str) -> float:
        """Return what each run added of *name*, below 0 where that went down."""
        gains: tuple[float, float] = getattr(self, name)
        return sum(gains) / self.n_runs

    def steady(self, name: str) -> float:
        """Return what each run added of *name* in the half that added less, if something was added in both."""
        halves: tuple[float, float] = getattr(self, name)
        return 2 * min(halves) / self.n_runs if min(halves) > 0 else self.per_run(name)

    def without(self, control: LevelGain, reference: LevelGain) -> LevelGain:
        """Return this gain without what *control* has added more than *reference* in the same half.

        Both are of the unchanged program: the difference is what the trial itself keeps alive.
        """
        halves = {
            name: tuple(
                mine - max(its - usual, 0.0)
                for mine, its, usual in zip(*(getattr(one, name) for one in (self, control, reference)), strict=True)
            )
            for name in _COLUMNS
        }
        return LevelGain(
            self.n_runs, containers=self.containers, registries=self.registries, n_callbacks=self.n_callbacks, **halves
        )


class LevelReader:
    """Reads three times: before the runs, between their halves, and behind them; one more run comes before the first.

    All records are numbers in arrays that are made before the first look: as objects, they would be counted.

    Args:
        heap: Lends the heap.
        collects: Whether garbage is collected before each look.
    """

    def __init__(self, heap: Heap, *, collects: bool) -> None:
        self._heap, self._collects = heap, collects
        self._rows = np.zeros((N_LOOKS, len(_COLUMNS)))
        room = int(_ROOM * len(gc.get_objects()))
        self._lengths = np.empty((_N_LENGTHS, 2, room), np.int64)
        self._settled = np.zeros((N_LOOKS - 1, 2))
        self._n_containers = np.zeros(_N_LENGTHS, np.int64)
        self._n_looks = 0
        self._children = Children()

    def begin(self) -> None:
        """Read what costs more: once now, and once at the last look.

        To look at a graph or a tensor makes Python objects for it. A run comes between this and the first look: what
        it lets go of would otherwise seem to be given back by the first half.
        """
        self._collect()
        self._look_at_all(0)

    def note_first_run(self) -> None:
        """Read memory behind the first run of a half: it takes what malloc has lost to the look before it."""
        if self._collects:
            gc.collect(1)
        self._settled[self._n_looks - 1] = native_heap_bytes() or 0, accelerator_bytes() or 0

    def look(self) -> None:
        """Read the levels."""
        self._collect()
        # Right behind a full collection the lists of free objects are empty, whose blocks count as handed out.
        row = self._rows[self._n_looks]
        row[1:4] = native_heap_bytes() or 0, accelerator_bytes() or 0, python_blocks()
        row[4:_N_CHEAP] = count_descriptors(), len(self._children.numbers())
        with self._heap() as objects:
            row[0] = len(objects)
            if self._n_looks == 1:
                addresses = addresses_of(objects)
                self._keep(container_lengths(objects, addresses, KindTable(kinds_of(objects))), 1)
        self._n_looks += 1
        if self._n_looks == N_LOOKS:
            self._look_at_all(1)

    def _collect(self) -> None:
        if self._collects:
            collect_quietly()

    def _look_at_all(self, place: int) -> None:
        with self._heap() as objects:
            checkpoint, _addresses, _kinds = take_checkpoint(0, objects, with_slots=False)
        registered = np.maximum(checkpoint.n_registered, 0).sum()
        self._rows[2 * place : 2 * place + 2, _N_CHEAP:] = checkpoint.graph_nodes, registered, checkpoint.n_threads
        self._keep(checkpoint.lengths, 2 * place)

    def _keep(self, lengths: Lengths, place: int) -> None:
        n = min(len(lengths.addresses), self._lengths.shape[-1])
        self._lengths[place, 0, :n] = lengths.addresses[:n]
        self._lengths[place, 1, :n] = lengths.lengths[:n]
        self._n_containers[place] = n

    def gain(self, n_runs: int) -> LevelGain:
        """Return what *n_runs* runs added, half of them before the second of the three looks."""
        self._rows[-1, _N_CHEAP:] -= (self._rows[-1, _N_CHEAP:] - self._rows[0, _N_CHEAP:]) / (n_runs + 1)
        halves = [(after - before).tolist() for before, after in pairwise(self._rows)]
        values = {name: (first, second) for name, first, second in zip(_COLUMNS, *halves, strict=True)}
        in_half = n_runs / 2
        memory = (self._rows[1:, 1:3] - self._settled) * in_half / (in_half - 1)
        values["native"], values["accelerator"] = map(tuple, memory.T.tolist())
        grown = self._grown()
        with self._heap() as objects:
            found = [thing for thing in objects if id(thing) in grown and _holds_functions(thing)]
            registries, n_callbacks = frozenset(map(id, found)), max([safe_len(one) or 0 for one in found], default=0)
        del found
        return LevelGain(n_runs, containers=grown, registries=registries, n_callbacks=n_callbacks, **values)

    def _grown(self) -> dict[int, int]:
        """Return the containers that are longer at each of the three looks than at the one before.

        Where one is freed, another soon has its address: what seems to be longer once may be another one.
        """
        found = [self._lengths[look, :, :n] for look, n in enumerate(self._n_containers.tolist())]
        common = reduce(np.intersect1d, [addresses for addresses, _ in found])
        lengths = []
        for addresses, of_each in found:
            order = np.argsort(addresses)
            lengths.append(of_each[order[np.searchsorted(addresses, common, sorter=order)]])
        longer = np.flatnonzero((lengths[1] > lengths[0]) & (lengths[2] > lengths[1]))
        gained = lengths[2] - lengths[0]
        return dict(zip(common[longer].tolist(), gained[longer].tolist(), strict=True))


def _holds_functions(container: Any) -> bool:
    """Return whether the newest entries of *container* are functions, alone or in a tuple with others."""
    if has_base(type(container), dict):
        newest = [value for _key, value in newest_pairs(container, _N_NEWEST)]
    else:
        newest = newest_items(container, _N_NEWEST)
    entries = [part for one in newest for part in (items_in(one) if type(one) is tuple else (one,))]
    return any(is_exactly(one, _FUNCTIONS) for one in entries)


_FUNCTIONS: tuple[Any, ...] = (FunctionType, MethodType, BuiltinFunctionType, partial)
_N_NEWEST = 2
_TENTH = 0.1
"""So much of what grew before may remain, of what a trial measures with noise."""
_QUARTER = 0.25
"""So much of a growth that is smaller than the floor below."""
_FLOORS = {
    "objects": 0.5, "native": 512.0, "accelerator": 512.0, "nodes": 0.5, "registered": 0.5, "threads": 0.5,
    "descriptors": 0.5, "children": 0.5,
}  # fmt: skip
"""What a run may add of each without being called growth; of what grew before, a tenth or so much may remain."""
_READ_TWICE = frozenset({"nodes", "registered", "threads"})
_COUNTED = {"descriptors": DESCRIPTORS, "children": CHILDREN}
_LOG_ENTRIES = 16.0
"""So many numbers with their places in a list take the 512 bytes below which `leaklab.check.ranking` calls it a log."""
_BLOCKS_NOISE = 10.0
"""By so much per run the number of Python's blocks rises where nothing is left behind (2 to 9 measured)."""
_KEPT_BACK = 4096.0
"""So many bytes per run malloc may keep back in the first runs of a changed program, of chunks that are freed."""
_WORTH_A_WORD = 0.1
"""So many entries per run are told of what stays with a change: of what hundreds of callbacks write one is to stay."""
_WHOLE = 2.0
"""From so many objects per run on they are told as a whole number: the few runs of a trial know it no better."""
_NOTICED = 0.25
"""By so much must a change lessen a growth to be worth a word."""


def shows(gain: LevelGain) -> bool:
    """Return whether anything grows in *gain*: otherwise a trial could not tell whether a change ends it."""
    return any(_grows(gain, name) for name in _FLOORS) or bool(_steady_entries(gain)) or _shows_blocks(gain)


def _has_fewer_blocks(before: LevelGain, after: LevelGain) -> bool:
    return _shows_blocks(before) and after.per_run("blocks") < (1 - _NOTICED) * before.steady("blocks")


def _shows_blocks(gain: LevelGain) -> bool:
    """Return whether far more of what no collector follows is left than a run that leaves nothing does."""
    return min(gain.blocks) > 0 and gain.steady("blocks") >= 4 * _BLOCKS_NOISE


def judge_trial(before: LevelGain, after: LevelGain) -> CureOutcome:
    """Say what the change did; HARMFUL where something grows in both halves that did not, or faster.

    What comes and goes, an entry of a ring or of a pool, adds to one half what it takes from the other.
    """
    if any(_lasting(after, name) > 1.5 * max(before.per_run(name), 0) + 2 * floor for name, floor in _FLOORS.items()):
        return CureOutcome.HARMFUL
    if _has_ended(before, after):
        return CureOutcome.CURED
    left = 1 - _NOTICED
    grew = [name for name in _FLOORS if _grows(before, name)]
    is_less = any(after.per_run(name) < left * before.steady(name) for name in grew)
    entries_before, entries_after = _steady_entries(before), _steady_entries(after)
    if is_less or (not grew and (entries_after < left * entries_before or _has_fewer_blocks(before, after))):
        return CureOutcome.LESSENED
    return CureOutcome.NO_EFFECT


def _lasting(gain: LevelGain, name: str) -> float:
    """Return what each run of the half that added less has added; of what is read before and behind only, each run."""
    halves: tuple[float, float] = getattr(gain, name)
    return gain.per_run(name) if name in _READ_TWICE else 2 * min(halves) / gain.n_runs


def is_settling(gain: LevelGain) -> bool:
    """Return whether the second half tells another story than the first.

    What grew in the first has stopped, as a container does that is full then; or what was let go of in the first hides
    that something grows in the second.
    """
    for name in ("objects", "native", "accelerator"):
        first, second = getattr(gain, name)
        much = _FLOORS[name] * gain.n_runs / 2
        if (first >= much and second <= _QUARTER * first) or first < 0 < much <= second:
            return True
    return False


def may_be_kept_back(gain: LevelGain) -> bool:
    """Return whether a little native memory is all that grows: malloc keeps some freed chunks of each size for later.

    It does so until it has a few of each: more runs tell that from what leaks.
    """
    others = (name for name in _FLOORS if name != "native")
    is_little = _FLOORS["native"] / 4 < gain.per_run("native") < _KEPT_BACK
    return is_little and not any(_grows(gain, name) for name in others) and gain.steady("blocks") <= _BLOCKS_NOISE


def trial_words(before: LevelGain, after: LevelGain, n_runs: int, reported_bytes: float = 0.0) -> str:
    """Return the figures of a trial of *n_runs* runs: ``8 runs with this change: 0 B per run (was 2.03 MiB)``.

    Args:
        before: What the unchanged code added.
        after: What the changed code added.
        n_runs: How many runs the trial made.
        reported_bytes: Bytes per run of all leaks as the check reports them, 0 where it reports none: the few runs
            of a trial show how much of that is left, and give no second figure for it.
    """
    was, now = zip(*_amounts(before, after, reported_bytes), strict=True)
    words = f"{unit_words(n_runs, 'runs')} with this change: {' and '.join(now)} per run (was {' and '.join(was)})"
    if _logged(before, after) >= _WORTH_A_WORD and _levels_have_ended(before, after):
        entries = unit_words(_logged(before, after), "entries")
        words += f"; {entries} of plain data per run {'stays' if entries.startswith('1 ') else 'stay'}"
        words += "" if _leaves_plain_data(before, after) else ", as in a log"
    return words


def remaining(before: LevelGain, after: LevelGain) -> float:
    """Return the largest share of a growth that remains; the smaller, the better the change."""
    shares = [after.per_run(name) / before.steady(name) for name in _FLOORS if _grows(before, name)]
    return max(shares, default=1.0)


def _has_ended(before: LevelGain, after: LevelGain) -> bool:
    return _levels_have_ended(before, after) and not _leaves_plain_data(before, after)


def _levels_have_ended(before: LevelGain, after: LevelGain) -> bool:
    for name, floor in _FLOORS.items():
        if name == "registered" and _grows(before, "objects"):
            continue  # entries whose objects are gone: `atexit` counts the places of callbacks that were taken out
        was = before.steady(name)
        bar = max(_TENTH * was, min(floor, _QUARTER * was)) if _grows(before, name) else floor
        if after.per_run(name) > bar or (name == "objects" and _is_steady(after.objects, after.n_runs)):
            return False
    return True


def _is_steady(halves: tuple[float, float], n_runs: int) -> bool:
    """Return whether in both halves every other run or more added something."""
    return min(halves) >= max(2.0, n_runs / 4)


def _leaves_plain_data(before: LevelGain, after: LevelGain) -> bool:
    """Return whether more of what no collector follows is collected than a log of numbers does."""
    is_small = _grows(before, "objects") or before.per_run("native") >= _FLOORS["native"]
    blocks = after.steady("blocks") / _n_writers(before, after) if min(after.blocks) > 0 else 0.0
    steady = {address for address, gained in after.containers.items() if gained >= after.n_runs}
    return (
        _logged(before, after) > (_LOG_ENTRIES if is_small else 0.0)
        or blocks > max(_BLOCKS_NOISE, _TENTH * before.per_run("blocks"))
        or not steady <= before.containers.keys()
        or not steady.isdisjoint(after.registries)
    )


def _steady_entries(gain: LevelGain) -> float:
    """Return the entries per run that went into containers which got one in every run, or more."""
    return sum(gained for gained in gain.containers.values() if gained >= gain.n_runs) / (gain.n_runs + 1)


def _logged(before: LevelGain, after: LevelGain) -> float:
    """Return the entries per run that stay with a change, as a program leaves them that has had it from the start."""
    return _steady_entries(after) / _n_writers(before, after)


def _n_writers(before: LevelGain, after: LevelGain) -> int:
    """Return how many write in a trial what one is to write.

    Where a registry has stopped growing, the callbacks that earlier runs left in it are still called.
    """
    return 1 + (before.n_callbacks if before.registries.isdisjoint(after.registries) else 0)


def _grows(gain: LevelGain, name: str) -> bool:
    """Return whether every run adds half a floor or more on average, of memory something in both halves."""
    halves: tuple[float, float] = getattr(gain, name)
    return gain.steady(name) >= _FLOORS[name] / 2 and (name not in {"native", "accelerator"} or min(halves) > 0)


def _amounts(before: LevelGain, after: LevelGain, reported_bytes: float) -> Iterator[tuple[str, str]]:
    """Yield what was added per run, without the change and with it: bytes, or else what can be counted."""
    was = before.steady("native") + before.steady("accelerator")
    now = after.per_run("native") + after.per_run("accelerator")
    floor = _FLOORS["native"]
    for name, unit in _COUNTED.items():
        if _grows(before, name) or _grows(after, name):
            yield (
                unit_words(max(before.per_run(name), 0.0), unit),
                unit_words(max(after.per_run(name), 0.0), unit),
            )
    if was >= floor or now >= floor:
        yield _bytes(was, now if now >= min(floor, _TENTH * was) else 0.0, reported_bytes)
        if not _grows(before, "objects") or after.per_run("objects") < (1 - _NOTICED) * before.steady("objects"):
            return
    if _grows(before, "objects") or _grows(after, "objects"):
        yield _objects(before), _objects(after)
        return
    if not _steady_entries(before) and _shows_blocks(before):
        was, now = _blocks(before), _blocks(after)
        yield _bytes(was, now, reported_bytes) if reported_bytes else (_blocks_words(was), _blocks_words(now))
        return
    if not _steady_entries(before) and _grows(before, "nodes"):
        yield _nodes(before), _nodes(after)
        return
    yield f"{format_rate(_steady_entries(before))} entries", f"{format_rate(_steady_entries(after))} entries"


def _bytes(was: float, now: float, reported_bytes: float) -> tuple[str, str]:
    """Return both amounts as bytes: where something *was* added, as shares of what is told."""
    scale = reported_bytes / was if reported_bytes and was > 0 else 1.0
    return format_bytes(max(was, 0.0) * scale), format_bytes(now * scale)


def _blocks(gain: LevelGain) -> float:
    return gain.steady("blocks") if min(gain.blocks) > 0 else 0.0


def _blocks_words(n_blocks: float) -> str:
    return f"{format_rate(n_blocks)} blocks of Python's own memory"


def _nodes(gain: LevelGain) -> str:
    return unit_words(max(gain.per_run("nodes"), 0.0), "graph nodes")


def _objects(gain: LevelGain) -> str:
    rate = max(gain.per_run("objects"), 0.0)
    return unit_words(round(rate) if rate >= _WHOLE else rate, "objects")
