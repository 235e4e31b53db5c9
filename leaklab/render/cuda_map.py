"""Write the maps of blocks of a page: their data, and the one script that draws them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import fields as dataclass_fields

from markupsafe import Markup

from leaklab.model.cuda import BlockMap
from leaklab.render.json import one_line, script_data
from leaklab.render.templates import joined
from leaklab.text import visible

SCRIPT = f'"use strict";\n{joined("page_parts.js", "cuda_map.js")}'


def maps_markup(maps: Sequence[BlockMap]) -> Markup:
    """Return a place for each map, with its data; the script fills them. Without maps nothing."""
    places = (script_data(one_line(_fields(one), "map"), "blocks") for one in maps)
    return Markup("".join(f"<div>{place}</div>" for place in places))  # noqa: S704 - coded by `script_data`


def _fields(one: BlockMap) -> dict[str, object]:
    """Return the fields of a map; columns as Base64, names as they are shown."""
    fields = {
        name: base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value
        for name, value in ((field.name, getattr(one, field.name)) for field in dataclass_fields(one))
    }
    stacks = [
        {"label": visible(stack.label), "group": visible(stack.group), "frames": [*map(visible, stack.frames)]}
        for stack in one.stacks
    ]
    phases = [(first, last, visible(name)) for first, last, name in one.phases]
    return {**fields, "stacks": stacks, "phases": phases}
