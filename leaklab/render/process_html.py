"""Write the record of a process as HTML."""

from __future__ import annotations

from leaklab.model.process import ProcessRecord
from leaklab.render import process_text
from leaklab.render.templates import render
from leaklab.text import clipped


def render_process_html(record: ProcessRecord) -> str:
    """Return *record* as HTML without styles, scripts or ids, so that it shows in a notebook that is not trusted."""
    return str(render("process.html.j2", record=clipped(record), text=process_text))
