"""Judge a place as a whole: one holder with many names, one container whose places are used again."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from leaklab.collect.measure import Measurement
from leaklab.decide.growth import judge_cohorts
from leaklab.explain.leaks.groups import Group
from leaklab.explain.leaks.limits import FAR
from leaklab.explain.view import HeapView
from leaklab.model import Outcome

JOINED_SHARE = 1.1
"""Groups of one holder are one place if together they leak by more than this times what they leak apart."""


def join_groups(view: HeapView, groups: list[Group], n_runs: int) -> list[Group]:
    """Join the groups of one holder where only together they leak: a new name for each object must not hide them."""
    by_holder: dict[int, list[Group]] = defaultdict(list)
    for group in groups:
        by_holder[group.holder].append(group)
    return [group for parts in by_holder.values() for group in _joined(view, parts, n_runs)]


def _joined(view: HeapView, parts: list[Group], n_runs: int) -> list[Group]:
    if len(parts) == 1:
        return parts
    whole = replace(
        parts[-1],
        entries=[entry for part in parts for entry in part.entries],
        members=[member for part in parts for member in part.members],
    )
    growths = [judge_cohorts(part.kept(view, n_runs, part.entries)) for part in parts]
    together = judge_cohorts(whole.kept(view, n_runs, whole.entries))
    apart = sum(growth.rate for growth in growths if growth.outcome is Outcome.LEAK)
    is_more = together.outcome is Outcome.LEAK and together.rate > JOINED_SHARE * apart
    return [whole] if is_more else parts


def only_replaces(view: HeapView, group: Group, measurement: Measurement) -> bool:
    """Return whether the survivors sit in the places of a container whose length has not changed.

    Its length is then their limit. One beyond `FAR` places is not called a limit.
    """
    is_place = group.crossing is not None and group.crossing.kind in ("index", "key")
    if group.holder < 0 or not is_place:
        return False
    address = int(view.index.ids[group.holder])
    lengths = {checkpoint.lengths.length_of(address) for checkpoint in measurement.checkpoints}
    length = lengths.pop()
    return not lengths and length is not None and len(group.entries) <= length <= FAR
