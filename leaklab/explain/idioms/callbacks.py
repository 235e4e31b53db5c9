"""Callbacks that runs leave in registries: of the user's, of libraries, of the interpreter."""

from __future__ import annotations

import ast
import re
import types
from collections.abc import Iterator
from typing import Any

from leaklab.cure.case import Case, name_of
from leaklab.cure.ends import end_of, made_in_run, receiver_of, statements, with_names
from leaklab.cure.live import MISSING, evaluate, has_method
from leaklab.cure.proposal import Proposal
from leaklab.cure.source import SourceText
from leaklab.explain.counterparts import takes_one_out, undoing
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
from leaklab.explain.idioms.hooks import is_hook_call
from leaklab.explain.idioms.in_use import dropped
from leaklab.explain.leaks.evidence import Evidence
from leaklab.heap.roles import Role
from leaklab.measure.registries import Registry, registry_on
from leaklab.runtime.objects import is_exactly, is_kind_of, static_attribute, type_name

_CALLABLES = frozenset({
    "method", "function", "builtin_function_or_method", "functools.partial", "weakref.WeakMethod",
    "weakref.finalize._Info", "weakref.finalize", "logging.StreamHandler",
})  # fmt: skip
_SET_BY = {
    "sys.getprofile()": "sys.setprofile(...)", "sys.gettrace()": "sys.settrace(...)",
    "sys.excepthook": "sys.excepthook = ...", "sys.displayhook": "sys.displayhook = ...",
    "sys.stdout": "sys.stdout = ...", "sys.stderr": "sys.stderr = ...",
}  # fmt: skip
"""What the interpreter has one of, by the expression for it, and what puts another one in its place."""


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
        f"of them. Put the one before back when the run ends (`{back}`, in a `finally`), or install one, outside the "
        "repeated code.",
        "Not while the new one is still needed.",
    )


def taken_back(case: Case) -> Iterator[Proposal]:
    """Yield how a registration is taken back by the call that its library has for it."""
    for source, statement in statements(case):
        yield from _entry_taken_out(case, source, statement)
        if not isinstance(statement, (ast.Expr, ast.Assign)) or not isinstance(statement.value, ast.Call):
            continue
        call = statement.value
        if not isinstance(call.func, ast.Attribute) or not call.args or is_hook_call(call):
            continue
        undo = _counterpart(case, source, call)
        if undo:
            yield from _taken_back(case, source, statement, undo)
            return


def _entry_taken_out(case: Case, source: SourceText, statement: ast.stmt) -> Iterator[Proposal]:
    """Yield how the entry that *statement* puts into a dict of callbacks, ``handlers[token] = f``, leaves it again."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Subscript) or not isinstance(target.slice, (ast.Name, ast.Attribute, ast.Constant)):
        return
    place = source.text_of(target.value)
    if type(evaluate(place, case.program.namespace)) is not dict or not dropped(case, (place,)):
        return
    line = f"{place}.pop({source.text_of(target.slice)}, None)"
    patch = case.patch()
    if not list(source.loops_around(statement)) and end_of(case, source, statement, patch, [line]):
        yield from case.proposal(f"Take it out again when the run ends: `{line}`.", patch)


def _counterpart(case: Case, source: SourceText, call: ast.Call) -> str:
    """Return the name of the function that undoes *call*, if the object that it is called on has one."""
    if not isinstance(call.func, ast.Attribute):
        return ""
    name, owner = call.func.attr, _live_owner(case, source, call)
    if owner is MISSING:
        return ""
    if undo := takes_one_out(type_name(type(owner)), name):
        return undo if dropped(case, (source.text_of(call.func.value),)) else ""
    return next((undo for undo in undoing(name) if has_method(owner, undo)), "")


def _live_owner(case: Case, source: SourceText, call: ast.Call) -> Any:
    """Return the object that *call* registers something with, `MISSING` if that is not known.

    What the code calls ``self.bus`` in a method is looked for in the object that the run makes and names.
    """
    if not isinstance(call.func, ast.Attribute):
        return MISSING
    text = source.text_of(call.func.value)
    function = source.function_of(call)
    owner = source.class_of(function) if function is not None else None
    if owner is not None and len(made := list(made_in_run(case, owner.name))) == 1:
        text = with_names(text, {receiver_of(function): made[0]})
    return evaluate(text, case.program.namespace)


def _taken_back(case: Case, source: SourceText, statement: ast.Expr | ast.Assign, undo: str) -> Iterator[Proposal]:
    call = statement.value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return
    place = source.text_of(call.func.value)
    patch = case.patch()
    if undo in ("mpl_disconnect", "disconnect") and (isinstance(statement, ast.Assign) or undo == "mpl_disconnect"):
        if isinstance(statement, ast.Assign):
            args = [source.text_of(statement.targets[0])]
        else:
            args = [case.fresh("connection")]
            patch.replace(source, call, f"{args[0]} = {source.text_of(call)}")
    else:
        args = []
        named: list[str] = []
        for arg in call.args[: _n_arguments(_live_owner(case, source, call), undo, len(call.args))]:
            text = source.text_of(arg)
            if isinstance(arg, (ast.Call, ast.Lambda)):
                name = case.fresh(_word_for(arg))
                named.append(f"{name} = {text}")
                patch.replace(source, arg, name)
                text = name
            args.append(text)
        if named:
            patch.before(source, statement, named)
    lines = [f"{place}.{undo}({', '.join(args)})"]
    if undo == "removeHandler" and args[0].isidentifier():
        lines.append(f"{args[0]}.close()")
    if list(source.loops_around(statement)):
        return
    if not end_of(case, source, statement, patch, lines):
        return
    yield from case.proposal(f"Take it out again when the run ends: `{place}.{undo}({', '.join(args)})`.", patch)


def _n_arguments(owner: object, undo: str, given: int) -> int:
    """Return how many of the arguments of the registration its counterpart takes."""
    is_module = is_kind_of(owner, types.ModuleType)
    function = static_attribute(owner if is_module else type(owner), undo)
    is_static = type(function) is staticmethod
    if is_exactly(function, (staticmethod, classmethod)):
        function = function.__func__
    if type(function) is not types.FunctionType:
        return 1
    code = function.__code__
    is_bound = not is_module and not is_static
    return max(0, min(given, code.co_argcount - is_bound))


def _word_for(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        name = re.findall(r"[A-Z][a-z]+|[a-z]+", name_of(node.func))
        return name[-1].lower() if name and name[-1].lower().isidentifier() else "entry"
    return "callback"
