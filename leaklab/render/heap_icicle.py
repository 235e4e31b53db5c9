"""Write an icicle as data, and the one script that draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from leaklab.model.heap_shape import IcicleNode
from leaklab.render.json import one_line, script_data
from leaklab.render.templates import joined
from leaklab.text import shorten, visible

DRAWING_SCRIPT = joined("page_parts.js", "icicle.js")
"""Draws an icicle of what `icicle_rows` returns: on a page of its own, and in the explorer."""
SCRIPT = f'"use strict";\n{DRAWING_SCRIPT}\n{joined("heap_icicle.js")}'
"""Draws the icicle of a page that has no other."""
Icicles: TypeAlias = Sequence[tuple[str, IcicleNode]]
"""Of each device the name, and what fills its memory."""
_LABEL_LIMIT, _NAME_LIMIT = 60, 200


def icicle_data(icicles: Icicles) -> str:
    """Return *icicles* as the element of a page that `SCRIPT` draws."""
    data: Mapping[str, object] = {"devices": icicle_rows(icicles)}
    return script_data(one_line(data, "icicle"), "icicle")


def icicle_rows(icicles: Icicles) -> list[list[object]]:
    """Return *icicles* as the script reads them: plain data, every text cut and made visible."""
    return [[visible(device), _row(root)] for device, root in icicles]


def _row(node: IcicleNode) -> list[object]:
    """Return a node and all below it."""
    texts = (shorten(visible(node.label), _LABEL_LIMIT), *(shorten(visible(text), _NAME_LIMIT) for text in (
        node.expression, node.kind)))  # fmt: skip
    figures = (node.n_bytes, node.small_bytes, node.n_small, node.number)
    return [*texts, node.part, *figures, [_row(child) for child in node.children]]
