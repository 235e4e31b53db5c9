"""Every report in every form, made from stored records."""

from __future__ import annotations

import json
from collections.abc import Callable
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
    "cuda_oom", "cuda_step_series", "found_saved", "heap_after", "monitor_states", "process_out_of_memory", "run_c",
)  # fmt: skip
"""The others' pages would say nothing that these and their fragments do not say."""
TEXT_ONLY = ("check_cache", "check_noted", "check_graph_kept_fixed", "check_tensors_kept", "check_two_leaks_one_fixed")
"""They say nothing in HTML that the others do not say."""


def forms_of_a_check(name: str) -> None:
    record = lambda: load(f"{name}.json")  # noqa: E731
    on(f"{name}.txt", record, shown)
    form(f"{name}.md")(lambda folder: saved(record(), ".md", folder))
    form(f"{name}.csv")(lambda folder: saved(record(), ".csv", folder))
    on(f"{name}.tables.txt", record, lambda report: tables(report, "objects", "tensors", "containers", "runs"))
    on(f"{name}.plot.txt", record, lambda report: figure(report.plot()))
    if name in PAGES:
        on(f"{name}.page.html", record, page)
    if name not in TEXT_ONLY:
        on(f"{name}.html", record, fragment)
        on(f"{name}.graphs.txt", record, graphs_of_a_check)


def graphs_of_a_check(report: Any) -> str:
    drawn = {f"leak {number}": graph(report.graph(number)) for number in range(min(len(report.leaks), 2))}
    if drawn:
        drawn["objgraph"] = graph(report.graph(style="objgraph"), markup=False)
    return parts(**drawn)


def forms_of_a_notebook(name: str) -> None:
    record = lambda: load(f"{name}.json")  # noqa: E731
    on(f"{name}.txt", record, shown)
    form(f"{name}.md")(lambda folder: saved(record(), ".md", folder))
    form(f"{name}.page.html")(lambda folder: settled(saved(record(), ".html", folder)))


def forms_of_an_answer(name: str) -> None:
    record = lambda: load(f"{name}.json")  # noqa: E731
    on(f"{name}.txt", record, shown)
    form(f"{name}.md")(lambda folder: saved(record(), ".md", folder))
    on(f"{name}.html", record, fragment)
    if name in PAGES:
        on(f"{name}.page.html", record, page)
    on(f"{name}.tables.txt", record, lambda answer: tables(answer, "paths", "references"))
    styles = ("leaklab", "objgraph") if name == "whyalive_held" else ("leaklab",)
    on(f"{name}.graphs.txt", record, lambda answer: parts(**{style: graph(answer.graph(style)) for style in styles}))


def forms_of_a_graph(name: str) -> None:
    record = lambda: load(f"{name}.json")  # noqa: E731
    on(f"{name}.txt", record, shown)
    form(f"{name}.md")(lambda folder: saved(record(), ".md", folder))
    on(f"{name}.html", record, fragment)
    if name in PAGES:
        on(f"{name}.page.html", record, page)
    form(f"{name}.csv")(lambda folder: saved(record(), ".csv", folder))
    on(f"{name}.tables.txt", record, lambda report: tables(report, "operations", "lines", "tensors"))
    on(f"{name}.graphs.txt", record, drawings)


def drawings(report: Any) -> str:
    drawn = {"": graph(report.graph())}
    for by in ("node", "module", "line", "operation", "something"):
        try:
            drawn[by] = graph(report.graph(by))
        except ValueError as error:
            drawn[by] = f"ValueError: {error}"
    return parts(**drawn)


def forms_of_a_difference(name: str) -> None:
    record = lambda: rebuilt(f"{name}.json")  # noqa: E731
    on(f"{name}.txt", record, lambda view: shown(view) + parts(lines="\n".join(view.lines), notes=repr(view.notes)))
    form(f"{name}.md")(lambda folder: saved(record(), ".md", folder))
    on(f"{name}.html", record, fragment)
    if name in PAGES:
        on(f"{name}.page.html", record, page)
    form(f"{name}.csv")(lambda folder: saved(record(), ".csv", folder))
    attributes = ("objects", "tensors", "arrays", "containers", "variables", "devices")
    on(f"{name}.tables.txt", record, lambda view: tables(view, *attributes))


def forms_of_a_run(name: str) -> None:
    record = lambda: rebuilt(f"{name}.json")  # noqa: E731
    on(f"{name}.txt", record, shown)
    form(f"{name}.md")(lambda folder: saved(record(), ".md", folder))
    on(f"{name}.html", record, fragment)
    if name in PAGES:
        on(f"{name}.page.html", record, page)


def forms_of_ranks(name: str) -> None:
    record = lambda: load(f"{name}.json")  # noqa: E731
    on(f"{name}.txt", record, shown)
    form(f"{name}.md")(lambda folder: saved(record(), ".md", folder))
    on(f"{name}.html", record, fragment)
    on(f"{name}.page.html", record, page)
    on(f"{name}.tables.txt", record, lambda report: table(report.to_frame()))


def forms_of_a_search(name: str) -> None:
    record = lambda: load(f"{name}.json")  # noqa: E731
    on(f"{name}.txt", record, lambda found: f"{len(found)} {found.n_bytes} {found.holders}\n{shown(found)}")
    form(f"{name}.md")(lambda folder: saved(record(), ".md", folder))
    form(f"{name}.csv")(lambda folder: saved(record(), ".csv", folder))
    on(f"{name}.html", record, fragment)
    if name in PAGES:
        on(f"{name}.page.html", record, page)
    on(f"{name}.tables.txt", record, lambda found: table(found.to_frame()))


