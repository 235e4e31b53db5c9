"""What magics and errors say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from forms import form
from forms_of_reports import series
from making import RECORDS, load, parts, rebuilt
from shell import open_shell

import leaklab

CELLS = (
    "%leakreport report.html",
    "%leakreport report.docx",
    "%memdiff cuda_step_1.pickle cuda_step_3.pickle",
    "%memdiff -q -v pair cuda_step_*.pickle\nprint(repr(pair))",
    "%memdiff cuda_step_1.pickle moment_after.npz",
    "%memdiff moment_missing.npz moment_after.npz",
    "%memdiff unknown_mark",
    "%memdiff",
    "%memdiff --cuda",
    "%memdiff --mark a.b",
    "%memdiff --mark name x = 1",
    "%memdiff -T report.docx x = 1",
    "%memdiff -v 1x x = 1",
    "%%memdiff x = 1\npass",
    "%leakcheck",
    "%%leakcheck -n 2\npass",
    "%%leakcheck -w -1\npass",
    "%%leakcheck -t 0\npass",
    "%%leakcheck --sites --no-sites\npass",
    "%%leakcheck -T report.pdf\npass",
    "%%leakcheck -T missing/report.html\npass",
    "%%leakcheck -v class\npass",
    "%%leakcheck --setup 'await x'\npass",
    "%leakwatch maybe",
    "%leakwatch status",
    "%whyalive",
    "%whyalive missing",
    "%whyalive 1",
    "%whyalive None",
    "%whyalive -n 0 print",
    "%autograd missing",
    "%autograd 1",
)


@form("magics.txt")
def _magics(_folder: Path) -> str:
    """What the magics say of stored files, and of what cannot be done."""
    with open_shell(may_fail=True) as run:
        told = {cell: last_lines(run(cell)) for cell in CELLS}
    return parts(**told).replace(str(RECORDS), "(RECORDS)")


def last_lines(printed: str) -> str:
    """Leave out the lines of a traceback: what is told is its last one."""
    return re.sub(r"(?s)-{20,}\n.*\n(?=\w+(Error|Found): )", "", printed)


WRONG = {
    "another kind": lambda: leaklab.WhyAlive.from_json("check_clean.json"),
    "an answer as a check": lambda: leaklab.load_report("whyalive_held.json"),
    "no file": lambda: leaklab.load_report("missing.json"),
    "no JSON": lambda: leaklab.LeakReport.from_json("{"),
    "no record": lambda: leaklab.LeakReport.from_json("{}"),
    "of an older version": lambda: leaklab.LeakReport.from_json(of_schema(0)),
    "of a newer version": lambda: leaklab.LeakReport.from_json(of_schema(99)),
    "a changed record": lambda: leaklab.LeakReport.from_json(of_schema(1).replace('"n_runs"', '"n_walks"')),
    "no moment": lambda: leaklab.HeapSnapshot.load("check_clean.json"),
    "no snapshot": lambda: leaklab.load_cuda_snapshot("moment_after.npz"),
    "no such snapshot": lambda: leaklab.load_cuda_snapshot("missing.pickle"),
    "one snapshot": lambda: leaklab.compare_cuda_snapshots(["cuda_oom.pickle"]),
    "an unknown key": lambda: series("step", key="line"),
    "a wrong card": lambda: series("step", card_bytes=0),
    "an unknown stack key": lambda: leaklab.load_cuda_snapshot("cuda_oom.pickle").by_stack("line"),
    "an unknown suffix": lambda: load("check_clean.json").save("report.docx"),
    "an unknown suffix of a notebook": lambda: load("notebook_before.json").save("report.csv"),
    "an unknown suffix of an answer": lambda: load("whyalive_held.json").save("report.docx"),
    "an unknown suffix of a graph": lambda: load("autograd_list.json").save("report.docx"),
    "an unknown suffix of a difference": lambda: rebuilt("memdiff_named.json").save("report.docx"),
    "an unknown suffix of a snapshot": lambda: leaklab.load_cuda_snapshot("cuda_oom.pickle").save("report.csv"),
    "an unknown suffix of a moment": lambda: load("moment_after.npz").save("moment.json"),
    "no suffix": lambda: load("check_clean.json").save("report"),
    "no folder": lambda: load("check_clean.json").to_html("missing/report.html"),
    "no such leak": lambda: load("check_graph_kept.json").graph(7),
    "no leak": lambda: load("check_clean.json").graph(),
    "an unknown style": lambda: load("check_graph_kept.json").graph(style="pretty"),
    "few runs": lambda: leaklab.leakcheck(print, runs=2),
    "a negative warm-up": lambda: leaklab.leakcheck(print, warmup=-1),
    "no time": lambda: leaklab.leakcheck(print, seconds=0),
    "no function": lambda: leaklab.leakcheck(3),
    "a generator": lambda: leaklab.leakcheck(generator),
    "a wrong name": lambda: leaklab.leakcheck(print, name=3),
    "a shared value": lambda: leaklab.whyalive(None),
    "no path": lambda: leaklab.whyalive([], max_paths=0),
    "a nameless run": lambda: leaklab.training_run(3),
    "a nameless watch": lambda: leaklab.watch(3),
    "a watch without parentheses": lambda: leaklab.watch(generator),
    "a nameless moment": lambda: leaklab.snapshot(3),
    "no moments": lambda: leaklab.diff(3),
    "nothing to explore": lambda: leaklab.explore(3),
    "no cycle's name": lambda: leaklab.cut_cycles(3),
    "no graph": lambda: leaklab.autograd(3, namespace={}),
    "a wrong name of a graph": lambda: leaklab.autograd([], name=3),
    "recording every 0 steps": lambda: leaklab.record_cuda(every=0),
    "a step outside": lambda: leaklab.record_cuda().step(),
}


def generator() -> Any:
    yield


def of_schema(number: int) -> str:
    return (RECORDS / "check_clean.json").read_text("utf-8").replace('"schema":1', f'"schema":{number}')


@form("errors.txt")
def _errors(folder: Path) -> str:
    (folder / "page.html").write_text("<html></html>")
    calls = {**WRONG, "a page without a record": lambda: leaklab.load_report(folder / "page.html")}
    told = {}
    for name, call in calls.items():
        try:
            told[name] = f"(no error: {call()!r})"
        except Exception as error:  # noqa: BLE001 - its type and its words are what is told
            told[name] = f"{type(error).__name__}: {error}"
    return parts(**told).replace(str(RECORDS), "(RECORDS)")
