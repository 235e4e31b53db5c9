"""Every report in every form, made from stored records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from forms import form, on, page
from making import (
    figure,
    fragment,
    graph,
    load,
    names,
    parts,
    rebuilt,
    saved,
    script_of,
    settled,
    shown,
    strip_forms,
    strip_messages,
    table,
    tables,
)

import leaklab

PAGES = (
    "check_failed", "check_graph_kept", "check_hostile", "whyalive_held", "autograd_tensor", "memdiff_named",
    "cuda_oom", "cuda_step_series", "found_saved", "heap_after", "kernel_full", "monitor_states",
    "process_out_of_memory", "run_c", "ranks_hostile", "ranks_of_loops", "ranks_seven",
)  # fmt: skip
"""The others' pages would say nothing that these and their fragments do not say."""
TEXT_ONLY = ("check_cache", "check_noted", "check_graph_kept_fixed", "check_tensors_kept", "check_two_leaks_one_fixed")
"""They say nothing in HTML that the others do not say."""
More = dict[str, Callable[[Any], str]]


def forms_of(
    name: str,
    record: Callable[[], Any],
    more: More | None = None,
    *,
    text: Callable[[Any], str] = shown,
    saves: Iterable[str] = (".md",),
) -> None:
    """Note the text of a report, its fragment, its page, what it saves, and *more* by the ends of their names."""
    on(f"{name}.txt", record, text)
    for suffix in saves:
        form(f"{name}{suffix}")(lambda folder, suffix=suffix: saved(record(), suffix, folder))
    if name not in TEXT_ONLY:
        on(f"{name}.html", record, fragment)
    if name in PAGES:
        on(f"{name}.page.html", record, page)
    for end, make in (more or {}).items():
        on(f"{name}.{end}", record, make)


def stored(pattern: str, read: Callable[[str], Any] = load) -> dict[str, Callable[[], Any]]:
    """Return how each record is read that fits *pattern*, by its name."""
    return {file.rpartition(".")[0]: lambda file=file: read(file) for file in names(pattern)}


def in_tables(*attributes: str) -> Callable[[Any], str]:
    return lambda report: tables(report, *attributes)


def as_table(report: Any) -> str:
    return table(report.to_frame())


def plotted(report: Any) -> str:
    return figure(report.plot())


def graphs_of_a_check(report: Any) -> str:
    drawn = {f"leak {number}": graph(report.graph(number)) for number in range(min(len(report.leaks), 2))}
    if drawn:
        drawn["objgraph"] = graph(report.graph(style="objgraph"), markup=False)
    return parts(**drawn)


def drawings(report: Any) -> str:
    drawn = {"": graph(report.graph())}
    for by in ("node", "module", "line", "operation", "something"):
        try:
            drawn[by] = graph(report.graph(by))
        except ValueError as error:
            drawn[by] = f"ValueError: {error}"
    return parts(**drawn)


ASKED_OF_A_HEAP = ("model[0].weight", "cache['blob']", "views[0]", "losses[0]", "0", "missing")


def answered(heap: Any, what: str) -> str:
    try:
        return str(heap.why(int(what) if what.isdigit() else what))
    except leaklab.LeaklabError as error:
        return f"{type(error).__name__}: {error}"


def stacks(snapshot: Any) -> str:
    by_stack = {key: table(snapshot.by_stack(key)) for key in ("exact", "project")}
    return parts(pools=table(snapshot.pools), **by_stack)


LEAKY = Path(__file__).parents[2] / "notebooks" / "data"
CARD = 80_000_000_000


def series(name: str, **options: Any) -> Any:
    return leaklab.compare_cuda_snapshots([f"cuda_{name}_{number}.pickle" for number in (1, 2, 3)], **options)


SERIES: dict[str, Callable[[], Any]] = {
    "cuda_step_series": lambda: series("step", card_bytes=CARD),
    "cuda_leak_series": lambda: leaklab.compare_cuda_snapshots(sorted(LEAKY.glob("leaky_*.pickle")), card_bytes=CARD),
    "cuda_steady_series": lambda: series("steady", key="exact"),
    "cuda_pair_series": lambda: leaklab.compare_cuda_snapshots(["cuda_step_1.pickle", "cuda_steady_2.pickle"]),
}

