"""The explorer: a widget that shows a report, or the living heap, and answers questions about it live."""

from __future__ import annotations

from leaklab.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "payload": "advice_blocks report_data source_around",
        "in_notebook": "find_cell held_by_notebook let_go",
        "session": "Session",
        "widget": "Explorer ExplorerWidget explore renderer script style",
    },
)
