"""The table of causes, the most specific first, and the search through it."""

from __future__ import annotations

from collections.abc import Callable

from leaklab.explain.causes.advice import Advice, Cause
from leaklab.explain.causes.code import closure_kept, traceback_kept
from leaklab.explain.causes.cycles import cycle_garbage, immortal_cycle
from leaklab.explain.causes.graphs import autograd_ctx, graph_kept, tensor_kept
from leaklab.explain.causes.hooks import callback_registry, hook_left
from leaklab.explain.causes.outside import native, thread_kept
from leaklab.explain.causes.stores import cached_results, container_growth, global_cache, notebook_history
from leaklab.explain.causes.training import deepcopy_kept, optimizer_state, run_switch
from leaklab.explain.leaks.evidence import Evidence

Inspector = Callable[[Evidence], Advice | None]


INSPECTORS: tuple[tuple[str, Inspector], ...] = (
    ("notebook-history", notebook_history),
    ("immortal-cycle", immortal_cycle),
    ("deepcopy-kept", deepcopy_kept),
    ("cycle-garbage", cycle_garbage),
    ("native", native),
    ("traceback-kept", traceback_kept),
    ("hook-left", hook_left),
    ("autograd-ctx", autograd_ctx),
    ("thread-or-worker-kept", thread_kept),
    ("optimizer-state", optimizer_state),
    ("run-switch", run_switch),
    ("callback-registry", callback_registry),
    ("global-cache", cached_results),
    ("closure-kept", closure_kept),
    ("graph-kept", graph_kept),
    ("global-cache", global_cache),
    ("container-growth", container_growth),
    ("tensor-kept", tensor_kept),
)
"""A cause may be there twice: its plain signs are asked for where they would not be mistaken for another's."""


def find_cause(evidence: Evidence) -> Cause:
    """Return the first cause whose inspector recognises *evidence*; ``unknown`` if none does."""
    for slug, inspector in INSPECTORS:
        advice = inspector(evidence)
        if advice is not None:
            return Cause(slug, advice)
    plan = Advice(f"Follow the path: {evidence.place} is the last object that has a reason to be alive.")
    return Cause("unknown", plan)
