"""Say how much of the growth of each kind of memory the leaks found account for, and what is known of the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from leaklab.check.judging import Judgement
from leaklab.check.native import DEVICE_MEMORY, NATIVE_MEMORY
from leaklab.decide import Growth
from leaklab.model import Leak, Outcome
from leaklab.model.check import MemoryShare, NativeParts

_SMALL_SHARE = 0.01
"""A smaller rest is not spoken of: the rates are no more exact than that."""
_CACHED = "is a cache of a native library, which stops growing"
_LEAK = "has no holder that is seen, and is told as a leak of its own"
_CHARGED = "is taken for theirs: what they keep in C++ cannot be counted"
_UNKNOWN = "is not explained: caches of allocators, C code, or what an estimate is wrong by"


def explained_shares(judgement: Judgement, parts: NativeParts) -> tuple[MemoryShare, ...]:
    """Return the share of each kind of memory that grows by so much that its allocator's own ways do not matter.

    Beside a smaller growth the book-keeping of malloc, and what an estimate is wrong by, would pass for another leak.

    Args:
        judgement: What the rules say of the levels of malloc's heap and of accelerators.
        parts: What everything found takes of them, per run.
    """
    host = MemoryShare(
        NATIVE_MEMORY,
        _rate(judgement.native),
        parts.data_bytes - parts.unplaced_bytes,
        parts.cpp_bytes,
        parts.unplaced_bytes,
    )
    # What grows in place is taken for the host's alone: no tensor of an accelerator grows without being replaced.
    device = MemoryShare(DEVICE_MEMORY, _rate(judgement.accelerator), parts.device_bytes - parts.unplaced_bytes)
    return tuple(share for share in (host, device) if share.grown_bytes > 0)


def _rate(growth: Growth | None) -> float:
    """Return the bytes per run of what grows for certain, else 0.0; of what gets faster the mean, as of the leaks."""
    if growth is None or growth.outcome is not Outcome.LEAK:
        return 0.0
    return growth.rate if growth.mean_rate is None else min(growth.rate, growth.mean_rate)


def with_replaced(shares: Sequence[MemoryShare], n_bytes: float) -> tuple[MemoryShare, ...]:
    """Return *shares* with *n_bytes* more per run of native memory known: what is replaced by something larger."""
    return tuple(
        replace(share, known_bytes=share.known_bytes + n_bytes) if share.memory == NATIVE_MEMORY else share
        for share in shares
    )


def with_rests(
    shares: Sequence[MemoryShare], leaks: Sequence[Leak], bounded: Sequence[Leak], charged: Collection[str]
) -> Iterator[MemoryShare]:
    """Yield *shares* with what is known of their rests.

    Args:
        shares: Of each kind of memory.
        leaks: What was found, native memory without a holder included.
        bounded: What stops growing.
        charged: The kinds of memory whose rest was taken for that of a leak found.
    """
    cached, untold = ({leak.what for leak in found if not leak.path.steps} for found in (bounded, leaks))
    for share in shares:
        rest = ""
        if share.rest_bytes > _SMALL_SHARE * share.grown_bytes:
            known = {_CACHED: cached, _LEAK: untold, _CHARGED: charged}
            rest = next((words for words, memories in known.items() if share.memory in memories), _UNKNOWN)
        yield replace(share, rest=rest)
