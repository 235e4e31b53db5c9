"""Callbacks that runs leave in registries: of the user's, of libraries, of the interpreter."""

from __future__ import annotations

import re

from leaklab.explain.counterparts import takes_one_out
from leaklab.explain.idioms.advice import (
    Advice,
    is_expression,
    is_private,
    is_users,
    may_release,
    named,
    place_words,
    written,
)
from leaklab.explain.idioms.frames import is_argument_of_partial
from leaklab.explain.leaks.evidence import Evidence
from leaklab.heap.roles import Role
from leaklab.measure.registries import Registry, registry_on

_CALLABLES = frozenset({
    "method", "function", "builtin_function_or_method", "functools.partial", "weakref.WeakMethod",
    "weakref.finalize._Info", "weakref.finalize", "logging.StreamHandler",
})  # fmt: skip


def callback_registry(e: Evidence) -> Advice | None:
    """A registry keeps a bound method or function, and with it the object.

    It is one because a library calls back from it (logging, matplotlib, IPython, finalizers, ``gc.callbacks``), or
    because every entry of the collection is something to be called.
    """
    all_callable = bool(e.entry_kinds) and e.entry_kinds <= _CALLABLES and not is_argument_of_partial(e)
    if e.crossing is None or not (_is_in_registry(e) or (all_callable and e.is_collected)):
        return None
    texts = [text for step in e.steps_above for text in (step.reference, step.kind)]
    for known, write in _REGISTRIES:
        if any(known in text for text in texts):
            return write(e)
    return _in_collection(e)


def _is_in_registry(e: Evidence) -> bool:
    """Return whether the holder is a registry or a part of one, not something that a callback in it keeps."""
    found = [number for number, roles in enumerate(e.roles[: e.n_above]) if Role.CALLBACKS in roles]
    owners = e.facts.owners[: e.n_to_holder]
    nearest = max((number for number, owner in enumerate(owners) if not owner.is_plain), default=-1)
    return bool(found) and nearest <= max(found)


def _in_collection(e: Evidence) -> Advice:
    """Callbacks in a list, a set or a dict that may be the user's own."""
    if "method" not in e.entry_kinds:
        return Advice(
            f"{place_words(e)} gets one more function in every run, and each keeps what it was given and what it "
            f"uses.{may_release(e.owner)} Take a function out when it has been called for the last time, or register "
            "it once, outside the repeated code.",
            "Not while it is still to be called.",
        )
    take = takes_one_out(e.holder_kind) if is_users(e) else ""
    how = f" (`{written(e.place)}.{take}(...)` with the same method)" if take else ""
    return Advice(
        f"{place_words(e)} gets one more callback in every run, and a bound method keeps its object with all it "
        f"has.{may_release(e.owner)} Take the callback out when its object is done{how}, register it once, or keep it "
        "there as a `weakref.WeakMethod`.",
        "Not weakly if the registry is the only owner: then nothing would keep the object at all.",
    )


def _finalizers(_e: Evidence) -> Advice:
    return Advice(
        "Each run calls `weakref.finalize(obj, function, ...)` with a function or an argument that refers to `obj` "
        "itself (a method of it, for example): `obj` is then kept alive by its own finalizer until the program ends. "
        "Pass a plain function, with the values that it needs, not the object."
    )


def _logging(e: Evidence) -> Advice:
    logger = e.owner.code if e.owner is not None and is_expression(e.owner.code) else ""
    what, call = ("filter", "removeFilter") if e.holder.endswith(".filters") else ("handler", "removeHandler")
    where = f"`{written(logger)}.{call}(...)`" if logger and not is_private(logger) else f"`{call}` of its logger"
    closing = ", then call the handler's `close()`" if what == "handler" else ""
    return Advice(
        f"Every run adds one more {what} to {named(logger or e.place)}, which keeps everything that it refers to and "
        f"is called for each message. Take it out when the run ends: {where}{closing}. Or add it once, outside the "
        "repeated code."
    )


