"""Judge a trial by its figures: what grew without the change, and what grows with it."""

from __future__ import annotations

from collections.abc import Iterator

from leaklab.cure.levels import Gain
from leaklab.model.check import CHILDREN, DESCRIPTORS
from leaklab.model.cure import CureOutcome
from leaklab.text import format_bytes, format_rate, unit_words

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
_NOTICED = 0.25
"""By so much must a change lessen a growth to be worth a word."""


def shows(gain: Gain) -> bool:
    """Return whether anything grows in *gain*: otherwise a trial could not tell whether a change ends it."""
    return any(_grows(gain, name) for name in _FLOORS) or bool(_steady_entries(gain)) or _shows_blocks(gain)


def _has_fewer_blocks(before: Gain, after: Gain) -> bool:
    return _shows_blocks(before) and after.per_run("blocks") < (1 - _NOTICED) * before.steady("blocks")


def _shows_blocks(gain: Gain) -> bool:
    """Return whether far more of what no collector follows is left than a run that leaves nothing does."""
    return min(gain.blocks) > 0 and gain.steady("blocks") >= 4 * _BLOCKS_NOISE


def judge_trial(before: Gain, after: Gain) -> CureOutcome:
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


def _lasting(gain: Gain, name: str) -> float:
    """Return what each run of the half that added less has added; of what is read before and behind only, each run."""
    halves: tuple[float, float] = getattr(gain, name)
    return gain.per_run(name) if name in _READ_TWICE else 2 * min(halves) / gain.n_runs


def is_settling(gain: Gain) -> bool:
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


def trial_words(before: Gain, after: Gain, n_runs: int, told_bytes: float = 0.0) -> str:
    """Return the figures of a trial of *n_runs* runs: ``8 runs with this change: 0 B per run (was 2.03 MiB)``.

    Args:
        before: What the unchanged code added.
        after: What the changed code added.
        n_runs: How many runs the trial made.
        told_bytes: Bytes per run of all leaks as the check tells them, 0 where it tells none: the few runs of a trial
            say how much of that is left, and give no second figure for it.
    """
    was, now = zip(*_amounts(before, after, told_bytes), strict=True)
    words = f"{unit_words(n_runs, 'runs')} with this change: {' and '.join(now)} per run (was {' and '.join(was)})"
    if _steady_entries(after) and _levels_have_ended(before, after):
        entries = unit_words(_steady_entries(after), "entries")
        words += f"; {entries} of plain data per run {'stays' if entries.startswith('1 ') else 'stay'}"
        words += "" if _leaves_plain_data(before, after) else ", as in a log"
    return words


def remaining(before: Gain, after: Gain) -> float:
    """Return the largest share of a growth that remains; the smaller, the better the change."""
    shares = [after.per_run(name) / before.steady(name) for name in _FLOORS if _grows(before, name)]
    return max(shares, default=1.0)


def _has_ended(before: Gain, after: Gain) -> bool:
    return _levels_have_ended(before, after) and not _leaves_plain_data(before, after)


def _levels_have_ended(before: Gain, after: Gain) -> bool:
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


def _leaves_plain_data(before: Gain, after: Gain) -> bool:
    """Return whether more of what no collector follows is collected than a log of numbers does."""
    is_small = _grows(before, "objects") or before.per_run("native") >= _FLOORS["native"]
    blocks = after.steady("blocks") if min(after.blocks) > 0 else 0.0
    steady = {address for address, gained in after.containers.items() if gained >= after.n_runs}
    return (
        _steady_entries(after) > (_LOG_ENTRIES if is_small else 0.0)
        or blocks > max(_BLOCKS_NOISE, _TENTH * before.per_run("blocks"))
        or not steady <= before.containers.keys()
    )


def _steady_entries(gain: Gain) -> float:
    """Return the entries per run that went into containers which got one in every run, or more."""
    return sum(gained for gained in gain.containers.values() if gained >= gain.n_runs) / (gain.n_runs + 1)


def _grows(gain: Gain, name: str) -> bool:
    """Return whether every run adds half a floor or more on average, of memory something in both halves."""
    halves: tuple[float, float] = getattr(gain, name)
    return gain.steady(name) >= _FLOORS[name] / 2 and (name not in {"native", "accelerator"} or min(halves) > 0)


def _amounts(before: Gain, after: Gain, told_bytes: float) -> Iterator[tuple[str, str]]:
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
        yield _bytes(was, now if now >= min(floor, _TENTH * was) else 0.0, told_bytes)
        if not _grows(before, "objects") or after.per_run("objects") < (1 - _NOTICED) * before.steady("objects"):
            return
    if _grows(before, "objects") or _grows(after, "objects"):
        yield _objects(before), _objects(after)
        return
    if not _steady_entries(before) and _shows_blocks(before):
        was, now = _blocks(before), _blocks(after)
        yield _bytes(was, now, told_bytes) if told_bytes else (_blocks_words(was), _blocks_words(now))
        return
    yield f"{format_rate(_steady_entries(before))} entries", f"{format_rate(_steady_entries(after))} entries"


def _bytes(was: float, now: float, told_bytes: float) -> tuple[str, str]:
    """Return both amounts as bytes: where something *was* added, as shares of what is told."""
    scale = told_bytes / was if told_bytes and was > 0 else 1.0
    return format_bytes(max(was, 0.0) * scale), format_bytes(now * scale)


def _blocks(gain: Gain) -> float:
    return gain.steady("blocks") if min(gain.blocks) > 0 else 0.0


def _blocks_words(n_blocks: float) -> str:
    return f"{format_rate(n_blocks)} blocks of Python's own memory"


def _objects(gain: Gain) -> str:
    return unit_words(max(gain.per_run("objects"), 0.0), "objects")
