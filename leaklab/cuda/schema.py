"""Bring snapshots of every age into one form, or say in one sentence what is wrong with them.

Known ages: the current schema; that of 2023, whose blocks carry a ``history`` instead of ``frames`` and no address; a
bare list of segments, as `torch.cuda.memory_snapshot` returns it; later ones with ``host_segments``. Unknown keys are
left alone, missing ones get the value that the older versions implied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from leaklab.errors import SnapshotError
from leaklab.text import format_bytes

HOST = "pinned host"
INACTIVE, ACTIVE, PENDING = 0, 1, 2

_STATES = {"inactive": INACTIVE, "active_allocated": ACTIVE, "active_pending_free": PENDING}
_STATES["active_awaiting_free"] = PENDING  # as torch's own documentation calls it
_NAME_LIMIT = 200
_STAGES = ("'START'", "'END'")
_TOP_KEYS = ("segments", "device_traces", "host_segments", "host_traces")
NOTE_KEY = "leaklab"
"""Under this key of a file leaklab keeps what torch does not: the step, the memory of the cards, the process."""

Json = dict[str, Any]
MOST_BYTES = 1 << 50
"""Larger numbers are no sizes, and sums of them would not fit 64 bits."""
LATEST_US = 1 << 62
ADDRESS_BITS = (1 << 63) - 1


class Block(NamedTuple):
    """A piece of a segment: live or free. Sizes in bytes; *state* is one of the three numbers above."""

    address: int
    size: int
    requested: int
    state: int
    frames: list[Json]


class Annotation(NamedTuple):
    """The begin or the end of a part of the program that has a name; *time_us* in microseconds since 1970."""

    device: str
    name: str
    is_start: bool
    time_us: int


class Segment(NamedTuple):
    """Memory taken from the driver, cut into blocks; *pool* in words, *address* 0 where it was not recorded."""

    device: str
    address: int
    pool: str
    is_private: bool
    is_expandable: bool
    total: int
    claimed_active: int | None
    blocks: list[Block]


@dataclass(frozen=True, slots=True)
class Memory:
    """A snapshot in one form.

    Attributes:
        name: Of the file.
        segments: Of all devices.
        traces: The events of each device that has a trace, as torch wrote them.
        step: Of the training loop; None if unknown.
        card_bytes: Memory of the cards, by device; empty if unknown.
        run: What names the process; empty if unknown.
        notes: What was missing or does not add up.
        annotations: In the order of the file.
    """

    name: str
    segments: tuple[Segment, ...]
    traces: tuple[tuple[str, list[Json]], ...]
    step: int | None
    card_bytes: dict[str, int]
    run: str
    notes: tuple[str, ...]
    annotations: tuple[Annotation, ...] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices with segments or events, in the order of the file."""
        names = [segment.device for segment in self.segments] + [device for device, _events in self.traces]
        return tuple(dict.fromkeys(names))

    def segments_by_device(self) -> dict[str, list[Segment]]:
        """Return the segments of each device, in the order of the file; an empty list for a device without any."""
        found: dict[str, list[Segment]] = {device: [] for device in self.devices}
        for segment in self.segments:
            found[segment.device].append(segment)
        return found


def memory_of(raw: object, name: str) -> Memory:
    """Return the snapshot *raw*, made of built-in containers, in one form.

    Raises:
        SnapshotError: if it is none; the sentence names the place.
    """
    try:
        top = _top(raw)
        streams: dict[object, int] = {0: 0}
        groups = [("segments", ""), ("host_segments", HOST)]
        once, settings = _Once(), top.get("allocator_settings")
        expands = type(settings) is dict and settings.get("expandable_segments") is True
        segments = [
            _segment(entry, f"{key}[{number}]", device, streams, once, expands=expands)
            for key, device in groups
            for number, entry in once.each(_list(top.get(key, []), key))
        ]
        traces = tuple(_traces(top, once))
    except SnapshotError as error:
        msg = (
            f"{name!r} is not a memory snapshot: {error}; give a file written by torch.cuda.memory._dump_snapshot(path)"
        )
        raise SnapshotError(msg) from None
    note = top.get(NOTE_KEY)
    note = note if type(note) is dict else {}
    step, cards, run = note.get("step"), note.get("card_bytes"), note.get("run")
    return Memory(
        name=name,
        segments=tuple(segments),
        traces=traces,
        step=step if type(step) is int else None,
        card_bytes=_cards(cards),
        run=run if type(run) is str else "",
        notes=(*_notes(segments, traces), *once.notes()),
        annotations=tuple(_annotations(top.get("external_annotations"), once)),
    )


