"""Callbacks and hooks that runs leave in registries: of the user's, of libraries, of modules, of the interpreter."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from leaklab.cure.case import Case, called, name_of, store_of
from leaklab.cure.ends import Written, end_of, kept_name, statements
from leaklab.cure.live import evaluate, has_method
from leaklab.cure.source import FUNCTIONS, Proposal, SourceText
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
from leaklab.explain.idioms.frames import is_argument_of_partial, is_chain_of_functions
from leaklab.explain.leaks.evidence import Evidence
from leaklab.heap.roles import Role
from leaklab.measure.registries import Registry, registry_on
from leaklab.runtime.containers import items_in
from leaklab.runtime.objects import is_exactly

_CALLABLES = frozenset({
    "method", "function", "builtin_function_or_method", "functools.partial", "weakref.WeakMethod",
    "weakref.finalize._Info", "weakref.finalize", "logging.StreamHandler",
})  # fmt: skip


def callback_registry(e: Evidence) -> Advice | None:
    """A registry keeps a bound method or function, and with it the object.

    It is one because a library calls back from it (logging, matplotlib, IPython, finalizers, ``gc.callbacks``), or
    because every entry of the collection is something to be called.
    """
    is_else = is_chain_of_functions(e) or is_argument_of_partial(e)
    all_callable = bool(e.entry_kinds) and e.entry_kinds <= _CALLABLES and not is_else
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
        f"{place_words(e)} gets one more callback in every run, and a bound method keeps its object with all "
        f"that the object has.{may_release(e.owner)} Take the callback out when its object is done{how}, register it "
        "once, or keep it there as a `weakref.WeakMethod`.",
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
        f"Every run registers one more observer of {owner}, which is kept with all that it refers to. Call "
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
            f"everything it refers to, and affects all code after it.{unproved} Enter it by `with`, which "
            "leaves it again, also after an error, or call `__exit__` for each `__enter__`."
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
_HOOK = re.compile(r"^(register_(\w+_)?hook|register_hook)$")


def hook_left(e: Evidence) -> Advice | None:
    """A hook was registered and its handle never removed: on a module, tensor, optimizer, or for all of them."""
    if e.in_cycle or Role.HOOKS not in e.roles_above:
        return None
    store = next(step.reference for step, roles in zip(e.path.steps, e.roles, strict=True) if Role.HOOKS in roles)
    call, where = _registration(e, store)
    return Advice(
        f"Every run registers one more hook{where} and leaves it there, with everything the hook refers to; all of "
        f"them are called in every run. Keep the handle that {call} returns and call its `remove()` when the run ends "
        "(in a `finally`, so that an error does not leave the hook), or register the hook once, outside the repeated "
        "code.",
        "Not if the hook is meant to stay: then register it once, before the loop.",
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


def handles_removed(case: Case) -> Iterator[Proposal]:
    """Yield how the handles of hooks are kept and removed where the run, or the function that registers, ends."""
    yield from _returned_handles(case)
    for source, statement in statements(case):
        calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and is_hook_call(node)]
        if not calls or hasattr(statement, "body"):
            continue
        yield from _removed_by_owner(case, source, statement)
        beside = [one for one in source.siblings(statement) if _is_mere_registration(one)]
        if len(beside) > 1 and statement in beside:
            yield from _handles_removed(case, source, beside)
        yield from _handle_removed(case, source, statement, calls)
        yield from _appended_handle(case, source, statement, calls[0])
        return


def _is_mere_registration(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and is_hook_call(statement.value)


def _handles_removed(case: Case, source: SourceText, beside: list[ast.stmt]) -> Iterator[Proposal]:
    """Yield how the handles of several hooks that one block registers are kept, and all hooks removed."""
    if list(source.loops_around(beside[0])):
        return
    patch, undo = case.patch(), []
    for number, statement in enumerate(beside, 1):
        handle = kept_name(case, source, statement, "handle" if number == 1 else f"handle_{number}")
        patch.replace(source, statement, f"{handle} = {source.text_of(statement)}")
        undo.append(f"{handle}.remove()")
    if end_of(case, source, beside[-1], patch, undo):
        words = "Keep the handles that the registrations return, and remove the hooks when the run ends."
        yield from case.proposal(words, patch)


def _removed_by_owner(case: Case, source: SourceText, statement: ast.stmt) -> Iterator[Proposal]:
    """Yield that an object that registers hooks removes them by its own method, where the code is done with it."""
    function = source.function_of(statement)
    kind = source.class_of(function) if isinstance(function, FUNCTIONS) else None
    if kind is None or not isinstance(function, FUNCTIONS):
        return
    methods = (one for one in kind.body if isinstance(one, FUNCTIONS) and one is not function)
    way = next((one.name for one in methods if _removes(one)), "")
    for where, node, names in case.calling if way else ():
        if names.isdisjoint({function.name, kind.name}) or where.class_of(where.function_of(node) or node) is kind:
            continue
        name = _name_of_owner(node, function, kind.name)
        patch, line = case.patch(), f"{name}.{way}()"
        if name and end_of(case, where, node, patch, [line]):
            yield from case.proposal(f"Remove the hooks as the program can: `{line}`.", patch)
            return


def _removes(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether *method*, which needs no arguments, removes what it has handles of."""
    wanted = len(method.args.args) - len(method.args.defaults) > 1 or None in method.args.kw_defaults
    return not wanted and any(called(node) == "remove" for node in ast.walk(method))


