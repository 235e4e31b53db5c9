"""Write a tree of frames as HTML that folds without a script."""

from __future__ import annotations

from leaklab.model.snapshots import FrameNode
from leaklab.render.parts import LINE, code, faint
from leaklab.render.wording import shorten
from leaklab.words import format_bytes

_LABEL_LIMIT = 140
_LEAST_SHARE = 0.005
_MAX_NODES = 400
_MAX_DEPTH = 40
_N_OPEN = 3


def tree_markup(root: FrameNode, *, is_open: bool) -> str:
    """Return the frames that hold at least 0.5 % of the bytes, folded below the third level unless *is_open*.

    Without recursion: a tree may be as deep as the call stacks were.
    """
    least = max(1, root.active_bytes * _LEAST_SHARE)
    parts: list[str] = []
    waiting: list[tuple[FrameNode | None, int]] = [(root, 0)]
    n_nodes = 0
    while waiting:
        node, depth = waiting.pop()
        if node is None:
            parts.append("</details>")
            continue
        n_nodes += 1
        shown = [child for child in node.children if child.active_bytes >= least]
        if depth >= _MAX_DEPTH or n_nodes + len(waiting) > _MAX_NODES:
            shown = []
        if not shown:
            parts.append(f'<div style="{_INDENT}padding-left:34px">{_line(node, root.active_bytes)}</div>')
            continue
        state = " open" if is_open or depth < _N_OPEN else ""
        summary = f'<summary style="cursor:pointer">{_line(node, root.active_bytes)}</summary>'
        parts.append(f'<details{state} style="{_INDENT}">{summary}')
        waiting.append((None, depth))
        waiting += [(child, depth + 1) for child in reversed(shown)]
    return "".join(parts)


_INDENT = f"margin-left:0;padding-left:14px;border-left:1px solid {LINE};"


def _line(node: FrameNode, total: int) -> str:
    share = node.active_bytes / total if total else 0.0
    blocks = f"{node.n_blocks:,} {'block' if node.n_blocks == 1 else 'blocks'}"
    return f"<b>{format_bytes(node.active_bytes)}</b> {code(shorten(node.label, _LABEL_LIMIT))} " + faint(
        f"{share:.1%}, {blocks}"
    )
