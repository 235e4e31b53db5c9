"""What stays, by the call stack that allocated it: as a picture of frames, and for programs that draw flame graphs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from leaklab.errors import ReportError
from leaklab.model import Check
from leaklab.model.stacks import OUTSIDE, AllocationStack, FrameNode, StackFrame, frame_tree
from leaklab.render.document import Outline, Words, bold, code, faint
from leaklab.text import format_bytes, shorten, unit_words, visible
from leaklab.version import __version__

COLLAPSED: Final = ".collapsed"
"""A stack on each line, outermost frame first, then its bytes: what flamegraph.pl and inferno read."""
SPEEDSCOPE: Final = ".speedscope.json"
"""What the viewer of that name opens: https://www.speedscope.app/file-format-schema.json."""
STACKS_TITLE: Final = "What leaks, by call stack"
STACKS_NOTE: Final = "each box is a call, the outermost at the top, as wide as the bytes that each run leaves below it"
_ROOT = "what leaks, per run"
_LABEL_LIMIT = 120
_LEAST_SHARE = 0.004  # of the whole: a thinner box is no box
_MAX_ROWS = 60
_TREE_SHARE, _TREE_LINES, _TREE_DEPTH = 0.01, 40, 24
_OUTLINE_SHARE, _MAX_NODES, _MAX_DEPTH = 0.005, 400, 40
_N_OPEN = 3  # levels of a tree
_PLACE = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?: (?P<name>.+))?")
_Shown = TypeVar("_Shown")


def check_tree(check: Check, *, whole: bool = True) -> FrameNode:
    """Return the tree of frames below which the leaks of *check* allocate what they leave, in bytes per run.

    Args:
        check: What was found.
        whole: Whether every frame is wanted; else your own, and below them the one that a library allocates in.
    """
    stacks = check.stacks

    def labels(stack: AllocationStack) -> list[str]:
        frames = stacks.frames_of(stack)
        return [frame.label for frame in reversed(frames if whole else _telling(frames))]

    return frame_tree(((labels(stack), stack.bytes_per_run, 1) for stack in stacks.stacks), _ROOT)


def _telling(frames: tuple[StackFrame, ...]) -> tuple[StackFrame, ...]:
    """Return the frames of *frames*, innermost first, that a reader looks for."""
    own = tuple(frame for frame in frames if frame.is_yours)
    return frames if not own else own if frames[0].is_yours else (frames[0], *own)


def visible_frames(tree: FrameNode) -> FrameNode:
    """Return *tree* without the frames that are too narrow or too deep to be seen, every label as it is shown."""
    least = tree.active_bytes * _LEAST_SHARE

    def seen(node: FrameNode, depth: int) -> FrameNode:
        children = [child for child in node.children if child.active_bytes > least and depth < _MAX_ROWS]
        shown = tuple(seen(child, depth + 1) for child in children)
        return replace(node, label=shorten(visible(node.label), _LABEL_LIMIT), children=shown)

    return seen(tree, 0)


def frame_outline(root: FrameNode, *, is_open: bool) -> Outline:
    """Return the frames that hold at least 0.5 % of the bytes, folded below the third level unless *is_open*.

    Without recursion: a tree may be as deep as the call stacks were.
    """
    least = max(1, root.active_bytes * _OUTLINE_SHARE)
    waiting: list[tuple[FrameNode | None, int]] = [(root, 0)]
    lines: list[tuple[Words | None, bool | None]] = []
    n_nodes = 0
    while waiting:
        node, depth = waiting.pop()
        if node is None:
            lines.append((None, None))
            continue
        n_nodes += 1
        share = node.active_bytes / root.active_bytes if root.active_bytes else 0.0
        figures = faint(f"{share:.1%}, {unit_words(node.n_blocks, 'blocks')}")
        words = (bold(format_bytes(node.active_bytes)), " ", code(shorten(node.label, 140)), " ", figures)
        shown = [child for child in node.children if child.active_bytes >= least]
        if not shown or depth >= _MAX_DEPTH or n_nodes + len(waiting) > _MAX_NODES:
            lines.append((words, None))
            continue
        lines.append((words, is_open or depth < _N_OPEN))
        waiting.append((None, depth))
        waiting += [(child, depth + 1) for child in reversed(shown)]
    return Outline(tuple(lines))


