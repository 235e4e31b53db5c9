"""Turn a report into plain data for the explorer's page: every text cut and made visible, no object of the user."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import pandas as pd

from leaklab.model import Check, Leak
from leaklab.model.alive import WhyAliveRecord
from leaklab.model.autograd import AutogradRecord
from leaklab.model.sentences import TreeLine, growth_sentence, site_words
from leaklab.model.stacks import FrameNode
from leaklab.render.advice import LineGroup, ShownAdvice, advice_of, cell_to_copy, headline, line_groups
from leaklab.render.words import (
    effort_words,
    failure_words,
    is_leak,
    leak_facts,
    object_lines,
    projection_words,
    render_path,
)
from leaklab.render.writers import text_of
from leaklab.reports import autograd, tables
from leaklab.reports.alive import document_of
from leaklab.reports.back_graph import BackGraph, graph_of_leak
from leaklab.reports.stacks import check_tree, visible_frames
from leaklab.text import clip, clip_block, unit_words

_CELL_LINE = re.compile(r"Cell In ?\[(\d+)\], line (\d+)")
_THIS_LINE = re.compile(r"this cell, line (\d+)")
_FILE_LINE = re.compile(r"^(?P<file>[^:]+\.py):(?P<line>\d+)")
_AROUND = 2
"""Lines shown before and after."""


def source_around(site: str, cells: Sequence[str], this_cell: str = "") -> list[tuple[int, str, bool]]:
    """Return the lines around *site* as number, text, and whether it is the one; empty where there is no source.

    Args:
        site: As a leak's ``sites`` have it.
        cells: The notebook's cells as they were typed, by number.
        this_cell: The cell that a report calls so; empty if it is not known.
    """
    if this := _THIS_LINE.match(site):
        return _around(this_cell.splitlines(), int(this[1]))
    if cell := _CELL_LINE.search(site):
        number, line = int(cell[1]), int(cell[2])
        return _around(cells[number].splitlines() if 0 < number < len(cells) else [], line)
    if file := _FILE_LINE.match(site):
        return _around(linecache.getlines(_full_path(file["file"])), int(file["line"]))
    return []


def _around(lines: Sequence[str], line: int) -> list[tuple[int, str, bool]]:
    if not 0 < line <= len(lines):
        return []
    first, last = max(line - _AROUND, 1), min(line + _AROUND, len(lines))
    return [(number, lines[number - 1].rstrip("\n"), number == line) for number in range(first, last + 1)]


def _full_path(shown: str) -> str:
    """Return the file of a loaded module that *shown*, perhaps the end of its path, stands for."""
    for module in list(sys.modules.values()):
        file = vars(module).get("__file__") if type(module) is type(sys) else None
        if type(file) is str and (file == shown or file.endswith(f"/{shown}")):
            return file
    return shown


Data = dict[str, Any]
MAX_LEAKS = 300
MAX_ROWS = 1000
_FACT_WIDTH = 100
_VERSION = re.compile(r"\s+(?P<label>before|after):\s*")
_BYTES, _NUMBER, _TEXT = "bytes", "number", "text"


def report_data(check: Check, cells: Sequence[str], this_cell: str = "") -> Data:
    """Return what the explorer shows of *check*.

    *cells* are those of the notebook as they were typed, by number; *this_cell* is the checked one, empty if not
    known.
    """
    verdict = check.verdict
    leaks = [_leak(leak, verdict.outcome.value, cells, this_cell) for leak in check.leaks[:MAX_LEAKS]]
    leaks += [_leak(leak, "bounded", cells, this_cell) for leak in check.bounded[: MAX_LEAKS - len(leaks)]]
    lines = [projection_words(check), effort_words(check), failure_words(check) if check.failure else ""]
    left_out = len(check.leaks) + len(check.bounded) - len(leaks)
    more = [f"{left_out:,} more are in report.leaks"] if left_out else []
    return {
        "mode": "report",
        "outcome": verdict.outcome.value,
        "title": clip(headline(check), 1000),
        "lines": [clip(line) for line in lines if line],
        "notes": [clip(note, 1000) for note in check.notes] + more,
        "items": leaks,
        "groups": [_group(group, check) for group in line_groups(check.leaks) if _is_folded(group)],
        "runs": [
            {
                "run": run.number,
                "kept": run.n_kept,
                "tensor_bytes": run.tensor_bytes_kept,
                "heap": run.heap_bytes,
                "accelerator": run.accelerator_bytes,
                "rss": run.rss_bytes,
                "seconds": run.seconds,
            }
            for run in check.runs
        ],
        **({"stacks": _frame_row(visible_frames(check_tree(check)))} if check.stacks else {}),
        "tables": {
            "Objects": table_data(tables.object_table(check)),
            "Tensors": table_data(tables.tensor_table(check)),
            "Containers": table_data(tables.container_table(check)),
        },
        "environment": clip(", ".join(f"{name} {version}" for name, version in check.environment)),
    }


def _frame_row(node: FrameNode) -> list[object]:
    """Return a frame and all below it, as the script of icicles reads them."""
    return [node.label, "", "", "other", node.active_bytes, 0, 0, -1, [_frame_row(child) for child in node.children]]


def table_data(frame: pd.DataFrame) -> Data:
    """Return a table as columns, each with the kind of its values, and rows; what is missing is None."""
    if frame.index.name is not None:
        frame = frame.reset_index()
    kinds = [_kind(str(name), frame[name]) for name in frame.columns]
    rows = frame.head(MAX_ROWS).astype(object).to_numpy().tolist()
    return {
        "columns": [{"name": str(name), "kind": kind} for name, kind in zip(frame.columns, kinds, strict=True)],
        "rows": [[_cell(value) for value in row] for row in rows],
        "left_out": max(len(frame) - MAX_ROWS, 0),
    }


def rows_data(names: Sequence[tuple[str, str]], rows: Iterable[Sequence[object]]) -> Data:
    """Return a table of *rows*; *names* are the columns, each with its kind: ``text``, ``number`` or ``bytes``."""
    columns = [{"name": name, "kind": kind} for name, kind in names]
    return {"columns": columns, "rows": [[_cell(value) for value in row] for row in rows], "left_out": 0}


def graph_data(graph: BackGraph) -> Data:
    """Return the graph of a record as nodes and links."""
    nodes = [
        {
            "key": f"box {number}",
            "role": box.role,
            "kind": clip(box.kind),
            "summary": clip(box.summary),
            "status": box.status.value,
            "note": clip(box.note),
        }
        for number, box in enumerate(graph.boxes)
    ]
    links = [
        {
            "holder": f"box {arrow.source}",
            "held": f"box {arrow.target}",
            "reference": clip(arrow.reference),
            "suspect": arrow.is_suspect or arrow.is_cut,
        }
        for arrow in graph.arrows
    ]
    return {"live": False, "nodes": nodes, "links": links, "notes": []}


def advice_blocks(advice: str) -> list[Data]:
    """Return *advice* as blocks: sentences, and code, each with its label: ``before``, ``after`` or nothing.

    Advice has its code indented, and where it has two versions names them.
    """
    blocks: list[Data] = []
    for line in clip_block(advice).splitlines():
        is_code = line.startswith(" ") and bool(line.strip())
        named = _VERSION.match(line) if is_code else None
        label, text = (named["label"], line[named.end() :]) if named else ("", line)
        if blocks and blocks[-1]["code"] == is_code and not named:
            # Further lines of a version are aligned with its first.
            cut = min(blocks[-1]["indent"], len(text) - len(text.lstrip(" ")))
            blocks[-1]["text"] += f"\n{text[cut:]}"
        else:
            indent = named.end() if named else len(text) - len(text.lstrip(" "))
            blocks.append({"code": is_code, "label": label, "text": text.strip(), "indent": indent})
    return blocks


def _is_folded(group: LineGroup) -> bool:
    """Tell whether the list has *group* as one row: several leaks that one line leaves for one cause."""
    is_one_story = bool(group.line) and len(group.causes) == 1
    return is_one_story and sum(row.number <= MAX_LEAKS for row in group.rows) > 1


def _group(group: LineGroup, check: Check) -> Data:
    """Return the row that stands for *group*, and the places of its leaks in the list; it counts all of them."""
    leaks = [check.leaks[row.number - 1] for row in group.rows]
    first, *others = dict.fromkeys(leak.what for leak in leaks)
    has_one_unit = len({leak.unit for leak in leaks}) == 1
    return {
        "places": [row.number - 1 for row in group.rows if row.number <= MAX_LEAKS],
        "words": unit_words(len(leaks), "leaks" if is_leak(check) else "places"),
        "paths": _tree(group.place_lines),
        "row": {
            "outcome": check.verdict.outcome.value,
            "what": clip(first) + (f" and {unit_words(len(others), 'kinds')} more" if others else ""),
            "holder": clip(group.line),
            "count_per_run": sum(leak.count_per_run for leak in leaks) if has_one_unit else None,
            "bytes_per_run": sum(leak.bytes_per_run for leak in leaks),
            "retained": None,  # what two leaks both reach is in the size of each
            "cause": clip(group.causes[0]),
        },
    }


def _tree(lines: Sequence[TreeLine]) -> list[list[object]]:
    """Return merged paths as depths and words; references stand between backticks."""
    return [[line.depth, clip(line.words, 1000)] for line in lines]


def _leak(leak: Leak, outcome: str, cells: Sequence[str], this_cell: str) -> Data:
    sentence = growth_sentence(leak) if leak.bytes_per_run or leak.count_per_run else f"{leak.holder} no longer grows"
    advice = advice_of(leak)
    known = [fact for fact in leak_facts(leak, _FACT_WIDTH) if fact.label != "all paths"]  # they are drawn as a tree
    facts = [*([("line", (advice.line,), True)] if advice.line else []), *known]
    return {
        "what": clip(leak.what),
        "title": clip(sentence, 1000),
        "holder": clip(leak.holder),
        "outcome": outcome,
        "cause": clip(leak.cause),
        "count_per_run": leak.count_per_run,
        "bytes_per_run": leak.bytes_per_run,
        "unit": clip(leak.unit),
        "retained": leak.retained_bytes,
        "kept": list(leak.kept),
        "facts": [[name, clip("; ".join(words), 1000)] for name, words, _ in facts],
        "ways": _tree(object_lines(leak)),
        "path": clip_block(render_path(leak.path)),
        "graph": graph_data(graph_of_leak(leak)),
        "advice": _change_blocks(advice) if advice.words else advice_blocks(advice.text),
        "cell": cell_to_copy(leak),
        "sites": [
            {
                "site": clip(site_words(site)),
                "lines": [[number, clip(text), is_it] for number, text, is_it in source_around(site, cells, this_cell)],
            }
            for site in leak.sites
        ],
    }


def _change_blocks(advice: ShownAdvice) -> list[Data]:
    """Return a change that was tried as blocks like those of `advice_blocks`."""
    blocks: list[Data] = [{"code": False, "label": "", "text": clip(advice.words, 1000), "indent": 0}]
    labels = {"-": "before", "+": "after"}
    for sign, lines in groupby(advice.diff, key=lambda line: line.sign):
        text = clip_block("\n".join(line.text for line in lines))
        blocks.append({"code": sign != "@", "label": labels.get(sign, ""), "text": text, "indent": 0})
    blocks.append({"code": False, "label": "", "text": clip(f"Proof: {advice.proof}.", 1000), "indent": 0})
    return blocks


def _kind(name: str, column: Any) -> str:
    if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        return _TEXT
    return _BYTES if "bytes" in name else _NUMBER


def _cell(value: object) -> object:
    if value is None or value is pd.NA:
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, (int, float)) else clip(str(value))


def explanation_data(alive: WhyAliveRecord) -> Data:
    """Return the answer: its sentence, the references to cut as code where Python can write them, the whole text."""
    cut = alive.cut.references if alive.cut is not None else ()
    return {
        "title": clip(f"{alive.asked or alive.what}: {alive.reason}", 1000),
        "cut": [{"code": one.is_statement, "text": clip_block(one.advice)} for one in cut],
        "text": clip_block(text_of(document_of(alive))),
    }


def autograd_data(record: AutogradRecord) -> Data:
    """Return what the graph keeps: its sentence, its tables, its drawing as DOT."""
    return {
        "title": clip(autograd.headline(record), 1000),
        "lines": [clip(line, 1000) for line in autograd.details(record)],
        "tables": {
            "Operations": table_data(tables.part_table(record.operations, "operation")),
            "Forward lines": table_data(tables.part_table(record.lines, "line")),
            "Saved tensors": table_data(tables.kept_table(record)),
        },
        "dot": autograd.AutogradGraph(record.name, record.drawings[0]).dot if record.drawings else "",
    }
