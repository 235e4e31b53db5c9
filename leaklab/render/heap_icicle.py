"""Write the shape of a heap as a page: the answer in tables, and the icicle with the one script that draws it."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from leaklab.model.heap_shape import HeapShape, IcicleNode
from leaklab.render.heap_shape import render_shape_html, shape_words
from leaklab.render.json import one_line, script_data
from leaklab.render.templates import only_script, page, read
from leaklab.text import shorten, visible

SCRIPT = read("heap_icicle.js")
_LABEL_LIMIT, _NAME_LIMIT = 60, 200
_TITLE_LIMIT = 120


def render_heap_page(shape: HeapShape, icicle: IcicleNode) -> str:
    """Return the shape of a heap as a page of its own that asks nothing of any server."""
    data: Mapping[str, object] = {"root": _row(icicle)}
    place = Markup("<div>{}</div>").format(Markup(script_data(one_line(data, "icicle"), "icicle")))  # noqa: S704 - coded
    body = Markup(f"{render_shape_html(shape, place)}<script>{SCRIPT}</script>")  # noqa: S704 - from templates
    return page(shorten(shape_words(shape), _TITLE_LIMIT), body, policy=only_script(SCRIPT))


def _row(node: IcicleNode) -> list[object]:
    """Return a node as the script reads it."""
    texts = (shorten(visible(node.label), _LABEL_LIMIT), *(shorten(visible(text), _NAME_LIMIT) for text in (
        node.expression, node.kind)))  # fmt: skip
    figures = (node.n_bytes, node.small_bytes, node.n_small, node.number)
    return [*texts, node.part, *figures, [_row(child) for child in node.children]]