class _Once:
    """Gives out every container of a file once: by references, a file of a few KB can list one a million times."""

    def __init__(self) -> None:
        self._seen: set[int] = set()  # addresses: the file's own objects are alive meanwhile
        self._n_repeated = 0

    def each(self, entries: list[Any], kind: type = dict) -> Iterator[tuple[int, Any]]:
        """Yield *entries* with their positions, but none of this *kind* again, and nothing of a list that was here."""
        if entries and self._is_repeated(entries, len(entries)):
            return
        for number, entry in enumerate(entries):
            if type(entry) is not kind or not self._is_repeated(entry, 1):
                yield number, entry

    def _is_repeated(self, container: object, weight: int) -> bool:
        if id(container) in self._seen:
            self._n_repeated += weight
            return True
        self._seen.add(id(container))
        return False

    def notes(self) -> Iterator[str]:
        """Yield what was left out."""
        if self._n_repeated:
            yield (
                f"the file lists the same segments, blocks or traces again, {self._n_repeated:,} times:"
                " each is counted once, and torch writes no such file"
            )


def _top(raw: object) -> Json:
    if type(raw) is list:
        return {"segments": raw}
    if type(raw) is not dict:
        msg = f"it holds a {type(raw).__name__}, where a dict with segments is expected"
        raise SnapshotError(msg)
    if not any(key in raw for key in _TOP_KEYS):
        keys = ", ".join(repr(key)[:40] for key in list(raw)[:4]) or "nothing"
        msg = f"it has no 'segments' but {keys}"
        raise SnapshotError(msg)
    return raw


def _traces(top: Json, once: _Once) -> Iterator[tuple[str, list[Json]]]:
    groups = [("device_traces", "cuda:{}"), ("host_traces", HOST)]
    for key, form in groups:
        for number, events in once.each(_list(top.get(key, []), key), list):
            if type(events) is dict and key == "host_traces":  # one flat trace
                yield HOST, _list(top[key], key)
                break
            if _list(events, f"{key}[{number}]"):
                yield form.format(number), events


def _annotations(entries: object, once: _Once) -> Iterator[Annotation]:
    """Yield what can be read: annotations only explain, so one that is damaged costs nothing but itself."""
    for _number, entry in once.each(entries if type(entries) is list else []):
        if type(entry) is not dict:
            continue
        name, device, stage = entry.get("name"), entry.get("device"), entry.get("stage")
        if type(name) is str and type(device) is int and _short(stage) in _STAGES and time_us(entry):
            yield Annotation(f"cuda:{device}", name[:_NAME_LIMIT], stage == "START", time_us(entry))


def _segment(
    entry: object, place: str, device: str, streams: dict[object, int], once: _Once, *, expands: bool
) -> Segment:
    segment = _dict(entry, place)
    address = _whole(segment.get("address", 0), f"{place}.address")
    # A stream is a pointer, another one in every process: numbered by first use, two runs can be compared.
    stream = streams.setdefault(_hashable(segment.get("stream", 0)), len(streams))
    pool, is_private = _pool_words(segment.get("segment_type", ""), segment.get("segment_pool_id"), stream)
    claimed = segment.get("active_size")
    blocks = once.each(_list(segment.get("blocks"), f"{place}.blocks"))
    return Segment(
        device=device or f"cuda:{_whole(segment.get('device', 0), f'{place}.device')}",
        address=address,
        pool=pool,
        is_private=is_private,
        is_expandable=segment.get("is_expandable", expands) is True,
        total=_whole(segment.get("total_size"), f"{place}.total_size", MOST_BYTES),
        claimed_active=claimed if type(claimed) is int else None,
        blocks=list(_blocks(blocks, address, place)),
    )


