"""Find the same call stacks in several snapshots."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from leaklab.model.snapshots import CallFrame, LiveStack, StackKey
from leaklab.snapshots.live import grouped

EXACT_IS_ENOUGH = 0.9
"""Exact stacks are kept as long as they match this share of what the tolerant key matches."""


@dataclass(frozen=True, slots=True)
class Matched:
    """One call stack in several snapshots.

    Attributes:
        device: As in `LiveStack`.
        label: As in `LiveStack`.
        frames: As in `LiveStack`.
        n_blocks: In each snapshot, 0 where the stack is not in it.
        live_bytes: Requested bytes, in the same order.
    """

    device: str
    label: str
    frames: tuple[CallFrame, ...]
    n_blocks: tuple[int, ...]
    live_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Matching:
    """All stacks of several snapshots, with the key that put them together and the reason for it."""

    key: StackKey
    reason: str
    stacks: tuple[Matched, ...]


_Groups = Sequence[Mapping[Hashable, LiveStack]]


def match(snapshots: Sequence[Sequence[LiveStack]], key: StackKey | None = None) -> Matching:
    """Match the stacks of *snapshots*, oldest first.

    Args:
        snapshots: Two or more, by exact stack.
        key: By what stacks are the same. None: exactly, unless far more of the memory matches by file name and
            function of the project's frames, as it does when lines have moved.
    """
    exact = [grouped(stacks, StackKey.EXACT) for stacks in snapshots]
    exact_share = _share(exact)
    if key is StackKey.EXACT:
        return _matching(exact, StackKey.EXACT, f"compared line by line, as asked; {_words(exact_share)}")
    if key is None and exact_share is None:
        return _matching(exact, StackKey.EXACT, "no snapshot has call stacks: blocks are compared by pool and size")
    if key is None and exact_share is not None and exact_share >= EXACT_IS_ENOUGH:  # the other share is 1.0 at most
        return _matching(exact, StackKey.EXACT, f"compared line by line: {_words(exact_share)}")
    project = [grouped(stacks, StackKey.PROJECT) for stacks in snapshots]
    project_share = _share(project)
    if key is StackKey.PROJECT:
        reason = f"compared by file name and function of the project's frames, as asked; {_words(project_share)}"
        return _matching(project, StackKey.PROJECT, reason)
    if (exact_share or 0.0) >= EXACT_IS_ENOUGH * (project_share or 0.0):
        return _matching(exact, StackKey.EXACT, f"compared line by line: {_words(exact_share)}")
    reason = (
        f"compared by file name and function of the project's frames: {_words(project_share)} that way,"
        f" only {exact_share:.0%} line by line (lines have moved, or paths differ)"
    )
    return _matching(project, StackKey.PROJECT, reason)


def _share(groups: _Groups) -> float | None:
    """Return the share of the framed bytes of the first and last snapshot whose stack is in both; None without any."""
    first, last = groups[0], groups[-1]
    total = matched = 0
    for here, there in ((first, last), (last, first)):
        for name, stack in here.items():
            if stack.frames:
                total += stack.requested_bytes
                matched += stack.requested_bytes if name in there else 0
    return matched / total if total else None


def _words(share: float | None) -> str:
    return "no stack was recorded" if share is None else f"{share:.0%} of the bytes with a stack match"


def _matching(groups: _Groups, key: StackKey, reason: str) -> Matching:
    names = dict.fromkeys(name for group in groups for name in group)
    return Matching(key, reason, tuple(_matched([group.get(name) for group in groups]) for name in names))


def _matched(found: Sequence[LiveStack | None]) -> Matched:
    newest = next(stack for stack in reversed(found) if stack is not None)
    return Matched(
        device=newest.device,
        label=newest.label,
        frames=newest.frames,
        n_blocks=tuple(0 if stack is None else stack.n_blocks for stack in found),
        live_bytes=tuple(0 if stack is None else stack.requested_bytes for stack in found),
    )
