"""Name the cause of a leak, and what to change.

One inspector (a small function) per cause, in small modules by family; `INSPECTORS` is the table, most specific first.
"""

from __future__ import annotations

from collections.abc import Callable

from leaklab.explain.causes.advice import Advice, Cause, named, with_effect, with_line
from leaklab.explain.causes.callbacks import (
    callback_registry,
    chained_handler,
    closure_kept,
    hook_left,
    registered,
    registered_outside,
    traceback_kept,
)
from leaklab.explain.causes.process import left_open, left_running
from leaklab.explain.causes.stores import (
    cached_results,
    container_growth,
    finished_tasks,
    global_cache,
    kept_by_known,
    left_in_modules,
    native,
    notebook_history,
    table_of_module,
    thread_kept,
)
from leaklab.explain.causes.torch import (
    autograd_ctx,
    cycle_garbage,
    deepcopy_kept,
    graph_kept,
    immortal_cycle,
    optimizer_state,
    run_switch,
    tensor_kept,
)
from leaklab.explain.evidence import Evidence

Inspector = Callable[[Evidence], Advice | None]


INSPECTORS: tuple[tuple[str, Inspector], ...] = (
    ("descriptor-left", left_open),
    ("global-cache", left_in_modules),
    ("thread-or-worker-kept", left_running),
    ("notebook-history", notebook_history),
    ("immortal-cycle", immortal_cycle),
    ("deepcopy-kept", deepcopy_kept),
    ("cycle-garbage", cycle_garbage),
    ("callback-registry", registered),
    ("native", registered_outside),
    ("native", native),
    ("traceback-kept", traceback_kept),
    ("callback-registry", chained_handler),
    ("hook-left", hook_left),
    ("autograd-ctx", autograd_ctx),
    ("thread-or-worker-kept", thread_kept),
    ("optimizer-state", optimizer_state),
    ("run-switch", run_switch),
    ("container-growth", finished_tasks),
    ("container-growth", table_of_module),
    ("callback-registry", callback_registry),
    ("global-cache", cached_results),
    ("closure-kept", closure_kept),
    ("graph-kept", graph_kept),
    ("global-cache", global_cache),
    ("container-growth", container_growth),
    ("tensor-kept", tensor_kept),
    ("container-growth", kept_by_known),
)
"""A cause may be there twice: its plain signs are asked for where they would not be mistaken for another's."""


def find_cause(evidence: Evidence) -> Cause:
    """Return the first cause whose inspector recognises *evidence*; ``unknown`` if none does."""
    for slug, inspector in INSPECTORS:
        advice = inspector(evidence)
        if advice is not None:
            return Cause(slug, advice, _also(slug, advice, evidence))
    plan = Advice(f"Follow the path: {named(evidence.place)} is the last object that has a reason to be alive.")
    return Cause("unknown", plan)


_WITH_GRAPH = frozenset({
    "container-growth", "callback-registry", "closure-kept", "hook-left", "notebook-history", "thread-or-worker-kept",
    "deepcopy-kept",
})  # fmt: skip
"""Causes beside which it is worth a word that what is kept carries an autograd graph."""


def _also(slug: str, advice: Advice, evidence: Evidence) -> tuple[str, ...]:
    """Return the slugs of what else is so."""
    has_closure = any(step.reference.startswith("closure variable") for step in evidence.path.steps)
    found = [*advice.also]
    found += ["graph-kept"] if evidence.has_graph and slug in _WITH_GRAPH else []
    found += ["global-cache"] if slug == "graph-kept" and global_cache(evidence) is not None else []
    found += ["closure-kept"] if has_closure and slug in {"hook-left", "callback-registry"} else []
    return tuple(one for one in dict.fromkeys(found) if one != slug)


__all__ = ["INSPECTORS", "Advice", "Cause", "Inspector", "find_cause", "with_effect", "with_line"]
