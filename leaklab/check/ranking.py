"""Order the leaks, and leave out what does not deserve the reader's time: bookkeeping, consequences, small ones."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from threading import Thread

import numpy as np

from leaklab.check.findings import Explained, Finding
from leaklab.explain.leaks.groups import in_hand_of_threads
from leaklab.heap.known_holders import known_holder
from leaklab.heap.view import HeapView
from leaklab.model import Leak, Status, Step
from leaklab.model.check import CHILDREN, DESCRIPTORS
from leaklab.model.sentences import growth_sentence, more_words
from leaklab.runtime.objects import is_kind_of
from leaklab.runtime.ours import Origin, origin_of
from leaklab.text import format_bytes

SMALL_BYTES = 4096
"""Less than this is little: bounded or undecided it is worth a line only where it is the user's, and what grows by no
more per run can be a consequence of a larger leak."""
LIBRARY_BYTES = 1024
"""What a library notes in its own tables, by less than this per run, is not the user's leak."""
USER_SIDE = ("notebook variable", "module '__main__'")
"""Where paths begin that the user can mend."""
_N_SHOWN = 3

BOOKKEEPING_BYTES = 4096
_BOOKKEEPERS = ("IPython.core.history.", "IPython.core.displayhook.", "IPython.core.compilerop.")
_CELL = re.compile(r"ipykernel_\d|<ipython-input-")
"""Stands in the name of the file that the notebook pretends a cell to be."""
_DASK_NOTES = re.compile(
    r"^(\.(io_loop|profile|profile_history|profile_keys|profile_keys_history|profile_recent|log|stimulus_log"
    r"|transfer_incoming_log|transfer_outgoing_log)|local 'recent' of _watch\(\)|recent)$"
)
"""Where a worker of Dask notes its state and samples what its threads do, every 10 ms; all have a limit, by time."""
_DASK_SAMPLE = re.compile(r"^\['[^;]*;.*[;…]")
"""The key of a function in such a sample."""


def is_bookkeeping(leak: Leak) -> bool:
    """Return whether *leak* is what an engine's worker notes of its work, or the little a notebook notes of a cell."""
    return _is_of_dask(leak) or (_is_of_notebook(leak) and leak.bytes_per_run < BOOKKEEPING_BYTES)


def _is_of_dask(leak: Leak) -> bool:
    steps = leak.path.steps
    by_monitor = any(step.kind == "distributed.system_monitor.SystemMonitor" for step in steps)
    pairs = list(pairwise(steps))
    by_worker = any(
        before.kind.startswith("distributed.") and _DASK_NOTES.match(step.reference) for before, step in pairs
    )
    # While the heap was read the worker began a new sample: then the attribute that has it is not known.
    by_sample = any(
        before.reference == "['children']" and _DASK_SAMPLE.match(step.reference) for before, step in pairs
    ) and any(step.kind.startswith("distributed.") for step in steps)
    return by_monitor or by_worker or by_sample


def _keeper(leak: Leak) -> str:
    return "Dask's" if _is_of_dask(leak) else "the notebook's"


def _is_of_notebook(leak: Leak) -> bool:
    """Return whether *leak* is a table in which a notebook notes the cells that it runs."""
    by_module = leak.path.root == "module 'linecache'" and not any(map(_is_no_cell, leak.path.steps))
    by_owner = any(
        step.kind.startswith(_BOOKKEEPERS) or step.reference.endswith(".user_ns_hidden") for step in leak.path.steps
    )
    return _is_history(leak) or by_module or by_owner


def _is_no_cell(step: Step) -> bool:
    """Return whether *step* leads to the source of something else: whoever generates code files its text there, too."""
    return step.reference.startswith(("['", '["')) and not _CELL.search(step.reference)


def _is_history(leak: Leak) -> bool:
    return leak.cause == "notebook-history" and leak.unit != "objects"


