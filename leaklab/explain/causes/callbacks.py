"""Causes in code that is kept: hooks, callbacks in registries, closures, suspended frames, tracebacks."""

from __future__ import annotations

import re

from leaklab.collect.registries import Registry, registry_on
from leaklab.explain.causes.advice import (
    HEAD_OF_GRAPH,
    Advice,
    clearing,
    is_expression,
    is_private,
    is_users,
    may_release,
    named,
    place_words,
    written,
)
from leaklab.explain.causes.stores import TASK_KINDS, has_tasks, is_result_of_task
from leaklab.explain.evidence import Evidence
from leaklab.heap.known_holders import known_holder
from leaklab.heap.roles import Role

_PLACES = ("closure", "default", "partial", "frame-local")
_WORDS = ("closure variable", "default of", "local ")
_PARTIAL = "functools.partial"
_SUSPENDED = frozenset({"generator", "coroutine", "async_generator", *TASK_KINDS})
_CALLABLES = frozenset({
    "method", "function", "builtin_function_or_method", "functools.partial", "weakref.WeakMethod",
    "weakref.finalize._Info", "weakref.finalize", "logging.StreamHandler",
})  # fmt: skip
_FUTURES = frozenset({"concurrent.futures._base.Future", "_asyncio.Future", "_asyncio.Task"})
_OF_MODULES = {
    "_forward_hooks": "register_forward_hook", "_forward_pre_hooks": "register_forward_pre_hook",
    "_backward_hooks": "register_full_backward_hook", "_backward_pre_hooks": "register_full_backward_pre_hook",
    "_state_dict_pre_hooks": "register_state_dict_pre_hook", "_state_dict_hooks": "register_state_dict_post_hook",
    "_load_state_dict_pre_hooks": "register_load_state_dict_pre_hook",
    "_load_state_dict_post_hooks": "register_load_state_dict_post_hook",
}  # fmt: skip
_OF_TENSORS = {
    "_backward_hooks": "register_hook",
    "_post_accumulate_grad_hooks": "register_post_accumulate_grad_hook",
}
_OF_ALL_MODULES = {
    "_global_forward_hooks": "register_module_forward_hook",
    "_global_forward_pre_hooks": "register_module_forward_pre_hook",
    "_global_backward_hooks": "register_module_full_backward_hook",
    "_global_backward_pre_hooks": "register_module_full_backward_pre_hook",
}


def hook_left(e: Evidence) -> Advice | None:
    """A hook was registered and its handle never removed: on a module, tensor, optimizer, or for all of them."""
    if e.in_cycle or Role.HOOKS not in e.roles_above:
        return None
    store = next(step.reference for step, roles in zip(e.path.steps, e.roles, strict=True) if Role.HOOKS in roles)
    call, where = _registration(e, store)
    return Advice(
        f"Every run registers one more hook{where} and leaves it there, with everything the hook refers to; all of "
        f"them are called in every run. Keep the handle that {call} returns and call its `remove()` when the run ends "
        "(in a `finally`, so that an error does not leave the hook), or register the hook once, outside of what is "
        "repeated.",
        "Not if the hook is meant for good: then register it once, before the loop.",
    )


def _registration(e: Evidence, store: str) -> tuple[str, str]:
    """Return the call that registers, and where, as far as they are known."""
    name = store.rpartition(".")[2]
    if name in _OF_ALL_MODULES:
        return f"`torch.nn.modules.module.{_OF_ALL_MODULES[name]}`", " for all modules"
    if name.startswith("_global_optimizer_"):
        return f"`torch.optim.optimizer.register_{_verb(name, '_global_')}_hook`", " for all optimizers"
    if name.startswith("_optimizer_"):
        call = f"register_{_verb(name, '_optimizer_')}_hook"
    else:
        call = (_OF_TENSORS if Role.TENSOR in _owner_roles(e) else _OF_MODULES).get(name, "")
    owner = re.sub(r"\._\w*hooks(_\w+)?$", "", e.holder)
    if owner == e.holder or not is_expression(owner):
        return (f"`{call}`" if call else "its registration"), ""
    return (f"`{written(owner)}.{call}`" if call else "its registration"), f" on {named(owner)}"


def _owner_roles(e: Evidence) -> frozenset[Role]:
    at = next(i for i, roles in enumerate(e.roles) if Role.HOOKS in roles)
    return e.roles[at - 1] if at else frozenset()


