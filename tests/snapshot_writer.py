"""Writes memory snapshots as torch would: a small caching allocator that records every event.

It shows the kinds that are hard to come by without a GPU: out-of-memory events, mapped and unmapped segments, blocks
that wait for another stream, private pools, several streams and devices, a leak that grows from file to file, the
schema of 2023, and the keys of versions to come.
"""

import pickle
from pathlib import Path

SMALL_SEGMENT, LARGE_SEGMENT = 2 << 20, 20 << 20
SMALL_LIMIT = 1 << 20
ROUND = 512
STARTED_US = 1_700_000_000_000_000
CPP = {"name": "c10::cuda::CUDACachingAllocator::malloc(unsigned long)", "filename": "??", "line": 0}


def frame(text):
    """``"train.py:12 step"`` as a frame; a path may stand in place of the name."""
    place, _, name = text.partition(" ")
    filename, _, line = place.rpartition(":")
    return {"name": name, "filename": filename, "line": int(line)}


def stack(*frames):
    """A call stack of texts as `frame` takes them, innermost first."""
    return [CPP, *map(frame, frames)]


class Card:
    """The allocator of one device."""

    def __init__(self, device=0, *, expandable=False, max_events=1 << 40):
        self.device, self.expandable, self.max_events = device, expandable, max_events
        self.segments, self.events = [], []
        self._now, self._top = STARTED_US, 0x7F00_0000_0000 + (device << 40)

    def alloc(self, size, frames, *, stream=0, pool=(0, 0)):
        """Allocate; returns the address."""
        rounded = -(-max(size, 1) // ROUND) * ROUND
        kind = "small" if rounded <= SMALL_LIMIT else "large"
        segment, block = self._free_block(rounded, kind, stream, pool) or self._grown(
            rounded, kind, stream, pool, frames
        )
        blocks, at = segment["blocks"], segment["blocks"].index(block)
        if block["size"] > rounded:
            rest = {**block, "address": block["address"] + rounded, "size": block["size"] - rounded}
            blocks.insert(at + 1, rest)
        block.update(size=rounded, requested_size=size, state="active_allocated", frames=frames)
        self._record("alloc", block["address"], size, frames, stream=stream, pool_id=pool)
        return block["address"]

    def free(self, address, frames=(), *, pending=False):
        """Free; a *pending* block waits for another stream."""
        segment, block = next((s, b) for s in self.segments for b in s["blocks"] if b["address"] == address)
        size = block["requested_size"]
        self._record("free_requested", address, size, list(frames), stream=segment["stream"])
        if pending:
            block["state"] = "active_pending_free"
            return
        self._record("free_completed", address, size, list(frames), stream=segment["stream"])
        block.update(state="inactive", requested_size=0, frames=[])

    def oom(self, size, frames, *, device_free):
        """Fail to allocate."""
        self._record("oom", None, size, frames, device_free=device_free)

    def empty_cache(self):
        """Give back segments without live blocks."""
        for segment in list(self.segments):
            if all(block["state"] == "inactive" for block in segment["blocks"]):
                action = "segment_unmap" if self.expandable else "segment_free"
                self._record(action, segment["address"], segment["total_size"], [], stream=segment["stream"])
                self.segments.remove(segment)

    def _free_block(self, size, kind, stream, pool):
        for segment in self.segments:
            if (segment["segment_type"], segment["stream"], segment["segment_pool_id"]) == (kind, stream, pool):
                for block in segment["blocks"]:
                    if block["state"] == "inactive" and block["size"] >= size:
                        return segment, block
        return None

    def _grown(self, size, kind, stream, pool, frames):
        total = SMALL_SEGMENT if kind == "small" else max(LARGE_SEGMENT, -(-size // SMALL_SEGMENT) * SMALL_SEGMENT)
        block = {"address": self._top, "size": total, "requested_size": 0, "state": "inactive", "frames": []}
        segment = {
            "device": self.device, "address": self._top, "total_size": total, "stream": stream, "segment_type": kind,
            "segment_pool_id": pool, "is_expandable": self.expandable, "frames": frames, "blocks": [block],
        }  # fmt: skip
        self.segments.append(segment)
        self._top += total
        self._record("segment_map" if self.expandable else "segment_alloc", block["address"], total, frames)
        return segment, block

    def _record(self, action, address, size, frames, **more):
        self._now += 7
        event = {"action": action, "size": size, "stream": 0, "time_us": self._now, "frames": frames, **more}
        if address is not None:
            event["addr"] = address
        self.events = [*self.events, event][-self.max_events :]


def snapshot(*cards, trace=True, **more):
    """What ``torch.cuda.memory._snapshot()`` would return for *cards*."""
    segments = []
    for card in cards:
        for segment in card.segments:
            live = [b for b in segment["blocks"] if b["state"] != "inactive"]
            segments.append(
                {
                    **segment,
                    "blocks": [dict(block) for block in segment["blocks"]],
                    "allocated_size": sum(b["size"] for b in live if b["state"] == "active_allocated"),
                    "active_size": sum(b["size"] for b in live),
                    "requested_size": sum(b["requested_size"] for b in live),
                }
            )
    traces = [list(card.events) if trace else [] for card in cards]
    settings = {"expandable_segments": any(card.expandable for card in cards)}
    top = {"segments": segments, "device_traces": traces, "allocator_settings": settings, "external_annotations": []}
    return {**top, **more}


def of_2023(taken):
    """The same snapshot in the schema of early 2023: history instead of frames, no address of blocks, bare events."""
    segments = []
    for segment in taken["segments"]:
        old = {
            key: value for key, value in segment.items() if key not in ("segment_pool_id", "is_expandable", "frames")
        }
        old["blocks"] = []
        for block in segment["blocks"]:
            entry = {key: block[key] for key in ("size", "requested_size", "state")}
            if block["state"] != "inactive":
                use = {"addr": block["address"], "real_size": block["requested_size"], "frames": block["frames"]}
                entry["history"] = [use]
            old["blocks"].append(entry)
        segments.append(old)
    return {"segments": segments, "device_traces": [[] for _ in taken["device_traces"]]}


def write(path, taken, protocol=4):
    """Pickle *taken* to *path* and return the path."""
    Path(path).write_bytes(pickle.dumps(taken, protocol=protocol))
    return path


MODEL = stack("/home/me/project/model.py:8 __init__", "/home/me/project/train.py:30 main")
STEP = stack(
    "/home/me/project/model.py:21 forward", "/home/me/project/train.py:41 step", "/home/me/project/train.py:35 main"
)
KEPT = stack(
    "/home/me/project/metrics.py:17 update", "/home/me/project/train.py:44 step", "/home/me/project/train.py:35 main"
)
WARM = stack(
    "/home/me/project/optimizer.py:5 step", "/home/me/project/train.py:43 step", "/home/me/project/train.py:35 main"
)


class Training:
    """A training loop that keeps one tensor of *kept_bytes* in every step."""

    def __init__(self, kept_bytes=3_000_000, **card):
        self.card, self.kept_bytes, self.n_steps = Card(**card), kept_bytes, 0
        for _ in range(4):
            self.card.alloc(4_000_000, MODEL)

    def run(self, n_steps):
        for _ in range(n_steps):
            activations = [self.card.alloc(1_500_000, STEP) for _ in range(3)]
            if not self.n_steps:
                for _ in range(4):
                    self.card.alloc(4_000_000, WARM)
            if self.kept_bytes:
                self.card.alloc(self.kept_bytes, KEPT)
            for address in activations:
                self.card.free(address)
            self.n_steps += 1
        return self

    def dump(self, path, **more):
        return write(path, snapshot(self.card, **more))