for name, read in stored("check_*.json").items():
    kinds: More = {"tables.txt": in_tables("objects", "tensors", "containers", "runs"), "plot.txt": plotted}
    if name not in TEXT_ONLY:
        kinds["graphs.txt"] = graphs_of_a_check
    forms_of(name, read, kinds, saves=(".md", ".csv"))
for name, read in stored("notebook_*.json").items():
    on(f"{name}.txt", read, shown)
    form(f"{name}.md")(lambda folder, read=read: saved(read(), ".md", folder))
    form(f"{name}.page.html")(lambda folder, read=read: settled(saved(read(), ".html", folder)))
for name, read in stored("whyalive_*.json").items():
    styles = ("leaklab", "objgraph") if name == "whyalive_held" else ("leaklab",)
    kinds = {
        "tables.txt": in_tables("paths", "references"),
        "graphs.txt": lambda answer, styles=styles: parts(**{style: graph(answer.graph(style)) for style in styles}),
    }
    forms_of(name, read, kinds)
for name, read in stored("autograd_*.json").items():
    kinds = {"tables.txt": in_tables("operations", "lines", "tensors"), "graphs.txt": drawings}
    forms_of(name, read, kinds, saves=(".md", ".csv"))
for name, read in stored("memdiff_*.json").items():
    kinds = {"tables.txt": in_tables("objects", "tensors", "arrays", "containers", "variables", "devices")}
    forms_of(
        name, read, kinds, saves=(".md", ".csv"),
        text=lambda view: shown(view) + parts(lines="\n".join(view.lines), notes=repr(view.notes)),
    )  # fmt: skip
for name, read in stored("run_*.json", rebuilt).items():
    forms_of(name, read)
for name, read in stored("ranks_*.json").items():
    forms_of(name, read, {"tables.txt": as_table})
for name, read in stored("found_*.json").items():
    forms_of(
        name, read, {"tables.txt": as_table}, saves=(".md", ".csv"),
        text=lambda found: f"{len(found)} {found.n_bytes} {found.holders}\n{shown(found)}",
    )  # fmt: skip
for name, read in stored("monitor_*.json").items():
    kinds = {
        "strip.txt": lambda watch: strip_forms(watch)["text"],
        "strip.html": lambda watch: strip_forms(watch)["html"],
        "strip.json": lambda watch: f"{json.dumps(strip_messages(watch), indent=1)}\n",
    }
    forms_of(name, read, kinds, text=lambda watch: f"leaked: {watch.leaked}, checks: {watch.checks!r}\n{shown(watch)}")
for name, read in stored("kernel_*.json").items():
    forms_of(name, read)
for name, read in stored("process_*.json").items():
    forms_of(name, read, text=lambda process: f"{process.holders}\n{shown(process)}")
for name, read in stored("heap_*.heap").items():
    forms_of(
        name, read, {"tables.txt": in_tables("holders", "kinds")}, saves=(),
        text=lambda heap: shown(heap) + parts(**{what: answered(heap, what) for what in ASKED_OF_A_HEAP}),
    )  # fmt: skip
for name in ("cuda_oom", "cuda_step_3", "cuda_of_2023", "cuda_without_trace"):
    kinds = {
        "tables.txt": stacks,
        "plot.txt": lambda one: parts(plot=figure(one.plot()), stacks=figure(one.plot_stacks())),
    }
    forms_of(name, lambda name=name: leaklab.load_cuda_snapshot(f"{name}.pickle"), kinds)
for name, read in SERIES.items():
    kinds = {"tables.txt": in_tables("stacks", "devices"), "plot.txt": plotted}
    forms_of(name, read, kinds, saves=(".md", ".csv"))


@form("moments.txt")
def _moments(_folder: Path) -> str:
    return parts(**{name: repr(load(name)) for name in names("moment_*.npz")})


@form("script_of_pages.js")
def _script(folder: Path) -> str:
    return script_of(saved(load("notebook_after.json"), ".html", folder))