def _verb(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).partition("_hooks")[0]


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
            f"{place_words(e)} gets one more function by every run, and each keeps what it was given and what it uses."
            f"{may_release(e.owner)} Take a function out when it has been called for the last time, or register it "
            "once, outside of what is repeated.",
            "Not while it is still to be called.",
        )
    take = {"list": "remove", "set": "discard"}.get(e.holder_kind) if is_users(e) else None
    how = f" (`{written(e.place)}.{take}(...)` with the same method)" if take else ""
    return Advice(
        f"{place_words(e)} gets one more callback by every run, and a bound method keeps its object with all it has."
        f"{may_release(e.owner)} Take the callback out when its object is done{how}, register it once, or keep it "
        "there as a `weakref.WeakMethod`.",
        "Not weakly if the registry is the only owner: then nothing would keep the object at all.",
    )


def _finalizers(_e: Evidence) -> Advice:
    return Advice(
        "Each run calls `weakref.finalize(obj, function, ...)` with a function or an argument that refers to `obj` "
        "itself (a method of it, for example): `obj` is then kept alive by its own finalizer until the program ends. "
        "Hand over a plain function, and the values that it needs instead of the object."
    )


def _logging(e: Evidence) -> Advice:
    logger = e.owner.code if e.owner is not None and is_expression(e.owner.code) else ""
    what, call = ("filter", "removeFilter") if e.holder.endswith(".filters") else ("handler", "removeHandler")
    where = f"`{written(logger)}.{call}(...)`" if logger and not is_private(logger) else f"`{call}` of its logger"
    closing = ", then call the handler's `close()`" if what == "handler" else ""
    return Advice(
        f"Every run adds one more {what} to {named(logger or e.place)}, which keeps everything that it refers to and "
        f"is called for each message. Take it out when the run ends: {where}{closing}. Or add it once, outside of what "
        "is repeated."
    )


