"""The live strip: memory and state of a loop, drawn while its cell runs."""

from __future__ import annotations

from leaklab.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "drawing": "strip_html strip_line strip_svg strip_text",
        "showing": "Strip StripSource show_strip",
        "widget": "StripWidget",
    },
)
