"""A page of each kind that leaklab makes: what all of them must do is asked of every one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import samples
import torch
from markupsafe import Markup
from snapshot_writer import STEP, Card, snapshot, stack
from test_heap_page import SHAPE, heap

import leaklab
from leaklab.cuda.schema import memory_of
from leaklab.model import Check, Leak
from leaklab.model.check import KeptCheck, KeptView, NotebookChecks
from leaklab.render.templates import page
from leaklab.reports.check import LeakReport, said_since
from leaklab.reports.check_html import render_page
from leaklab.reports.cuda import CudaSnapshot
from leaklab.reports.notebook import NotebookReport
from leaklab.reports.saved_heap import render_heap_page
from leaklab.strip.drawing import strip_html

RECORDS = Path(__file__).parents[1] / "guards" / "records"


def made_at(leak: Leak, number: int) -> Leak:
    """Return *leak* as that of another holder, kept by the line of that number; all have a change that was tried."""
    (cure,) = samples.cured_leak().cures
    name = f"trainer.kept_{number}"
    changes = tuple(replace(change, where=f"cell 4, line {number}", line=number) for change in cure.changes)
    sites = (f"cell 4, line {number}: {name}.append(loss)  # keeps it",)
    cures = (replace(cure, changes=changes, words=f"Store only the number in `{name}`."),)
    return replace(leak, holder=name, fingerprint=f"{number:012}", sites=sites, cures=cures, holders=(name,))


def with_leaks(*leaks: Leak) -> Check:
    return replace(samples.leaky_check(), leaks=leaks, bounded=(), notes=())


def three_leaks() -> LeakReport:
    """Three lines, each with a change that was tried."""
    leaks = (samples.cured_leak(), *(made_at(samples.history_leak(), number) for number in (9, 12)))
    return LeakReport(with_leaks(*leaks))


def forty_leaks() -> LeakReport:
    """Four places at each of ten lines."""
    leak = samples.history_leak()
    places = [(line, entry) for line in range(5, 15) for entry in range(4)]
    leaks = (
        replace(made_at(leak, line), holder=f"trainer.kept_{line}[{entry}]", fingerprint=f"{line:06}{entry:06}")
        for line, entry in places
    )
    return LeakReport(with_leaks(*leaks))


def checked_again() -> LeakReport:
    """One of three leaks is left."""
    three = three_leaks()
    one = LeakReport(with_leaks(*three.record.leaks[1:2]))
    return said_since(one, three.compare(one))


def notebook() -> NotebookReport:
    checks = (samples.leaky_check(), three_leaks().record, samples.clean_check(), samples.failed_check())
    graph = LeakReport(samples.leaky_check()).graph()
    view = KeptView("a graph", "In [10]", str(graph), str(graph._repr_html_()))
    return NotebookReport(NotebookChecks("Training", tuple(KeptCheck(check, "In [3]") for check in checks), (view,)))


def snapshot_with_blocks() -> CudaSnapshot:
    """A snapshot as a file has it: with the places of its blocks, which no record has."""
    card = Card()
    stacks = [stack(f"/home/me/layer{i}.py:{10 + i} forward", "/home/me/train.py:41 step") for i in range(15)]
    live = [card.alloc((i % 7 + 1) << 18, stacks[i % 15]) for i in range(200)]
    for address in live[::3]:
        card.free(address)
    card.oom(3 << 30, STEP, device_free=0)
    begin = {"stage": "START", "name": "step", "device": 0, "time_us": card.events[50]["time_us"]}
    return CudaSnapshot(memory_of(snapshot(card, external_annotations=[begin]), "program.pickle"))


def monitored_loop() -> Any:
    history = []
    with leaklab.monitor("loop", first_step=20, quiet=True) as watch:
        for _ in range(600):
            history.append(torch.ones(4))
            watch.step()
    return watch.report


def training_run() -> Any:
    with leaklab.training_run("", namespace={}, show=False) as run:
        pass
    run.record = msgspec.convert(json.loads((RECORDS / "run_c.json").read_text("utf-8")), type(run.record))
    return run


def strip_left() -> str:
    """What a strip leaves below its cell."""
    record = leaklab.load(RECORDS / "monitor_states.json").record
    return page("a strip", Markup(strip_html(record)))  # noqa: S704 - leaklab's own


def record(name: str) -> Callable[[], Any]:
    if name.startswith("memdiff"):  # written by a leaklab that did not say what it is
        return lambda: leaklab.MemDiff.from_json(RECORDS / name)
    return lambda: leaklab.load(RECORDS / name)


def compared(before: str, after: str) -> Callable[[], Any]:
    return lambda: leaklab.compare(RECORDS / before, RECORDS / after)


REPORTS: dict[str, Callable[[], Any]] = {
    "one leak": lambda: LeakReport(samples.only(samples.cured_leak())),
    "three leaks": three_leaks,
    "forty leaks": forty_leaks,
    "every cause": record("check_every_cause.json"),
    "clean": lambda: LeakReport(samples.clean_check()),
    "bounded": lambda: LeakReport(samples.bounded_check()),
    "inconclusive": lambda: LeakReport(samples.failed_check()),
    "cured": record("check_cured.json"),
    "checked again": checked_again,
    "statements": record("check_statements.json"),
    "hostile texts": record("check_hostile.json"),
    "before and after": compared("check_two_leaks.json", "check_two_leaks_one_fixed.json"),
    "a notebook": notebook,
    "two notebooks": compared("notebook_before.json", "notebook_after.json"),
    "memdiff": record("memdiff_named.json"),
    "memdiff of a cell": record("memdiff_cell.json"),
    "two moments": compared("moment_before.npz", "moment_after.npz"),
    "whyalive": record("whyalive_held.json"),
    "whyalive of a frame": record("whyalive_frame.json"),
    "two answers": compared("whyalive_held.json", "whyalive_variable.json"),
    "autograd": record("autograd_tensor.json"),
    "autograd by line": record("autograd_lines.json"),
    "leaks": record("kernel_full.json"),
    "found": record("found_all.json"),
    "a training run": training_run,
    "a watched loop": record("monitor_states.json"),
    "a monitored loop": monitored_loop,
    "a process": record("process_out_of_memory.json"),
    "ranks": record("ranks_of_loops.json"),
    "ranks of checks": record("ranks_seven.json"),
    "a CUDA record": record("cuda_step_3.json"),
    "a CUDA snapshot": snapshot_with_blocks,
    "a CUDA series": record("cuda_step_series.json"),
    "two CUDA snapshots": compared("cuda_step_1.pickle", "cuda_steady_2.pickle"),
    "a heap file": record("heap_after.heap"),
    "two heaps": compared("heap_before.heap", "heap_after.heap"),
}
"""What saves itself as a page."""
MARKUP: dict[str, Callable[[], str]] = {
    "several checks": lambda: render_page(samples.leaky_check(), three_leaks().record, title="tests that leak"),
    "a heap of two memories": lambda: render_heap_page(SHAPE, [("cpu", heap()), ("cuda:0", heap())]),
    "a strip": strip_left,
}
"""What is written as a page."""


def write_pages(folder: Path) -> dict[str, Path]:
    """Write a page of each kind into *folder*; returns the file of each."""
    for kind, make in REPORTS.items():
        make().to_html(folder / f"{kind}.html")
    for kind, markup in MARKUP.items():
        (folder / f"{kind}.html").write_text(markup(), "utf-8")
    return {kind: folder / f"{kind}.html" for kind in (*REPORTS, *MARKUP)}