def _history_as_one(leaks: Sequence[Leak]) -> list[Leak]:
    """Return *leaks* with the notebook's tables of cells as one: each cell that runs is noted in all of them.

    `In` speaks for them, or the first that is a history; texts that two tables share are counted in each.
    """
    tables = [leak for leak in leaks if _is_of_notebook(leak)]
    speaker = next((leak for leak in tables if _is_history(leak)), None)
    if speaker is None or len(tables) < 2:  # noqa: PLR2004 - nothing to add up
        return list(leaks)
    holders = tuple(dict.fromkeys(holder for leak in (speaker, *tables) for holder in leak.holders or (leak.holder,)))
    together = replace(
        speaker,
        bytes_per_run=sum(leak.bytes_per_run for leak in tables),
        holders=holders,
        reason=f"{speaker.reason}; the text of each cell is kept in {len(tables)} tables of the notebook",
    )
    rest = [leak for leak in leaks if leak is speaker or leak not in tables]
    return [together if leak is speaker else leak for leak in rest]


def keeps_numbers(leak: Leak) -> bool:
    """Return whether *leak* is of descriptors or child processes, or of what keeps them: small, and never noise."""
    return leak.unit in (DESCRIPTORS, CHILDREN) or not NUMBERS_KEPT.isdisjoint(leak.also_causes)


_COUNTED_CAUSES = frozenset({"callback-registry", "descriptor-left", "hook-left", "thread-or-worker-kept"})


def counts_by_bytes(leak: Leak) -> bool:
    """Return whether *leak* is as bad as its bytes: threads, callbacks and what the kernel counts are worse.

    Each call goes through all callbacks, threads run, and there are but so many descriptors.
    """
    is_counted = leak.cause in _COUNTED_CAUSES or keeps_numbers(leak) or is_asked_for(leak)
    return leak.bytes_per_run > 0 and not is_counted


NUMBERS_KEPT = frozenset({"open-descriptors", "child-processes"})
"""Slugs beside the cause of what keeps descriptors or child processes."""


def ranked(leaks: Sequence[Leak]) -> tuple[Leak, ...]:
    """Return *leaks*, the largest first; among those of about the same size the one in the user's reach first.

    What nothing in Python explains comes last, unless it is `FAR_LARGER` than the largest of the others: then first.
    """
    largest = max((leak.bytes_per_run for leak in leaks), default=0.0)
    explained = _largest_explained(leaks)

    def key(leak: Leak) -> tuple[int, int, bool, float, str]:
        smaller_by = math.log(largest / leak.bytes_per_run, ALIKE) if leak.bytes_per_run > 0 else math.inf
        size = int(smaller_by) if math.isfinite(smaller_by) else 1000
        is_far_larger = leak.bytes_per_run > FAR_LARGER * explained
        place = (-1 if is_far_larger else 1) if is_rest(leak) else 0
        return place, size, leak.path.root not in USER_SIDE, -leak.bytes_per_run, leak.fingerprint

    return tuple(sorted(leaks, key=key))


def is_rest(leak: Leak) -> bool:
    """Return whether *leak* is native memory that nothing in Python explains."""
    return leak.unit == "bytes" and not leak.path.steps


def _largest_explained(leaks: Sequence[Leak]) -> float:
    return max((leak.bytes_per_run for leak in leaks if not is_rest(leak)), default=0.0)


ALIKE = 1.5
"""Leaks that differ by less than this factor are ranked by who can mend them."""
FAR_LARGER = 2.5
"""Native memory that nothing explains comes first if it is more than so many times the largest other leak.

The others have a holder that can be mended, and part of what is left over may be theirs: the C++ objects of a leak of
size 1 may truly make it 1.4, and the missing 0.4 are then in what is left over. That is the larger one by more than
`ALIKE` only from 0.4 + 1.5 * 1.4 = 2.5 on.
"""


