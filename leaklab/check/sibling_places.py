"""Tell several attributes of one library object, which one call fills with the same things, as one leak.

``accelerator.prepare(model, optimizer)`` puts the model into one list and the optimizer, which holds the model's
parameters, into another; ``optimizer.add_param_group`` fills ``param_groups``, and the next step ``state``. Each of
them alone keeps the parameters: neither is cured before both let go, and the call that undoes one undoes both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from leaklab.explain.groups import Group
from leaklab.explain.ownership import is_users_kind
from leaklab.heap.view import HeapView
from leaklab.model import Leak
from leaklab.runtime.objects import has_base, loaded_type

_FILLED_BY_CALLS = ".param_groups"
"""Of an optimizer's attributes the one that its user fills; ``state`` follows."""


def sibling_pairs(view: HeapView, places: Sequence[tuple[Leak, Group | None]]) -> Iterator[tuple[int, int]]:
    """Yield positions in *places* of two leaks that are one: of the one that names it, and of the other.

    The two are attributes of one object of a library, get something in the same runs, and what the one keeps is kept by
    the other, too.
    """
    told: set[int] = set()
    for at, (leak, group) in enumerate(places):
        for beside, (other, others_group) in enumerate(places):
            if at == beside or group is None or others_group is None or {at, beside} & told:
                continue
            if other.holder in leak.holders[1:] and _rhythm(leak) == _rhythm(other):
                owner = _common_owner(view, group, others_group)
                if owner >= 0 and not is_users_kind(type(view.objects[owner])):
                    told |= {at, beside}
                    is_named_by_other = _is_optimizer(view, owner) and other.holder.endswith(_FILLED_BY_CALLS)
                    yield (beside, at) if is_named_by_other else (at, beside)


def told_as_one(named: Leak, other: Leak) -> Leak:
    """Return *named* as the leak of both places; what matters most in the larger of them is what grows."""
    larger = max(named, other, key=lambda leak: leak.bytes_per_run)
    is_weighed = named.retained_bytes is not None and other.retained_bytes is not None
    both = None if not is_weighed else (named.retained_bytes or 0) + (other.retained_bytes or 0)
    return replace(
        named,
        what=larger.what,
        kept=larger.kept,
        count_per_run=larger.count_per_run,
        others=larger.others,
        bytes_per_run=named.bytes_per_run + other.bytes_per_run,
        holders=tuple(dict.fromkeys((named.holder, other.holder, *named.holders, *other.holders))),
        retained_bytes=both,
    )


def _rhythm(leak: Leak) -> tuple[bool, ...]:
    return tuple(count > 0 for count in leak.kept)


def _common_owner(view: HeapView, group: Group, other: Group) -> int:
    """Return the object of which the holders of both groups are attributes, -1 if there is none."""
    owners = {_owner_of(view, one.holder) for one in (group, other)}
    return owners.pop() if len(owners) == 1 and group.holder != other.holder else -1


def _owner_of(view: HeapView, holder: int) -> int:
    """Return what has *holder* as an attribute; its own dict may lie between them."""
    parent = int(view.tree.parent[holder]) if holder >= 0 else -1
    is_dict = parent >= 0 and type(view.objects[parent]) is dict and parent != view.namespace
    return int(view.tree.parent[parent]) if is_dict else parent


def _is_optimizer(view: HeapView, vertex: int) -> bool:
    optimizer = loaded_type("torch.optim", "Optimizer")
    return optimizer is not None and has_base(type(view.objects[vertex]), optimizer)
