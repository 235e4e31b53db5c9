"""Every output of leaklab in every form, made from stored records, is the golden text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from making import (
    GOLDEN,
    RECORDS,
    WRITES,
    assert_golden,
    figure,
    fragment,
    graph,
    headed,
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
from shell import open_shell

import leaklab
from leaklab.cli import main

Form = Callable[[Path], str]
FORMS: dict[str, Form] = {}


def form(name: str) -> Callable[[Form], Form]:
    def noted(function: Form) -> Form:
        assert name not in FORMS
        FORMS[name] = function
        return function

    return noted


def on(name: str, record: Callable[[], Any], make: Callable[[Any], str]) -> None:
    """Note a form that needs no folder."""
    form(name)(lambda _folder: make(record()))


def page(view: Any) -> str:
    return settled(view.to_html())


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


COMPARED = (
    ("graph_kept", "graph_kept_fixed"),
    ("graph_kept_fixed", "graph_kept"),
    ("two_leaks", "two_leaks_one_fixed"),
    ("two_leaks", "two_leaks"),
    ("two_leaks", "tensors_kept"),
    ("two_leaks", "large_figures"),
    ("graph_kept", "failed"),
    ("graph_kept", "bounded"),
    ("clean", "clean"),
    ("clean", "hostile"),
    ("every_cause", "graph_kept"),
    ("hostile", "every_cause"),
)


def comparisons() -> dict[str, Any]:
    names = {f"{before} -> {after}": (before, after) for before, after in COMPARED}
    return {
        name: load(f"check_{one}.json").compare(load(f"check_{other}.json")) for name, (one, other) in names.items()
    }


@form("comparisons.txt")
def _comparisons(_folder: Path) -> str:
    return parts(**{name: f"fixed: {one.fixed}\n{shown(one)}" for name, one in comparisons().items()})


@form("comparisons.html")
def _pages_of_comparisons(_folder: Path) -> str:
    return headed(**{name: fragment(one) for name, one in comparisons().items() if one.lines})


def comparisons_of_notebooks() -> dict[str, Any]:
    before, after, redacted = (load(f"notebook_{name}.json") for name in ("before", "after", "redacted"))
    one, page = load("check_graph_kept.json"), load("notebook_before.html")
    pairs = {
        "before -> after": (before, after),
        "after -> before": (after, before),
        "page -> redacted": (page, redacted),
        "redacted -> after": (redacted, after),
        "before -> one check": (before, one),
    }
    return {name: first.compare(second) for name, (first, second) in pairs.items()}


@form("comparisons_of_notebooks.txt")
def _comparisons_of_notebooks(_folder: Path) -> str:
    return parts(**{name: f"passed: {one.passed}\n{shown(one)}" for name, one in comparisons_of_notebooks().items()})


@form("comparisons_of_notebooks.html")
def _pages_of_comparisons_of_notebooks(_folder: Path) -> str:
    return headed(**{name: fragment(one) for name, one in comparisons_of_notebooks().items()})


KINDS_COMPARED = {
    "checks": ("check_graph_kept.json", "check_graph_kept_fixed.json"),
    "checks_noted": ("check_cured.json", "check_noted.json"),
    "check_with_notebook": ("check_graph_kept.json", "notebook_after.json"),
    "notebooks": ("notebook_before.html", "notebook_after.json"),
    "moments": ("moment_before.npz", "moment_after.npz"),
    "heaps": ("heap_before.heap", "heap_after.heap"),
    "snapshots": ("cuda_step_1.pickle", "cuda_steady_2.pickle"),
    "runs": ("run_a.json", "run_c.json"),
    "graphs": ("autograd_tensor.json", "autograd_lines.json"),
    "searches": ("found_live.json", "found_all.json"),
    "answers": ("whyalive_held.json", "whyalive_variable.json"),
    "ranks": ("ranks_hostile.json", "ranks_seven.json"),
    "watches": ("monitor_states.json", "monitor_later.json"),
    "processes": ("process_out_of_memory.json", "process_asked.json"),
}
"""For each kind that `leaklab.compare` knows two files, before and after."""


def compared_files(*files: str) -> Any:
    """Compare files; those of runs, which 0.1.0 wrote without saying so, as what they hold."""
    return leaklab.compare(*(rebuilt(file) if file.startswith("run_") else file for file in files))


def forms_of_a_comparison(name: str, files: tuple[str, str]) -> None:
    """Both ways in one file: what is new one way is gone the other."""
    ways = {"there": files, "back": files[::-1]}
    compared = lambda: {way: compared_files(*pair) for way, pair in ways.items()}  # noqa: E731
    on(f"compare_{name}.txt", compared, lambda both: parts(**{way: shown(one) for way, one in both.items()}))
    on(f"compare_{name}.html", compared, lambda both: headed(**{way: fragment(one) for way, one in both.items()}))
    on(f"compare_{name}.page.html", lambda: compared_files(*files), page)
    if name not in WITHOUT_FIGURES:
        form(f"compare_{name}.json")(lambda folder: saved(compared_files(*files), ".json", folder) + "\n")


WITHOUT_FIGURES = ("checks", "checks_noted", "check_with_notebook", "notebooks")
"""What compares them is no record, and cannot be written as JSON."""
for file, pair in KINDS_COMPARED.items():
    forms_of_a_comparison(file, pair)


@form("script_of_pages.js")
def _script(folder: Path) -> str:
    return script_of(saved(load("notebook_after.json"), ".html", folder))


def explored(report: Any) -> str:
    """What the explorer sends to its page."""
    explorer = leaklab.explore(report, namespace={})
    try:
        return f"{json.dumps(explorer.widget.record, indent=1)}\n#### repr\n{explorer!r}\n"
    finally:
        explorer.close()


for file in ("check_bounded", "check_hostile", "check_two_leaks"):
    on(f"{file}.explorer.json", lambda file=file: load(f"{file}.json"), explored)

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


COMMANDS = {
    "show_oom": ("cuda", "show", "cuda_oom.pickle"),
    "show_without_trace": ("cuda", "show", "cuda_without_trace.pickle", "--audit"),
    "show_nothing": ("show", "missing.pickle"),
    "show_no_snapshot": ("cuda", "show", "check_clean.json"),
    "show_no_folder": ("cuda", "show", "cuda_oom.pickle", "--html", "missing/page.html"),
    "diff_three": ("cuda", "diff", "cuda_step_*.pickle"),
    "diff_steady": (
        "cuda",
        "diff",
        "cuda_steady_1.pickle",
        "cuda_steady_2.pickle",
        "cuda_steady_3.pickle",
        "--card",
        "80GB",
    ),
    "diff_exact": ("cuda", "diff", "cuda_step_1.pickle", "cuda_step_3.pickle", "--key", "exact"),
    "diff_project": ("cuda", "diff", "cuda_step_1.pickle", "cuda_step_3.pickle", "--key", "project"),
    "diff_above": ("cuda", "diff", "cuda_step_1.pickle", "cuda_step_3.pickle", "--fail-above", "10MB"),
    "diff_below": ("cuda", "diff", "cuda_step_1.pickle", "cuda_step_3.pickle", "--fail-above", "1GiB"),
    "diff_written": (
        "cuda",
        "diff",
        "cuda_step_*.pickle",
        "--html",
        "(FOLDER)/page.html",
        "--json",
        "(FOLDER)/record.json",
    ),
    "show_written": (
        "cuda",
        "show",
        "cuda_oom.pickle",
        "--html",
        "(FOLDER)/page.html",
        "--json",
        "(FOLDER)/record.json",
    ),
    "diff_one": ("diff", "cuda_step_1.pickle"),
    "compare_fixed": ("compare", "check_graph_kept.html", "check_graph_kept_fixed.json"),
    "compare_not_fixed": ("compare", "check_two_leaks.json", "check_two_leaks_one_fixed.json"),
    "compare_notebooks": ("compare", "notebook_before.html", "notebook_after.json"),
    "compare_no_report": ("compare", "whyalive_held.json", "notebook_after.json"),
    "compare_nothing": ("compare", "missing.json", "notebook_after.json"),
    "merge_one_file": ("merge", "ranks_seven.json"),
    "merge_nothing": ("merge", "missing"),
    "merge_no_ranks": ("merge", "whyalive_held.json"),
    "run_no_notebook": ("run", "missing.ipynb"),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_form_is_the_golden_one(name, tmp_path):
    assert_golden(GOLDEN / name, FORMS[name](tmp_path))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_prints_the_golden_text(name, capsys, tmp_path):
    status = main([word.replace("(FOLDER)", str(tmp_path)) for word in COMMANDS[name]])
    printed = capsys.readouterr()
    text = parts(status=str(status), out=printed.out, err=printed.err)
    text = text.replace(str(RECORDS), "(RECORDS)").replace(str(tmp_path.resolve()), "(FOLDER)")
    assert_golden(GOLDEN / f"command_{name}.txt", text)


@pytest.mark.parametrize("command", [("show", "cuda_oom.pickle"), ("diff", "cuda_step_1.pickle", "cuda_step_2.pickle")])
def test_the_command_writes_what_the_function_writes(command, tmp_path, capsys):
    main(["cuda", *command, "--html", str(tmp_path / "page.html"), "--json", str(tmp_path / "record.json")])
    make = leaklab.load_cuda_snapshot if command[0] == "show" else leaklab.compare_cuda_snapshots
    view = make(command[1] if command[0] == "show" else list(command[1:]))
    assert (tmp_path / "page.html").read_text("utf-8") == view.to_html()
    assert (tmp_path / "record.json").read_text("utf-8") == view.to_json()


SAVED = {
    "check_two_leaks.json": (".html", ".json"),
    "whyalive_held.json": (".json", ".txt", ".dot"),
    "autograd_tensor.json": (".html", ".json", ".txt", ".dot"),
    "memdiff_named.json": (".html", ".json"),
    "cuda_oom.pickle": (".html", ".json", ".txt"),
}


@pytest.mark.parametrize(
    ("name", "suffix"), [(name, suffix) for name, suffixes in SAVED.items() for suffix in suffixes]
)
def test_save_writes_what_the_methods_return(name, suffix, tmp_path):
    view = load(name)
    forms = {".html": view.to_html, ".json": view.to_json, ".txt": view.__str__, ".dot": lambda: view.graph().dot}
    assert saved(view, suffix, tmp_path) == forms[suffix]()
    if suffix in (".html", ".json"):
        method = view.to_html if suffix == ".html" else view.to_json
        assert method(tmp_path / "again") is None
        assert (tmp_path / "again").read_text("utf-8") == forms[suffix]()


def test_no_golden_file_is_left_over():
    wanted = {*FORMS, *(f"command_{name}.txt" for name in COMMANDS)}
    found = {path.name for path in GOLDEN.iterdir()}
    if WRITES:
        for name in found - wanted:
            (GOLDEN / name).unlink()
        pytest.skip("the files that are not used any more were deleted")
    assert found == wanted