def drop_noise(leaks: Sequence[Leak], ended: Mapping[str, Leak] | None = None) -> tuple[list[Leak], list[str]]:
    """Turn what ends with another leak, or is the bookkeeping of notebook or engine, into notes.

    *ended* has for the fingerprint of a leak the one that it was proven to end with.

    Returns:
        The leaks that remain, and the notes.
    """
    leaks = _history_as_one(leaks)
    own = [leak for leak in leaks if is_bookkeeping(leak)]
    notes = [
        f"{_keeper(leak)} own bookkeeping grows by {format_bytes(leak.bytes_per_run)} per run in {leak.holder}"
        for leak in own
    ]
    rest = [leak for leak in leaks if leak not in own]
    known = {} if ended is None else ended
    small = [leak for leak in rest if leak.fingerprint in known and not keeps_numbers(leak)]
    if small:
        shown = "; ".join(
            f"{leak.what} in {leak.holder}, {format_bytes(leak.bytes_per_run)} per run (with "
            f"{known[leak.fingerprint].holder})"
            for leak in small[:_N_SHOWN]
        )
        more = f"; and {len(small) - _N_SHOWN} more" if len(small) > _N_SHOWN else ""
        places = "1 small place goes away" if len(small) == 1 else f"{len(small)} small places go away"
        notes.append(f"{places} with a leak listed above, as the references show: {shown}{more}")
    return [leak for leak in rest if leak not in small], notes


def apart_from_logs(leaks: Sequence[Leak], places: Collection[str]) -> tuple[list[Leak], tuple[Leak, ...]]:
    """Return *leaks* without those that are logs, and these, the fastest first.

    *places* are the fingerprints of what gains a few numbers in their order.
    """
    logs = [leak for leak in leaks if leak.fingerprint in places and not (keeps_numbers(leak) or is_bookkeeping(leak))]
    rest = [leak for leak in leaks if leak not in logs]
    return rest, tuple(sorted(logs, key=lambda leak: (-leak.bytes_per_run, leak.fingerprint)))


def is_asked_for(leak: Leak) -> bool:
    """Return whether the entries of a library's table are what somebody registered: that is small, and a leak."""
    known = known_holder(leak.path)
    return leak.cause == "callback-registry" or (known is not None and known[1].is_asked_for)


def library_note(leak: Leak) -> str:
    """Say that a library's own table grows a little."""
    return f"{leak.holder}, a library's own table, grows by {leak.what}, {format_bytes(leak.bytes_per_run)} per run"


def is_worth_showing(leak: Leak, rate: float) -> bool:
    """Return whether what is bounded or undecided deserves the reader's time: the user's own, or not tiny."""
    root = leak.path.root
    user_side = root in USER_SIDE or root.startswith("running ") or _is_users_module(root)
    return user_side or leak.unit in (DESCRIPTORS, CHILDREN) or rate * max(leak.bytes_per_run, 1.0) >= SMALL_BYTES


def _is_users_module(root: str) -> bool:
    """Return whether *root*, the words of a path's begin, is a module of the user's own."""
    name = re.fullmatch(r"module '(.+)'", root)
    file = None if name is None else getattr(sys.modules.get(name[1]), "__file__", None)
    return type(file) is str and origin_of(file) is Origin.USER


def drop_covered_bounds(bounded: Sequence[Leak], leaks: Sequence[Leak]) -> tuple[Leak, ...]:
    """Return the bounded places that are worth a line of their own.

    Those below the place of a leak come and go with it; those that differ in keys or positions only are one.
    """
    places = [place for leak in leaks if (place := _place(leak))]
    alike: dict[tuple[str, ...], list[Leak]] = {}
    for own in bounded:
        references = _references(own)
        if not any(references[: len(place)] == place for place in places):
            alike.setdefault(_shape(own, references), []).append(own)
    return tuple(_as_one(same) for same in alike.values())


def _references(leak: Leak) -> tuple[str, ...]:
    """Return the root and the references of the whole path."""
    return (leak.path.root, *(step.reference for step in leak.path.steps))


