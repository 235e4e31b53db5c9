"""What is known of leaks: each idiom with its signs, the advice on it, and the changes of the code that end it.

One file per family of idioms, `IDIOMS` is the table, most specific first. The idiom that recognises a leak names its
cause (`find_cause`), and decides which changes are proposed (`proposals_for`): so advice and cure are of one mind.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from leaklab.cure.case import Case
from leaklab.cure.source import Proposal
from leaklab.explain.idioms.advice import Advice, Cause, named
from leaklab.explain.idioms.caches import (
    cache_bounded,
    cached_results,
    global_cache,
    kept_by_known,
    left_in_modules,
    library_calls,
    maybe_calls,
    notebook_history,
    results_emptied,
)
from leaklab.explain.idioms.callbacks import (
    callback_registry,
    handles_removed,
    hook_left,
    registered,
    registered_outside,
)
from leaklab.explain.idioms.containers import container_growth, let_go
from leaklab.explain.idioms.cycles import (
    collected,
    cycle_garbage,
    gradients_forgotten,
    held_weakly,
    hook_without_itself,
    immortal_cycle,
    native,
    packed_detached,
    saved_for_backward,
)
from leaklab.explain.idioms.drawings import drawn_anew
from leaklab.explain.idioms.fields import field_left_out, key_left_out
from leaklab.explain.idioms.frames import (
    closure_kept,
    default_made_anew,
    exception_as_text,
    frame_as_place,
    raised_anew,
    record_as_text,
    traceback_kept,
)
from leaklab.explain.idioms.graphs import autograd_ctx, graph_cut, graph_kept
from leaklab.explain.idioms.in_use import dropped
from leaklab.explain.idioms.inverses import taken_back
from leaklab.explain.idioms.keys import key_stays
from leaklab.explain.idioms.lifetimes import (
    ended,
    finished_tasks,
    left_open,
    left_running,
    tasks_leave,
    thread_kept,
)
from leaklab.explain.idioms.made import limited, made_weak
from leaklab.explain.idioms.models import (
    group_taken_out,
    one_name,
    optimizer_state,
    run_switch,
    state_taken_out,
    table_of_module,
)
from leaklab.explain.idioms.once import added_once, defined_once, made_once, registered_once, reused
from leaklab.explain.idioms.own_entries import run_entry_taken_out
from leaklab.explain.idioms.settings import chained_handler, left_again, left_set, put_back, unread_tee
from leaklab.explain.idioms.switches import switched_on
from leaklab.explain.idioms.tensors import deepcopy_kept, link_cut, tensor_kept, wrapped_once
from leaklab.explain.idioms.ways_out import emptied_by_owner, looked_up_last, reached, way_out
from leaklab.explain.idioms.windows import newest_part
from leaklab.explain.leaks.evidence import Evidence

Changes = Callable[[Case], Iterator[Proposal]]
"""Yields changes that would end a leak, best first; nothing where the code is not of the kind that it changes."""
_MOST = 5


@dataclass(frozen=True, slots=True)
class Idiom:
    """One way to leak.

    Attributes:
        slug: The cause by its name in records.
        recognise: Returns what to change, in words, where the evidence is of this idiom; else None.
        changes: What ends such a leak; they are proposed in the order of `CHANGES`.
    """

    slug: str
    recognise: Callable[[Evidence], Advice | None]
    changes: tuple[Changes, ...] = ()


_TAKEN_OUT = (
    switched_on, exception_as_text, frame_as_place, raised_anew, key_stays, reached, way_out, looked_up_last,
    drawn_anew, taken_back, run_entry_taken_out, emptied_by_owner, field_left_out, key_left_out, record_as_text,
    tasks_leave, made_weak, limited, let_go,
)  # fmt: skip
"""What was put somewhere is taken out again: as the program can, as its library can; or it goes with its run."""
_STORED = (ended, library_calls, left_again, *_TAKEN_OUT, defined_once, maybe_calls)
"""The same where it may have an end, or a library lets go of it."""
_OF_CYCLES = (
    held_weakly,
    hook_without_itself,
    handles_removed,
    gradients_forgotten,
    saved_for_backward,
    packed_detached,
)

IDIOMS: tuple[Idiom, ...] = (
    Idiom("descriptor-left", left_open, _STORED),
    Idiom("global-cache", left_in_modules, (one_name,)),
    Idiom("thread-or-worker-kept", left_running, _STORED),
    Idiom("notebook-history", notebook_history, (library_calls,)),
    Idiom("immortal-cycle", immortal_cycle, _OF_CYCLES),
    Idiom("deepcopy-kept", deepcopy_kept, (*_TAKEN_OUT, collected)),
    Idiom("cycle-garbage", cycle_garbage, (*_OF_CYCLES, *_TAKEN_OUT, collected)),
    Idiom("callback-registry", registered, (ended, left_again, handles_removed, taken_back, made_once)),
    Idiom("native", registered_outside, (left_again, taken_back, made_once)),
    Idiom("native", native, (gradients_forgotten,)),
    Idiom("traceback-kept", traceback_kept, _TAKEN_OUT),
    Idiom("callback-registry", chained_handler, (put_back,)),
    Idiom("hook-left", hook_left, (registered_once, handles_removed, left_again, taken_back, reused)),
    Idiom("autograd-ctx", autograd_ctx, _TAKEN_OUT),
    Idiom("thread-or-worker-kept", thread_kept, _STORED),
    Idiom("optimizer-state", optimizer_state, (library_calls, wrapped_once, group_taken_out, state_taken_out, let_go)),
    Idiom(
        "run-switch", run_switch, (library_calls, wrapped_once, link_cut, left_again, one_name, added_once, *_TAKEN_OUT)
    ),
    Idiom("container-growth", finished_tasks, (switched_on, tasks_leave, let_go)),
    Idiom("container-growth", table_of_module, (one_name, added_once)),
    Idiom("callback-registry", callback_registry, (handles_removed, added_once, *_TAKEN_OUT)),
    Idiom("global-cache", cached_results, (cache_bounded, results_emptied)),
    Idiom("closure-kept", closure_kept, (ended, default_made_anew, put_back, *_TAKEN_OUT)),
    Idiom(
        "graph-kept", graph_kept, (gradients_forgotten, packed_detached, graph_cut, newest_part, link_cut, *_TAKEN_OUT)
    ),
    Idiom("global-cache", global_cache, _STORED),
    Idiom("container-growth", container_growth, (gradients_forgotten, handles_removed, newest_part, *_STORED)),
    Idiom(
        "tensor-kept",
        tensor_kept,
        (library_calls, newest_part, wrapped_once, link_cut, left_again, put_back, *_TAKEN_OUT),
    ),
    Idiom("container-growth", left_set, (left_again, way_out, link_cut)),
    Idiom("container-growth", unread_tee, (let_go,)),
    Idiom("container-growth", kept_by_known, (library_calls,)),
)
"""A cause may be there twice: its plain signs are asked for where they would not be mistaken for another's."""


