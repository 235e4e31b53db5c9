"""Think of changes that would end a leak, best first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from leaklab.cure.carried import carried_graph, gradient_cycle, replaced_by_larger
from leaklab.cure.case import Case
from leaklab.cure.containers import let_go
from leaklab.cure.library_calls import library_calls, maybe_calls
from leaklab.cure.lifetimes import cached_results, ended, exceptions, finished_tasks, numbered_names, parameter_groups
from leaklab.cure.links import cut_links
from leaklab.cure.live_entries import dropped
from leaklab.cure.proposal import Proposal
from leaklab.cure.registrations import counterparts, hook_handles, once

_MOST = 5
_MAKERS: tuple[Callable[[Case], Iterator[Proposal]], ...] = (
    ended,
    library_calls,
    exceptions,
    hook_handles,
    cached_results,
    gradient_cycle,
    carried_graph,
    replaced_by_larger,
    finished_tasks,
    cut_links,
    parameter_groups,
    numbered_names,
    counterparts,
    let_go,
    once,
    maybe_calls,
)


def proposals_for(case: Case) -> tuple[Proposal, ...]:
    """Return the changes worth trying for *case*, best first, at most five.

    No code of the user is run and nothing is changed. A change is a valid program, and leaves what it does not mean to
    change as it is; whether it cures, and what it breaks, only a trial can tell.
    """
    found: list[Proposal] = []
    for make in _MAKERS:
        for proposal in make(case):
            if all(proposal.changes != other.changes or not proposal.changes for other in found):
                found.append(replace(proposal, drops=proposal.drops or dropped(case, proposal.emptied)))
    return tuple(found[:_MOST])