def _place(leak: Leak) -> tuple[str, ...]:
    """Return the root and the references down to the collection, or to the attribute or variable, that leaks.

    What is stored in a collection has a key or a position of its own in each run, an attribute always the same name.
    """
    steps = leak.path.steps
    if not steps:
        return ()
    first = next((i for i, step in enumerate(steps) if step.status is Status.LEAKED), len(steps))
    is_attribute = first == 0 or (first < len(steps) and steps[first].reference.startswith("."))
    return _references(leak)[: first + 1 + is_attribute]


def _shape(leak: Leak, references: tuple[str, ...]) -> tuple[str, ...]:
    """Return what is the same for places that differ in keys, positions and elements only; empty paths are none."""
    if not leak.path.steps:
        return (leak.fingerprint, leak.holder)
    return (leak.unit, *(_SUBSCRIPT.sub("[*]", reference) for reference in references))


_SUBSCRIPT = re.compile(r"\[.*\]", re.DOTALL)


def _as_one(same: Sequence[Leak]) -> Leak:
    """Return the largest of *same*, its reason saying how many others there are."""
    largest = max(same, key=lambda leak: leak.bytes_per_run)
    if len(same) == 1:
        return largest
    others = f"{len(same) - 1:,} other place{'' if len(same) == 2 else 's'} of this shape"  # noqa: PLR2004 - one other
    return replace(largest, reason=f"{largest.reason}; {others} too")


def apart_from_small(explained: Explained, min_bytes: int) -> Explained:
    """Return *explained* with what leaks less than *min_bytes* per run in the notes, not among the leaks."""
    small = tuple(leak for leak in explained.leaks if leak.bytes_per_run < min_bytes and counts_by_bytes(leak))
    if not small:
        return explained
    shown = "; ".join(growth_sentence(leak) for leak in small[:_N_NAMED])
    note = f"smaller than --min-bytes {format_bytes(min_bytes)}: {shown}{more_words(small[_N_NAMED - 1 :], 'leak')}"
    leaks = tuple(leak for leak in explained.leaks if leak not in small)
    return replace(
        explained, leaks=leaks, small=small, notes=(*explained.notes, note), noted=(*explained.noted, *small)
    )


_N_NAMED = 5
"""A note names so many leaks that are left aside, and counts the others."""


SMALL_SHARE = 0.05
"""What is a consequence of a larger leak is also less than this share of the largest."""
_THREAD_LOCALS = "thread-locals"
"""Beside the cause of a leak of what threads keep for themselves: the threads are its consequence."""


def ended_with(view: HeapView, findings: Sequence[Finding]) -> dict[str, Leak]:
    """Return for the fingerprint of each small place that ends with a larger one the leak that it ends with.

    Size proves nothing: a hook that every run registers takes 200 bytes beside a kept graph of megabytes, and is a leak
    of its own. A place is a consequence of another leak only if the heap shows it: once all holders of the other let
    go, no root reaches what grows here; or threads that leak have it in hand until their functions return.
    """
    larger_first = sorted(findings, key=lambda place: -place.leak.bytes_per_run)
    with_threads = [place for place in larger_first if _has_threads(view, place)]
    in_hand = in_hand_of_threads(view)
    bar = min(SMALL_BYTES, SMALL_SHARE * larger_first[0].leak.bytes_per_run) if larger_first else 0.0
    found: dict[str, Leak] = {}
    for number, place in enumerate(larger_first):
        if place.group is None:
            continue
        survivors = np.asarray(place.group.entries or place.group.members, np.int64)
        ends: Iterable[Finding] = ()
        if place in with_threads:
            ends = (other for other in larger_first if other is not place and _THREAD_LOCALS in other.leak.also_causes)
        elif in_hand[survivors].all():
            ends = with_threads
        elif place.leak.bytes_per_run < bar:
            others = ((other, other.freed) for other in larger_first[:number])
            ends = (other for other, freed in others if freed is not None and np.isin(survivors, freed).all())
        for other in ends:
            found[place.leak.fingerprint] = found.get(other.leak.fingerprint, other.leak)
            break
    return found


def _has_threads(view: HeapView, finding: Finding) -> bool:
    return any(is_kind_of(view.objects[member], Thread) for member in finding.members)