def _matplotlib(e: Evidence) -> Advice:
    return Advice(
        f"{place_words(e)} belongs to matplotlib and gets one more callback in every run. Keep the number that "
        "`canvas.mpl_connect(...)` returns and hand it to `canvas.mpl_disconnect(...)` when the run ends, or connect "
        "once, outside the repeated code."
    )


def _ipython(e: Evidence) -> Advice:
    event = re.search(r"\['(\w+)'\]$", e.holder)
    name = f"'{event[1]}'" if event else "the event"
    return Advice(
        f"Every run registers one more callback for IPython's event {name}, which keeps its object and is called for "
        f"every cell. Call `get_ipython().events.unregister({name}, ...)` with the same callback when the run ends, or "
        "register it once."
        if event
        else "Every run registers one more callback for an event of IPython's. Unregister it when the run ends "
        "(`get_ipython().events.unregister`), or register it once."
    )


def _observers(e: Evidence) -> Advice:
    owner = named(e.owner.code) if e.owner is not None and is_expression(e.owner.code) else "the widget"
    return Advice(
        f"Every run lets {owner} be observed by one more function, which is kept with all that it refers to. Call "
        "`unobserve` with the same function when the run ends, or observe once, outside the repeated code."
    )


def _collectors(_e: Evidence) -> Advice:
    return Advice(
        "Every run adds one more function to `gc.callbacks`, which is called at every collection. Take it out when the "
        "run ends (`gc.callbacks.remove(...)` with the same function), or add it once."
    )


_REGISTRIES = (
    ("weakref.finalize", _finalizers), ("logging.", _logging), ("matplotlib", _matplotlib),
    ("IPython.core.events", _ipython), ("_trait_notifiers", _observers), ("gc.callbacks", _collectors),
)  # fmt: skip


def registered(e: Evidence) -> Advice | None:
    """A table of the interpreter's or torch's own keeps callbacks, surely or probably."""
    registry = registry_on(e.path)
    return _take_out(registry, e) if registry is not None and registry.has_callables else None


def registered_outside(e: Evidence) -> Advice | None:
    """As `registered`, for what is no callback: functions compiled to C++ objects, lines of text."""
    registry = registry_on(e.path)
    return _take_out(registry, e) if registry is not None and not registry.has_callables else None


def _take_out(registry: Registry, e: Evidence) -> Advice:
    sure = "Probably " if e.path.root == registry.suspicion else ""
    each = "each run" if sure else "Each run"
    unproved = " This is inferred from the growth rate: Python does not show what is in the table." if sure else ""
    if registry.table == "stack":
        return Advice(
            f"{sure}{each} enters `{registry.adds}` and does not leave it: an entry stays on its stack, with "
            f"everything it refers to, and affects all code after it.{unproved} Enter it by `with`, so that it is "
            "left again, also after an error; what `__enter__` has entered, `__exit__` leaves."
        )
    owner = written(e.holder) if is_expression(e.holder) else ""
    call = f"{owner}.{registry.adds.rpartition('.')[2]}" if owner else registry.adds
    take = f"{owner}.{registry.removes}" if owner and registry.removes else registry.removes
    ways = [f"take it out again: `{take}`" if take else "", registry.ends]
    known = ", or ".join(filter(None, ways))
    remedy = f", or {known}" if known else ": nothing takes it out again"
    entry = next((step for step in reversed(e.path.steps) if step.summary), None)
    is_same = entry is not None and "(function)" in registry.removes and entry.kind in ("method", "function")
    same = f", with the same {entry.kind} (`{entry.summary}`)" if is_same and entry is not None else ""
    return Advice(
        f"{sure}{each} calls `{call}` and leaves an entry in its table, with everything that the entry refers to, "
        f"until the program ends.{unproved} Call it once, outside the repeated code{remedy}{same}."
    )
