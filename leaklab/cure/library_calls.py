"""The calls by which libraries release what they keep."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator

from leaklab.cure.case import Case
from leaklab.cure.live import MISSING, evaluate, has_method
from leaklab.cure.proposal import Proposal
from leaklab.runtime.objects import type_name

_CALLS = (
    (r"matplotlib\._pylab_helpers", "plt.close('all')"),
    (r"^linecache\.cache", "linecache.clearcache()"),
    (r"^torch\._(dynamo|inductor)", "torch._dynamo.reset()"),
    (r"^pyro\.params", "pyro.clear_param_store()"),
    (r"Widget\._instances|_instances$", "Widget.close_all()"),
    (r"history_manager\.outputs", "get_ipython().history_manager.outputs.clear()"),
)
_OF_OWNERS = (
    (r"^torchmetrics\.", "reset"), (r"^accelerate\.", "free_memory"), (r"tensorboard", "close"),
)  # fmt: skip
_RELEASES_ALL = "it would release what was there before the check, too"
_RELEASING = re.compile(r"^(close|clear|reset|remove|unregister|free|release|shutdown|cancel)(_\w+)?$")


def library_calls(case: Case) -> Iterator[Proposal]:
    """Yield, in words, the call by which a library releases what one of its tables keeps.

    None is tried: such a call releases what was there before the check as well, and nothing could put that back.
    """
    for pattern, call in _CALLS:
        if re.search(pattern, case.holder):
            yield Proposal(f"Release what the library keeps: `{call}`.", not_tried=_RELEASES_ALL)
            return
    yield from _of_owner(case)


def _of_owner(case: Case) -> Iterator[Proposal]:
    """Yield the release call of the object of a library that is on the path."""
    place = case.holder
    while "." in place or "[" in place:
        place = re.sub(r"(\.\w+|\[[^\]]*\])$", "", place) if re.search(r"(\.\w+|\[[^\]]*\])$", place) else ""
        owner = evaluate(place, case.program.namespace) if place else MISSING
        if owner is MISSING:
            return
        kind = type_name(type(owner))
        for pattern, call in _OF_OWNERS:
            if re.search(pattern, kind) and has_method(owner, call):
                yield Proposal(f"Release what it has collected: `{place}.{call}()`.", not_tried=_RELEASES_ALL)
                return


def maybe_calls(case: Case) -> Iterator[Proposal]:
    """Yield in words the calls that, by their names, may release what a library's table keeps."""
    root = re.match(r"module '(.+)'", case.leak.path.root)
    module = sys.modules.get(root[1]) if root else None
    if module is None or "site-packages" not in (getattr(module, "__file__", "") or ""):
        return
    names = [name for name, value in vars(module).items() if _RELEASING.match(name) and inspect.isroutine(value)]
    if names:
        calls = ", ".join(f"`{module.__name__}.{name}()`" for name in sorted(names)[:3])
        yield Proposal(f"The table belongs to {module.__name__}; {calls} may release it.")
