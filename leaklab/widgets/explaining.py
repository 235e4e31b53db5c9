"""Turn the answer of whyalive, and what an autograd graph keeps, into plain data for the explorer's page."""

from __future__ import annotations

from leaklab.asking.retaining import AutogradReport
from leaklab.model.alive import Alive
from leaklab.render.alive_text import render_alive
from leaklab.render.retention_words import details, headline
from leaklab.widgets.clipping import clip, clip_block
from leaklab.widgets.payload import Data, table_data


def explanation_data(alive: Alive) -> Data:
    """Return the answer: its sentence, the references to cut as code where Python can write them, the whole text."""
    cut = alive.cut.references if alive.cut is not None else ()
    return {
        "title": clip(f"{alive.asked or alive.what}: {alive.reason}", 1000),
        "cut": [{"code": one.is_statement, "text": clip_block(one.advice)} for one in cut],
        "text": clip_block(render_alive(alive)),
    }


def autograd_data(report: AutogradReport) -> Data:
    """Return what the graph keeps: its sentence, its tables, its drawing as DOT."""
    record = report.retention
    return {
        "title": clip(headline(record), 1000),
        "lines": [clip(line, 1000) for line in details(record)],
        "tables": {
            "Operations": table_data(report.operations),
            "Forward lines": table_data(report.lines),
            "Saved tensors": table_data(report.tensors),
        },
        "dot": report.graph().dot if record.drawings else "",
    }