def _blocks(entries: Iterator[tuple[int, Any]], address: int, place: str) -> Iterator[Block]:
    for number, entry in entries:
        try:
            size, state = entry["size"], _STATES.get(entry["state"])
        except (KeyError, TypeError) as error:
            msg = f"{place}.blocks[{number}] has no size or no state"
            raise SnapshotError(msg) from error
        if type(size) is not int or not 0 <= size <= MOST_BYTES:
            msg = f"the size of {place}.blocks[{number}] is {_short(size)}, not a number of bytes"
            raise SnapshotError(msg)
        if state is None:
            state = ACTIVE if _short(entry["state"]).strip("'").startswith("active") else INACTIVE
        frames = entry.get("frames")
        requested = entry.get("requested_size", size)
        if frames is None:
            frames = _frames_of_2023(entry.get("history"))
        if type(frames) is not list or type(requested) is not int or not 0 <= requested <= MOST_BYTES:
            msg = f"the frames or the requested size of {place}.blocks[{number}] are of another type"
            raise SnapshotError(msg)
        yield Block(_whole(entry.get("address", address), place), size, requested, state, frames)
        address += size


def _frames_of_2023(history: object) -> object:
    """Return the frames of the newest of those who used the block."""
    if type(history) is list and history and type(history[0]) is dict:
        return history[0].get("frames", [])
    return []


def _pool_words(kind: object, pool_id: object, stream: int) -> tuple[str, bool]:
    words = [kind if type(kind) is str and kind else "unnamed"]
    is_private = isinstance(pool_id, (list, tuple)) and any(pool_id)  # the file holds built-in types only
    if is_private and isinstance(pool_id, (list, tuple)):
        words.append(f"private pool {'.'.join(_short(part) for part in pool_id[:3])}")
    if stream:
        words.append(f"stream {stream}")
    return ", ".join(words), is_private


def _notes(segments: list[Segment], traces: tuple[tuple[str, list[Json]], ...]) -> Iterator[str]:
    if not segments:
        yield "the snapshot holds no segments: nothing was allocated when it was taken"
    if not traces:
        yield (
            "the file has no event trace, so there is no timeline and no peak: history recording was off, or "
            "started too late"
        )
    blocks = [block for segment in segments for block in segment.blocks if block.state != INACTIVE]
    if blocks and not any(block.frames for block in blocks):
        yield (
            "no live block has a call stack: recording began after the memory was allocated, or without call "
            "stacks (context=None)"
        )
    if all(segment.claimed_active is not None for segment in segments):
        claimed = sum(segment.claimed_active or 0 for segment in segments)
        found = sum(block.size for block in blocks)
        if claimed != found:
            yield (
                f"the segments claim {format_bytes(claimed)} active, but their blocks add up to "
                f"{format_bytes(found)}: this report uses the blocks"
            )


def _cards(cards: object) -> dict[str, int]:
    if type(cards) is not dict:
        return {}
    return {key: size for key, size in cards.items() if type(key) is str and type(size) is int and size > 0}


def _dict(value: object, place: str) -> Json:
    if type(value) is not dict:
        msg = f"{place} is a {type(value).__name__}, not a dict"
        raise SnapshotError(msg)
    return value


def _list(value: object, place: str) -> list[Any]:
    if type(value) is not list:
        msg = f"{place} is a {type(value).__name__}, not a list"
        raise SnapshotError(msg)
    return value


def time_us(event: object) -> int:
    """Return the time of an event, microseconds since 1970; 0 where it is not recorded, or no such number."""
    value = event.get("time_us") if type(event) is dict else None
    return value if type(value) is int and 0 < value < LATEST_US else 0


def _whole(value: object, place: str, most: int = 1 << 64) -> int:
    if type(value) is not int or not 0 <= value <= most:
        msg = f"{place} is {_short(value)}, not a whole number from 0"
        raise SnapshotError(msg)
    return value


def _hashable(value: object) -> object:
    return value if type(value) in (int, str) else _short(value)


def _short(value: object) -> str:
    """Return *value* in a few characters; a container only by its type: it may be deep."""
    return repr(value)[:40] if type(value) in (int, str, float, bool, type(None)) else f"a {type(value).__name__}"
