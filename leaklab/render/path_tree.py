"""Say a tree of merged paths in lines: `22 of 23 objects through [i]['loss']`."""

from __future__ import annotations

from collections.abc import Iterator

from leaklab.model import Leak
from leaklab.model.merged_paths import MergedPaths, TreeLine, objects_tree
from leaklab.text import shorten

_MOST_LINES = 16
_REFERENCE_LIMIT = 200


def object_lines(leak: Leak) -> list[TreeLine]:
    """Return the merged paths from the holder of *leak* to its objects; empty where its one path says the same."""
    if not any(len(way.references) > 1 for way in leak.ways) and len(leak.ways) <= 1:
        return []
    tree = objects_tree(leak)
    return tree_lines(tree, "objects" if tree.count >= sum(leak.kept[:-1]) else "objects that were looked at")


def tree_lines(tree: MergedPaths, noun: str) -> list[TreeLine]:
    """Return *tree* in lines, the many before the few.

    Args:
        tree: Merged paths.
        noun: What its counts are of, in the plural.
    """
    lines = list(_edges(tree, noun, 0))
    hidden = len(lines) - _MOST_LINES
    return lines if hidden <= 1 else [*lines[:_MOST_LINES], TreeLine(0, f"... and {hidden:,} more")]


def _edges(tree: MergedPaths, noun: str, depth: int) -> Iterator[TreeLine]:
    for child in tree.children:
        part = f"all {child.count:,}" if child.count == tree.count else f"{child.count:,} of {tree.count:,}"
        reference = shorten(child.reference, _REFERENCE_LIMIT)
        kind = f" ({shorten(child.kind)})" if child.kind else ""
        yield TreeLine(depth, f"{part}{f' {noun}' if not depth else ''} through `{reference}`{kind}")
        yield from _edges(child, noun, depth + 1)
