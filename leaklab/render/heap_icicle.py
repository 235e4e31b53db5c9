"""Write the shape of a heap as a page: the answer in tables, and the icicle with the one script that draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from markupsafe import Markup

from leaklab.model.heap_shape import HeapShape, IcicleNode
from leaklab.render.heap_shape import render_shape_html
from leaklab.render.json import one_line, script_data
from leaklab.render.templates import joined, page
from leaklab.text import shorten, visible

DRAWING_SCRIPT = joined("page_parts.js", "icicle.js")
"""Draws an icicle of what `icicle_rows` returns: on a page of its own, and in the explorer."""
_SCRIPT = f'"use strict";\n{DRAWING_SCRIPT}\n{joined("heap_icicle.js")}'
Icicles: TypeAlias = Sequence[tuple[str, IcicleNode]]
"""Of each device the name, and what fills its memory."""
_LABEL_LIMIT, _NAME_LIMIT = 60, 200


def render_heap_page(shape: HeapShape, icicles: Icicles) -> str:
    """Return the shape of a heap as a page of its own that asks nothing of any server."""
    data: Mapping[str, object] = {"devices": icicle_rows(icicles)}
    place = Markup("<div>{}</div>").format(Markup(script_data(one_line(data, "icicle"), "icicle")))  # noqa: S704 - coded
    body = Markup(render_shape_html(shape, place))  # noqa: S704 - from templates
    return page(f"what fills the memory: {shape.name}" if shape.name else "what fills the memory", body, script=_SCRIPT)


def icicle_rows(icicles: Icicles) -> list[list[object]]:
    """Return *icicles* as the script reads them: plain data, every text cut and made visible."""
    return [[visible(device), _row(root)] for device, root in icicles]


def _row(node: IcicleNode) -> list[object]:
    """Return a node and all below it."""
    texts = (shorten(visible(node.label), _LABEL_LIMIT), *(shorten(visible(text), _NAME_LIMIT) for text in (
        node.expression, node.kind)))  # fmt: skip
    figures = (node.n_bytes, node.small_bytes, node.n_small, node.number)
    return [*texts, node.part, *figures, [_row(child) for child in node.children]]