def _matplotlib(e: Evidence) -> Advice:
    return Advice(
        f"{place_words(e)} belongs to matplotlib and gets one more callback by every run. Keep the number that "
        "`canvas.mpl_connect(...)` returns and hand it to `canvas.mpl_disconnect(...)` when the run ends, or connect "
        "once, outside of what is repeated."
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
        "`unobserve` with the same function when the run ends, or observe once, outside of what is repeated."
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
    unproved = " That is a guess by the pace: Python does not show what is in the table." if sure else ""
    if registry.table == "stack":
        return Advice(
            f"{sure}{each} enters `{registry.adds}` and does not leave it, so that an entry stays on its stack, with "
            f"everything that the entry refers to, and is used by all that follows.{unproved} Enter it by `with`, so "
            "that it is left again, also after an error; what `__enter__` has entered, `__exit__` leaves."
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
        f"{sure}{each} calls `{call}` and leaves an entry in its table, with everything that the entry refers "
        f"to, until the program ends.{unproved} Make that call once, outside of what is repeated{remedy}{same}."
    )


def is_argument_of_partial(e: Evidence) -> bool:
    """Return whether a partial holds what leaks as one of its own arguments: it calls with it, and never calls it."""
    pair = e.steps_above[-2:]
    return len(pair) > 1 and pair[0].kind == _PARTIAL and pair[1].reference.startswith((".args", ".keywords"))


def traceback_kept(e: Evidence) -> Advice | None:
    """A stored exception keeps the frames it went through, and their local variables."""
    if not e.any_role(Role.TRACEBACK) or e.in_cycle:
        return None
    if e.path.root == "last exception":
        return Advice(
            "The interpreter remembers the last uncaught exception, and its traceback keeps every local variable of "
            "the frames it went through, until another exception takes its place. "
            "`sys.last_exc = sys.last_value = sys.last_traceback = None` lets go of it.",
            "Not before %debug or pdb.pm(), which need it.",
        )
    references = {step.reference for step in e.path.steps}
    kinds = {step.kind for step in e.path.steps}
    known = known_holder(e.path)
    also = f" ({known[1].name}: {known[1].release} lets go.)" if known is not None else ""
    why = "and the traceback of each keeps every local variable of the frames it went through"
    if kinds & _FUTURES:
        return Advice(
            f"{place_words(e)} keeps futures or tasks that have failed: each keeps its exception, {why}.{also} Take "
            f"the result or the error, keep what you need of it as text, and drop the future{clearing(e)}.",
            "Not while somebody will still ask a future for its result.",
        )
    if "logging.LogRecord" in kinds:
        return Advice(
            f"{place_words(e)} keeps log records with `exc_info`: each has its exception, {why}.{also} Keep the text "
            "that the handler's formatter makes of a record, not the record; or empty it when it has been "
            f"read{clearing(e)}.",
        )
    if references & {".__cause__", ".__context__"}:
        return Advice(
            f"{place_words(e)} keeps an exception, which keeps the one before it (`__cause__`, "
            f"`__context__`), {why}.{also} Store the text (`repr(error)`, `traceback.format_exc()`), or take its "
            "traceback and the chain off: `error.with_traceback(None)`, `error.__cause__ = error.__context__ = None`.",
            "Not if the exception is raised again later and its origin should be shown.",
        )
    return Advice(
        f"{place_words(e)} keeps exceptions, {why}.{also} Store the text (`repr(error)`, `traceback.format_exc()`), or "
        "the exception without its traceback (`error.with_traceback(None)`).",
        "Not if the exception is raised again later and its origin should be shown.",
    )


_SET_BY = {
    "sys.getprofile()": "sys.setprofile(...)", "sys.gettrace()": "sys.settrace(...)",
    "sys.excepthook": "sys.excepthook = ...", "sys.displayhook": "sys.displayhook = ...",
    "sys.stdout": "sys.stdout = ...", "sys.stderr": "sys.stderr = ...",
}  # fmt: skip
"""What the interpreter has one of, by the expression for it, and what puts another one in its place."""


def chained_handler(e: Evidence) -> Advice | None:
    """Of what the interpreter has one each run installs another, which keeps the one before it."""
    first = e.path.steps[0].reference if e.path.steps else ""
    number = re.fullmatch(r"signal\.getsignal\((\d+)\)", first)
    call = f"signal.signal({number[1]}, ...)" if number else _SET_BY.get(first, "")
    if not call or e.in_cycle or e.crossing is None or e.is_collected:
        return None
    what = "signal handler" if number else "one"
    back = call.replace("...", "previous")
    return Advice(
        f"Every run installs a new {what} (`{call}`), which keeps the one before it (in {named(e.place)}), and so all "
        f"of them. Put the one before back when the run ends (`{back}`, in a `finally`), or install one, outside of "
        "what is repeated.",
        "Not while the new one is still needed.",
    )


def closure_kept(e: Evidence) -> Advice | None:
    """A closure, a default argument, a partial or a suspended frame keeps it."""
    through = any(step.reference.startswith(_WORDS) or ".__defaults__" in step.reference for step in e.steps_above)
    crosses = e.crossing is not None and e.crossing.kind in _PLACES
    crosses = crosses or is_argument_of_partial(e)
    has_ended = is_result_of_task(e)
    suspended = not has_ended and (bool(e.entry_kinds & _SUSPENDED) or e.any_role(Role.SUSPENDED))
    if e.crossing is not None and e.crossing.text == HEAD_OF_GRAPH:  # the variable is wanted, its history is not
        return None
    if e.unit != "objects" or not (through or suspended or crosses) or e.path.root.startswith("running"):
        return None
    if suspended and has_tasks(e):
        return Advice(
            f"{place_words(e)} keeps asyncio tasks that have not ended, and the coroutine of each keeps every local "
            "variable until it ends. Give them a limit (`asyncio.wait_for`), or call `cancel()` on those that nobody "
            "waits for.",
            "Not if they are meant to work on for as long as the program runs.",
        )
    if suspended:
        return Advice(
            f"{place_words(e)} keeps generators or coroutines that have not ended, and the frame of each keeps every "
            f"local variable until it ends. Call `close()` on each when it has served, and let go of it{clearing(e)}.",
            "Not while somebody will still ask for the next value.",
        )
    default = next((step.reference for step in e.steps_above if step.reference.startswith("default of")), "")
    if default or any("__kwdefaults__" in step.reference for step in e.steps_above):
        name = re.match(r"default of '(\w+)' of (.+)", default)
        what = f"The default value of `{name[1]}` in `{name[2]}`" if name else f"A default value, {named(e.place)},"
        write = f" Write `{name[1]}=None` in the signature and make a new one inside of the function." if name else ""
        return Advice(
            f"{what} keeps what every call puts there: it is made once, with the function, and lives as long as that."
            f"{write or ' Make it inside of the function.'}",
            "Not if the calls are meant to share it; then make that visible and limit its size.",
        )
    return _in_closure(e)


def _in_closure(e: Evidence) -> Advice:
    if e.is_collected and not is_argument_of_partial(e):
        return Advice(
            f"{place_words(e)} gets more by every run. It lives as long as the function does, and the function is kept "
            "from run to run. Make the collection anew for each run, keep only the newest entries, or let the function "
            "return what it has collected and begin again.",
            "Not if all of it is needed together at the end.",
        )
    if is_argument_of_partial(e) or any(kind == _PARTIAL for kind in e.entry_kinds):
        return Advice(
            f"{place_words(e)} keeps what a `functools.partial` was given as an argument, for as long as the partial "
            "lives. Let go of the partials that have been called; and do not make each run's partial from that of the "
            "run before.",
            "Not if they are all still to be called.",
        )
    function = e.holder.partition(".__closure__")[0]
    place = named(function) if is_expression(function) and not is_private(function) else place_words(e)
    return Advice(
        f"{place} keeps functions of earlier runs with the variables that they use: each run wraps the "
        "function of the run before, or keeps one that lives on. Wrap the original function in each run, and hand "
        "values in as arguments.",
        "Not if every layer is really called for.",
    )
