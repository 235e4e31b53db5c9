"""Causes in code that is kept: hooks, callbacks in registries, closures, suspended frames, tracebacks."""

from __future__ import annotations

import re

from leaklab.collect.registries import Registry, registry_at
from leaklab.explain.causes.advice import HEAD_OF_GRAPH, Advice, line_words
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
_UNDONE_BY = (
    ("weakref.finalize", "finalizers", "weakref.finalize(obj, function, plain_values)  # never a method of obj"),
    ("logging.", "logging", "logger.removeHandler(handler); handler.close()"),
    (
        "matplotlib",
        "matplotlib's callbacks",
        "cid = figure.canvas.mpl_connect(event, f); figure.canvas.mpl_disconnect(cid)",
    ),
    ("IPython.core.events", "IPython's events", "get_ipython().events.unregister(event, callback)"),
    ("_trait_notifiers", "observers of a widget or other traits", "widget.unobserve_all(); widget.close()"),
    ("gc.callbacks", "the collector's callbacks", "gc.callbacks.remove(callback)"),
)


def hook_left(e: Evidence) -> Advice | None:
    """A hook was registered and its handle never removed: on a module, tensor, optimizer, or for all of them."""
    if e.in_cycle or Role.HOOKS not in e.roles_above:
        return None
    store = next(step.reference for step, roles in zip(e.path.steps, e.roles, strict=True) if Role.HOOKS in roles)
    call = _registration(e, store)
    return Advice(
        f"Each run registers a hook in {e.holder} and leaves it there, with everything the hook refers to; all of them "
        "are called in every run. Keep the handle that the registration returns and remove it, or register once, "
        "outside of what is repeated.",
        before=f"{call}(hook)",
        after=f"handle = {call}(hook)\n...\nhandle.remove()  # in a finally, so that an error does not leave it",
        unless="Not if the hook is meant for good: then register it once, before the loop.",
    )


def _registration(e: Evidence, store: str) -> str:
    owner = re.sub(r"\._\w*hooks\w*$", "", e.holder)
    owner = owner if owner != e.holder and owner.isprintable() and " " not in owner else "module"
    name = store.rpartition(".")[2]
    if name.startswith("_global_optimizer_"):
        return f"torch.optim.optimizer.register_{_verb(name, '_global_')}_hook"
    if name.startswith("_global_"):
        return f"torch.nn.modules.module.register_module_{_verb(name, '_global_')}_hook"
    if name.startswith("_optimizer_"):
        return f"{owner}.register_{_verb(name, '_optimizer_')}_hook"
    if name.startswith("_post_accumulate_grad"):
        return f"{owner}.register_post_accumulate_grad_hook"
    if name == "_backward_hooks" and Role.TENSOR in _owner_roles(e):
        return f"{owner}.register_hook"
    verb = "full_backward" if name == "_backward_hooks" else _verb(name, "_")
    return f"{owner}.register_{verb}_hook"


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
    if e.crossing is None or not (Role.CALLBACKS in e.roles_above or (all_callable and e.is_collected)):
        return None
    name, undo = _undo(e)
    return Advice(
        f"{e.place}{name} keeps a callback of every run, and a bound method keeps its object with all it has."
        f"{line_words(e)} Unregister it when the object is done, or let the registry hold it weakly.",
        before=e.facts.line.text if e.facts.line is not None else f"{e.place}.append(obj.method)",
        after=undo,
        unless="Not weakly if the registry is the only owner: then nothing would keep the object at all.",
    )


def _undo(e: Evidence) -> tuple[str, str]:
    """Return what kind of registry it is, and the call that takes a callback out again."""
    for known, words, call in _UNDONE_BY:
        if any(known in text for step in e.steps_above for text in (step.reference, step.kind)):
            return f" ({words})", call
    return "", "registry.append(weakref.WeakMethod(obj.method))"


def registered(e: Evidence) -> Advice | None:
    """A table of the interpreter's or torch's own keeps callbacks, surely or probably."""
    registry = registry_at(e.path.root)
    return _take_out(registry, e) if registry is not None and registry.has_callables else None


def registered_outside(e: Evidence) -> Advice | None:
    """As `registered`, for what is no callback: functions compiled to C++ objects, lines of text."""
    registry = registry_at(e.path.root)
    return _take_out(registry, e) if registry is not None and not registry.has_callables else None


def _take_out(registry: Registry, e: Evidence) -> Advice:
    sure = "" if e.path.root == registry.words else "Probably "
    each = "Each run" if not sure else "each run"
    unproved = " That is a guess by the pace: Python does not show what is in the table." if sure else ""
    remedy = f", or take it out again: {registry.removes}" if registry.removes else ": nothing takes it out again"
    return Advice(
        f"{sure}{each} calls {registry.adds} and leaves an entry in its table, with everything that the entry refers "
        f"to, until the program ends.{unproved} Make that call once, outside of what is repeated{remedy}."
    )


def is_argument_of_partial(e: Evidence) -> bool:
    """Return whether a partial holds what leaks as one of its own arguments: it calls with it, and never calls it."""
    pair = e.steps_above[-2:]
    return len(pair) > 1 and pair[0].kind == _PARTIAL and pair[1].reference.startswith((".args", ".keywords"))


def traceback_kept(e: Evidence) -> Advice | None:
    """A stored exception keeps the frames it went through, and their local variables."""
    if not e.any_role(Role.TRACEBACK) or e.in_cycle:
        return None
    known = known_holder(e.path)
    if e.path.root == "last exception":
        return Advice(
            "The interpreter remembers the last uncaught exception, and its traceback keeps every local variable of "
            "the frames it went through, until another exception takes its place.",
            after="sys.last_exc = sys.last_value = sys.last_traceback = None",
            unless="Not before %debug or pdb.pm(), which need it.",
        )
    release = f" ({known[1].name}: {known[1].release} lets go.)" if known is not None else ""
    return Advice(
        f"{e.place} keeps an exception, and its traceback keeps every local variable of the frames it went "
        f"through.{release} Store the text instead, or cut the traceback off.",
        before="errors.append(error)",
        after="errors.append(traceback.format_exc())  # or error.with_traceback(None)",
        unless="Not if the exception is raised again later and its origin should be shown.",
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
            f"{e.place} keeps asyncio tasks that have not ended, and the coroutine of each keeps every local variable "
            "until it ends. Give them a limit, or cancel those that nobody waits for.",
            before="result = await task",
            after="result = await asyncio.wait_for(task, timeout=30)  # or task.cancel()",
            unless="Not if they are meant to work on for as long as the program runs.",
        )
    if suspended:
        return Advice(
            f"{e.place} keeps suspended generators or coroutines, and their frames keep every local variable until "
            "they end. Close them when they have served, or cancel their tasks, and take them out.",
            before="first = next(stream)",
            after="first = next(stream); stream.close()",
            unless="Not while somebody will still ask for the next value.",
        )
    if any(step.reference.startswith("default of") or "__kwdefaults__" in step.reference for step in e.steps_above):
        return Advice(
            f"A default argument keeps it: {e.place}. It is made once, with the function, and lives as long as that.",
            before="def f(x, seen=[]):",
            after="def f(x, seen=None):\n    seen = [] if seen is None else seen",
            unless="Not if the calls are meant to share it; then make that visible and bound its size.",
        )
    return Advice(
        f"A function keeps it: {e.place}. What a closure or a partial refers to lives as long as the function does: do "
        "not wrap the wrapper of the run before, and hand values in as arguments.",
        before="step = wrap(step, x)",
        after="step = wrap(original_step, x)",
        unless="Not if every layer is really called for.",
    )
