"""Check one case in a process of its own, the way a notebook does: through the cell magic.

Hooks, threads and caches that a case leaves behind are what it is about, so no two cases share a process.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass

from apart import apart
from cases import CASES
from leak_case import Case

AT_NIGHT = os.environ.get("LEAKLAB_NIGHTLY") == "1"
FOLLOWED = frozenset({
    "cache_missed_in_half_of_the_runs", "crops_of_random_size_every_fourth_run", "graph_smoothed_loss_with_backward",
    "hard_examples_every_third_run", "instances_in_a_class_attribute", "one_list_flushed_its_neighbour_not",
    "optimizer_steps_inside_backward", "rows_as_dicts_of_random_number", "numpy_features_in_a_dict",
    "text_added_to_itself", "trees_with_parents_gc_off",
})  # fmt: skip
"""Leaks that are followed as long as in a notebook: two seconds, up to hundreds of runs. Others tell as much in 16
runs; at night all are followed so. No cell is called clean or bounded before its time."""


def by_day(n_of_cause: int) -> frozenset[str]:
    """Return which leaks are checked by day: so many of each cause, and those that are followed."""
    of_cause: dict[str, list[str]] = defaultdict(list)
    for case in CASES.values():
        if case.leaks:
            of_cause[case.causes[0]].append(case.name)
    return FOLLOWED.union(*(names[:n_of_cause] for names in of_cause.values()))


@dataclass(frozen=True)
class Said:
    """What leaklab said of one cell.

    Attributes:
        leaked: Whether it called it a leak.
        verdict: Its sentence.
        place: Path and holder of the first leak; empty without one.
        cause: The first leak's cause; empty without one.
        failure: Why there is no answer; empty if there is one.
    """

    leaked: bool = False
    verdict: str = ""
    place: str = ""
    cause: str = ""
    failure: str = ""


def ask(case: Case, cell: str) -> Said:
    """Return what is said of *cell*."""
    said: Said = apart(_check, case, cell)
    return said


def _check(case: Case, cell: str) -> Said:
    import torch
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    os.environ["MPLBACKEND"] = "agg"
    torch.set_num_threads(1)
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    if case.gc_off:
        shell.run_cell("import gc; gc.disable()").raise_error()
    shell.run_cell(case.setup).raise_error()
    shell.run_line_magic("load_ext", "leaklab")
    is_followed = not case.leaks or cell == case.fixed or AT_NIGHT or case.name in FOLLOWED
    runs = "" if is_followed else "-n 16"
    shell.run_cell_magic("leakcheck", f"-q --no-sites --no-cure -v report_of_case {runs}", cell)
    report = shell.user_ns["report_of_case"]
    first = report.leaks[0] if report.leaks else None
    return Said(
        leaked=report.leaked,
        verdict=str(report.verdict),
        place=f"{first.path} | {first.holder}" if first else "",
        cause=first.cause if first else "",
        failure=report.check.failure,
    )