def find_cause(evidence: Evidence) -> Cause:
    """Return the cause whose idiom is the first to recognise *evidence*; ``unknown`` if none does."""
    for idiom in IDIOMS:
        advice = idiom.recognise(evidence)
        if advice is not None:
            return Cause(idiom.slug, advice, _also(idiom.slug, advice, evidence))
    plan = Advice(f"Follow the path: {named(evidence.place)} is the last object that has a reason to be alive.")
    return Cause("unknown", plan)


_WITH_GRAPH = frozenset({
    "container-growth", "callback-registry", "closure-kept", "hook-left", "notebook-history", "thread-or-worker-kept",
    "deepcopy-kept", "traceback-kept",
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


CHANGES: tuple[Changes, ...] = (
    switched_on, ended, library_calls, exception_as_text, frame_as_place, raised_anew, record_as_text, left_again,
    registered_once, held_weakly, hook_without_itself, handles_removed, cache_bounded, results_emptied,
    gradients_forgotten, saved_for_backward, packed_detached, tasks_leave, graph_cut, newest_part, wrapped_once,
    link_cut, group_taken_out, state_taken_out, one_name, put_back, default_made_anew, added_once, key_stays, reached,
    way_out, looked_up_last, drawn_anew, taken_back, run_entry_taken_out, emptied_by_owner, field_left_out,
    key_left_out, made_weak, limited, let_go, made_once, defined_once, reused, maybe_calls, collected,
)  # fmt: skip
"""All changes, the most specific first. Where the cause is unknown, or has none that fits the code, all are asked."""


def proposals_for(case: Case) -> tuple[Proposal, ...]:
    """Return the changes worth trying for *case*, best first, at most five: those of its cause, else any that fit.

    No code of the user is run and nothing is changed. A change is a valid program, and leaves what it does not mean to
    change as it is; whether it cures, and what it breaks, only a trial can tell.
    """
    own = {change for idiom in IDIOMS if idiom.slug == case.leak.cause for change in idiom.changes}
    found = _asked(case, [change for change in CHANGES if change in own])
    return tuple((found or _asked(case, [change for change in CHANGES if change not in own]))[:_MOST])


def _asked(case: Case, changes: list[Changes]) -> list[Proposal]:
    """Return what *changes* propose, each once, with what it drops of that which is in use."""
    found: list[Proposal] = []
    refused: frozenset[Changes] = frozenset()
    for propose in changes:
        for one in _proposed(propose, case) if propose not in refused else ():
            refused |= _INSTEAD.get(propose, frozenset())
            if all(one.changes != other.changes or not one.changes for other in found):
                found.append(one)
    return found


def _proposed(propose: Changes, case: Case) -> list[Proposal]:
    """Return what *propose* yields, with what it drops; a fault of ours costs its own changes, and not the report."""
    try:
        return [replace(one, drops=one.drops or dropped(case, one.emptied)) for one in propose(case)]
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is
        what = f"{type(error).__name__}: {error}"
        warnings.warn(f"leaklab left out changes of one kind, `{propose.__name__}`: {what}", RuntimeWarning, 2)
        return []


_INSTEAD: Mapping[Changes, frozenset[Changes]] = {registered_once: frozenset({handles_removed, taken_back})}
"""Where a change is proposed, others are harm: a hook that learns would begin anew in each run."""