def forms_of_a_watch(name: str) -> None:
    record = lambda: load(f"{name}.json")  # noqa: E731
    on(f"{name}.txt", record, lambda watch: f"leaked: {watch.leaked}, checks: {watch.checks!r}\n{shown(watch)}")
    form(f"{name}.md")(lambda folder: saved(record(), ".md", folder))
    on(f"{name}.html", record, fragment)
    if name in PAGES:
        on(f"{name}.page.html", record, page)
    on(f"{name}.strip.txt", record, lambda watch: strip_forms(watch)["text"])
    on(f"{name}.strip.html", record, lambda watch: strip_forms(watch)["html"])
    on(f"{name}.strip.json", record, lambda watch: f"{json.dumps(strip_messages(watch), indent=1)}\n")


def forms_of_a_process(name: str) -> None:
    record = lambda: load(f"{name}.json")  # noqa: E731
    on(f"{name}.txt", record, lambda process: f"{process.holders}\n{shown(process)}")
    form(f"{name}.md")(lambda folder: saved(record(), ".md", folder))
    on(f"{name}.html", record, fragment)
    if name in PAGES:
        on(f"{name}.page.html", record, page)


ASKED_OF_A_HEAP = ("model[0].weight", "cache['blob']", "views[0]", "losses[0]", "0", "missing")


def forms_of_a_heap(name: str) -> None:
    record = lambda: load(f"{name}.heap")  # noqa: E731
    on(
        f"{name}.txt",
        record,
        lambda heap: shown(heap) + parts(**{what: answered(heap, what) for what in ASKED_OF_A_HEAP}),
    )
    on(f"{name}.html", record, fragment)
    if name in PAGES:
        on(f"{name}.page.html", record, page)
    on(f"{name}.tables.txt", record, lambda heap: tables(heap, "holders", "kinds"))


def answered(heap: Any, what: str) -> str:
    try:
        return str(heap.why(int(what) if what.isdigit() else what))
    except leaklab.LeaklabError as error:
        return f"{type(error).__name__}: {error}"


def forms_of_a_snapshot(name: str) -> None:
    record = lambda: leaklab.load_cuda_snapshot(f"{name}.pickle")  # noqa: E731
    on(f"{name}.txt", record, shown)
    form(f"{name}.md")(lambda folder: saved(record(), ".md", folder))
    on(f"{name}.html", record, fragment)
    if name in PAGES:
        on(f"{name}.page.html", record, page)
    on(f"{name}.tables.txt", record, stacks)
    on(f"{name}.plot.txt", record, lambda one: parts(plot=figure(one.plot()), stacks=figure(one.plot_stacks())))


def stacks(snapshot: Any) -> str:
    by_stack = {key: table(snapshot.by_stack(key)) for key in ("exact", "project")}
    return parts(pools=table(snapshot.pools), **by_stack)


LEAKY = Path(__file__).parents[2] / "notebooks" / "data"


def series(name: str, **options: Any) -> Any:
    return leaklab.compare_cuda_snapshots([f"cuda_{name}_{number}.pickle" for number in (1, 2, 3)], **options)


def forms_of_a_series(name: str, record: Callable[[], Any]) -> None:
    on(f"{name}.txt", record, shown)
    form(f"{name}.md")(lambda folder: saved(record(), ".md", folder))
    on(f"{name}.html", record, fragment)
    if name in PAGES:
        on(f"{name}.page.html", record, page)
    form(f"{name}.csv")(lambda folder: saved(record(), ".csv", folder))
    on(f"{name}.tables.txt", record, lambda one: tables(one, "stacks", "devices"))
    on(f"{name}.plot.txt", record, lambda one: figure(one.plot()))


for file in names("check_*.json"):
    forms_of_a_check(file.removesuffix(".json"))
for file in names("notebook_*.json"):
    forms_of_a_notebook(file.removesuffix(".json"))
for file in names("whyalive_*.json"):
    forms_of_an_answer(file.removesuffix(".json"))
for file in names("autograd_*.json"):
    forms_of_a_graph(file.removesuffix(".json"))
for file in names("memdiff_*.json"):
    forms_of_a_difference(file.removesuffix(".json"))
for file in names("run_*.json"):
    forms_of_a_run(file.removesuffix(".json"))
for file in names("ranks_*.json"):
    forms_of_ranks(file.removesuffix(".json"))
for file in names("found_*.json"):
    forms_of_a_search(file.removesuffix(".json"))
for file in names("monitor_*.json"):
    forms_of_a_watch(file.removesuffix(".json"))
for file in names("process_*.json"):
    forms_of_a_process(file.removesuffix(".json"))
for file in names("heap_*.heap"):
    forms_of_a_heap(file.removesuffix(".heap"))
for file in ("cuda_oom", "cuda_step_3", "cuda_of_2023", "cuda_without_trace"):
    forms_of_a_snapshot(file)
forms_of_a_series("cuda_step_series", lambda: series("step", card_bytes=80_000_000_000))
forms_of_a_series(
    "cuda_leak_series",
    lambda: leaklab.compare_cuda_snapshots(sorted(LEAKY.glob("leaky_*.pickle")), card_bytes=80_000_000_000),
)
forms_of_a_series("cuda_steady_series", lambda: series("steady", key="exact"))
forms_of_a_series(
    "cuda_pair_series", lambda: leaklab.compare_cuda_snapshots(["cuda_step_1.pickle", "cuda_steady_2.pickle"])
)


@form("moments.txt")
def _moments(_folder: Path) -> str:
    return parts(**{name: repr(load(name)) for name in names("moment_*.npz")})


@form("script_of_pages.js")
def _script(folder: Path) -> str:
    return script_of(saved(load("notebook_after.json"), ".html", folder))
