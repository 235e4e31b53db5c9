"""Two things of every kind, compared, in every form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from forms import form, on, page
from making import fragment, headed, load, parts, rebuilt, saved, shown

import leaklab

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