def _name_of_owner(node: ast.stmt, registers: ast.FunctionDef | ast.AsyncFunctionDef, kind: str) -> str:
    """Return what the code calls the object whose method *registers* is called in *node*; empty without a name."""
    call = getattr(node, "value", None)
    if not isinstance(call, ast.Call) or not isinstance(node, (ast.Assign, ast.Expr)):
        return ""
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    owner = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == registers.name else None
    if isinstance(node, ast.Expr):
        return owner.id if isinstance(owner, ast.Name) else ""
    made = call if registers.name == "__init__" else owner if _returns_itself(registers) else None
    is_made = isinstance(made, ast.Call) and name_of(made.func) == kind
    return target.id if isinstance(target, ast.Name) and is_made else ""


def _returns_itself(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    last, own = function.body[-1], function.args.args[:1]
    returned = last.value if isinstance(last, ast.Return) else None
    return returned is not None and [name_of(returned)] == [one.arg for one in own]


def _returned_handles(case: Case) -> Iterator[Proposal]:
    """Yield how handles are removed that a function returns to the run."""
    for source, statement in statements(case):
        if source is not case.cell or not isinstance(statement, ast.Assign):
            continue
        if not isinstance(statement.value, ast.Call) or not isinstance(statement.targets[0], ast.Name):
            continue
        name = source.text_of(statement.targets[0])
        held = evaluate(name, case.program.namespace)
        lines = []
        if _is_handle(held):
            lines = [f"{name}.remove()"]
        elif is_exactly(held, (list, tuple)) and held and all(map(_is_handle, items_in(held))):
            lines = [f"for handle in {name}:", "    handle.remove()"]
        if lines and not list(source.loops_around(statement)):
            yield from case.at_end(f"Remove the hooks by the handles in `{name}` when the run ends.", *lines)
            return


def _is_handle(thing: object) -> bool:
    return type(thing).__name__ == "RemovableHandle" and has_method(thing, "remove")


def is_hook_call(node: ast.Call) -> bool:
    """Return whether *node* registers a hook, and so gets a handle."""
    return _HOOK.match(called(node)) is not None


def _appended_handle(case: Case, source: SourceText, statement: ast.stmt, call: ast.Call) -> Iterator[Proposal]:
    """Yield how the handle that a run adds to a list is taken out of it again and removed."""
    store, patch = store_of(source, statement, ""), case.patch()
    if store.how == "one" and store.value is call and called(getattr(statement, "value", statement)) == "append":
        undo = [f"{store.container_text}.pop().remove()"]
        if not list(source.loops_around(statement)) and end_of(case, source, statement, patch, undo):
            words = f"Take the handle out of `{store.container_text}` again and remove the hook when the run ends."
            yield from case.proposal(words, patch)


def _handle_removed(case: Case, source: SourceText, statement: ast.stmt, calls: list[ast.Call]) -> Iterator[Proposal]:
    patch = case.patch()
    loops = list(source.loops_around(statement))
    call, above = calls[0], source.parent(calls[0])
    if len(calls) > 1:
        return
    undo: list[str]
    if isinstance(statement, ast.Expr) and statement.value is call:
        if loops:
            handles = kept_name(case, source, statement, "handles")
            patch.before(source, loops[-1], [f"{handles} = []"])
            patch.replace(source, call, f"{handles}.append({source.text_of(call)})")
            undo = [f"for handle in {handles}:", "    handle.remove()"]
        else:
            handle = kept_name(case, source, statement, "handle")
            patch.replace(source, call, f"{handle} = {source.text_of(call)}")
            undo = [f"{handle}.remove()"]
    elif isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1:
        target = statement.targets[0]
        if loops or not isinstance(target, (ast.Name, ast.Attribute)):
            return
        undo = [f"{source.text_of(target)}.remove()"]
    elif isinstance(above, (ast.ListComp, ast.List)) and isinstance(statement, ast.Assign) and statement.value is above:
        undo = [f"for handle in {source.text_of(statement.targets[0])}:", "    handle.remove()"]
    elif isinstance(above, ast.ListComp) and isinstance(statement, ast.Expr) and statement.value is above:
        handles = kept_name(case, source, statement, "handles")
        patch.replace(source, above, f"{handles} = {source.text_of(above)}")
        undo = [f"for handle in {handles}:", "    handle.remove()"]
    else:
        return
    if written := end_of(case, source, statement, patch, undo):
        then = "remove the hook when the run ends"
        if written is Written.BEFORE_NEXT:
            then = "let the next run remove the hook before it registers its own"
        yield from case.proposal(f"Keep the handle that the registration returns, and {then}.", patch)