def tree_lines(root: FrameNode) -> Iterator[str]:
    """Yield the frames that hold at least 1 % of the bytes, indented; chains of single calls stay at one depth."""
    least = max(1, root.active_bytes * _TREE_SHARE)
    waiting = [(root, 0)]
    for _ in range(_TREE_LINES):
        if not waiting:
            return
        node, depth = waiting.pop()
        indent = "  " * min(depth, _TREE_DEPTH)
        yield f"  {format_bytes(node.active_bytes):>10}  {indent}{shorten(node.label, _LABEL_LIMIT)}"
        shown = [child for child in node.children if child.active_bytes >= least]
        deeper = depth + (len(shown) > 1 or node is root)
        waiting += [(child, deeper) for child in reversed(shown)]
    if waiting:
        yield f"{'':>12}  ... and more below: see the page that to_html() writes"


def exports(tree_of: Callable[[_Shown], FrameNode], name: str, why_none: str) -> dict[str, Callable[[_Shown], str]]:
    """Return the writers of a report whose record has a tree of frames, by suffix: collapsed stacks, and speedscope.

    Args:
        tree_of: Makes the tree.
        name: What the profile is called.
        why_none: Why a report may have no stacks, a clause.
    """

    def tree(record: _Shown) -> FrameNode:
        found = tree_of(record)
        if not found.active_bytes:
            msg = f"this report has no call stacks to save: {why_none}; save it as .html or .json"
            raise ReportError(msg)
        return found

    return {
        COLLAPSED: lambda record: collapsed(tree(record)),
        SPEEDSCOPE: lambda record: speedscope(tree(record), name),
    }


def _own_parts(tree: FrameNode) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield every stack, outermost frame first, with the bytes that no deeper frame has; without recursion."""
    waiting: list[tuple[FrameNode, tuple[str, ...]]] = [(child, (child.label,)) for child in reversed(tree.children)]
    while waiting:
        node, labels = waiting.pop()
        own = node.active_bytes - sum(child.active_bytes for child in node.children)
        if own > 0:
            yield labels, own
        waiting += [(child, (*labels, child.label)) for child in reversed(node.children)]


def collapsed(tree: FrameNode) -> str:
    """Return *tree* as collapsed stacks: on each line the frames, outermost first, ``;`` between, and the bytes."""
    lines = (
        f"{';'.join(visible(label).replace(';', ',') for label in labels)} {own}\n" for labels, own in _own_parts(tree)
    )
    return "".join(lines)


def speedscope(tree: FrameNode, name: str) -> str:
    """Return *tree* as a profile of speedscope, a sample of so many bytes for each stack."""
    numbers: dict[str, int] = {}
    parts = list(_own_parts(tree))
    samples = [[numbers.setdefault(label, len(numbers)) for label in labels] for labels, _own in parts]
    weights = [own for _labels, own in parts]
    profile = {
        "type": "sampled", "name": name, "unit": "bytes", "startValue": 0, "endValue": sum(weights),
        "samples": samples, "weights": weights,
    }  # fmt: skip
    file = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [_speedscope_frame(label) for label in numbers]},
        "profiles": [profile],
        "name": name,
        "exporter": f"leaklab {__version__}",
    }
    return json.dumps(file)


def _speedscope_frame(label: str) -> dict[str, object]:
    found = _PLACE.fullmatch(label)
    if found is None:
        return {"name": visible(label)}
    return {"name": visible(found["name"] or OUTSIDE), "file": visible(found["file"]), "line": int(found["line"])}
