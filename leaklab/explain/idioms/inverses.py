"""The inverse of the call that keeps: it is written where the run ends, or the function that calls it."""

from __future__ import annotations

import ast
import collections
import contextlib
import functools
import itertools
import re
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

from leaklab.cure.case import Case, called, name_of
from leaklab.cure.edits import with_names
from leaklab.cure.ends import (
    Later,
    call_site,
    definition_of,
    end_of,
    is_of_run,
    kept_name,
    made_in_run,
    receiver_of,
    statements,
    word_for,
)
from leaklab.cure.live import MISSING, attribute, evaluate, has_method, needs_nothing, newest
from leaklab.cure.source import FUNCTIONS, Patch, Proposal, SourceText
from leaklab.explain.counterparts import (
    OF_EVENTS,
    OF_RESULTS,
    UNDO_FUNCTIONS,
    UNDO_WORDS,
    is_handle,
    lets_go,
    takes_one_out,
    takes_result,
    undoing,
    undoing_function,
)
from leaklab.explain.idioms.callbacks import is_hook_call
from leaklab.explain.idioms.in_use import is_registry
from leaklab.explain.idioms.own_entries import own_way, words_of
from leaklab.explain.idioms.windows import readers
from leaklab.runtime.containers import items_in, keys_in
from leaklab.runtime.objects import (
    has_base,
    is_exactly,
    is_kind_of,
    module_dict,
    static_attribute,
    type_name,
)
from leaklab.runtime.ours import Origin, origin_of

_N_SETATTR = 3
_N_KEYS, _KEYS = 2, (str, int, bytes)
"""Among so many arguments of a registration its key is looked for."""


def taken_back(case: Case) -> Iterator[Proposal]:
    """Yield how a registration is taken back: by its handle, by the call that its library has for it, by its key."""
    for source, statement in statements(case):
        yield from _entry_taken_out(case, source, statement)
        yield from _returned_taken_back(case, source, statement)
        if not isinstance(statement, (ast.Expr, ast.Assign)) or not isinstance(statement.value, ast.Call):
            continue
        call = statement.value
        if is_hook_call(call):
            continue
        ways = (_by_result, _by_counterpart, _by_flag, _by_function, _by_key)
        found = next(itertools.chain.from_iterable(way(case, source, statement, call) for way in ways), None)
        if found is not None:
            yield found


def _entry_taken_out(case: Case, source: SourceText, statement: ast.stmt) -> Iterator[Proposal]:
    """Yield how the entry that *statement* puts into a dict of callbacks, ``handlers[token] = f``, leaves it again.

    So does an attribute with a name of its own in each run: ``setattr(module, name, f)``.
    """
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and name_of(call.func) == "setattr" and len(call.args) == _N_SETATTR:
        owner, name, _ = call.args
        if isinstance(name, ast.Name):
            line = f"delattr({source.text_of(owner)}, {name.id})"
            yield from _at_end(case, source, statement, case.patch(), line)
        return
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Subscript) or not isinstance(target.slice, (ast.Name, ast.Attribute, ast.Constant)):
        return
    place = source.text_of(target.value)
    if type(evaluate(place, case.program.namespace)) is not dict or not is_registry(case, place):
        return
    line = f"{place}.pop({source.text_of(target.slice)}, None)"
    yield from _at_end(case, source, statement, case.patch(), line)


def _at_end(case: Case, source: SourceText, statement: ast.stmt, patch: Patch, *lines: str) -> Iterator[Proposal]:
    later = _later(lines[-1])
    if own := own_way(source, statement, lines[-1]):
        patch, lines = case.patch(), (own,)
    if written := end_of(case, source, statement, patch, list(lines), later=later):
        yield from case.proposal(words_of(case, source, statement, written, lines[-1]), patch)


def _later(line: str) -> Later:
    """Return whether what *line* undoes was registered for what comes after the run."""
    return Later.ALWAYS if called(ast.parse(line, mode="eval").body) in OF_EVENTS else Later.IF_LAST


def _by_result(case: Case, source: SourceText, statement: ast.Expr | ast.Assign, call: ast.Call) -> Iterator[Proposal]:
    """Yield how what *call* returns ends it: a handle with a method for that, a function to be called for that."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if target is not None and not isinstance(target, (ast.Name, ast.Attribute)):
        return
    ending, word = _ending(case, source, statement, call)
    if not ending:
        return
    patch = case.patch()
    name = kept_name(case, source, statement, word) if target is None else source.text_of(target)
    if target is None:
        patch.replace(source, call, f"{name} = {source.text_of(call)}")
    yield from _at_end(case, source, statement, patch, f"{name}{ending}")


def _ending(case: Case, source: SourceText, statement: ast.stmt, call: ast.Call) -> tuple[str, str]:
    """Return what is written behind the result of *call* to end it, and a name for that; empty if nothing ends it."""
    if isinstance(statement, ast.Assign) and is_of_run(case, source, statement):
        made = evaluate(source.text_of(statement.targets[0]), case.program.namespace)
        if type(made) is types.FunctionType:
            is_undo = made.__name__ in UNDO_FUNCTIONS or source.text_of(statement.targets[0]) in UNDO_FUNCTIONS
            return ("()", "") if is_undo and needs_nothing(made, is_bound=False) else ("", "")
        return (_method_of(made), "") if made is not MISSING else ("", "")
    made_of = evaluate(source.text_of(call.func), case.program.namespace)
    if isinstance(statement, ast.Assign) and is_kind_of(made_of, type):
        return "()" if made_of is weakref.finalize else _method_of(made_of), ""
    function = _live_function(case, source, call)
    definition = None if function is None else definition_of(case, function)
    last = definition.body[-1] if definition is not None else None
    if function is None or definition is None or not isinstance(last, ast.Return) or last.value is None:
        return "", ""
    if isinstance(last.value, ast.Name):
        inner = [one for one in definition.body if isinstance(one, FUNCTIONS) and one.name == last.value.id]
        is_undo = bool(inner) and inner[0].name in UNDO_FUNCTIONS and not inner[0].args.args
        return ("()", inner[0].name) if is_undo else ("", "")
    kind = function.__globals__.get(name_of(last.value.func)) if isinstance(last.value, ast.Call) else None
    return (_method_of(kind), word_for(last.value)) if is_kind_of(kind, type) else ("", "")


def _method_of(thing: object) -> str:
    """Return the call, ``.close()``, of a method that ends *thing*, an object or a class; empty without one."""
    kind = thing if is_kind_of(thing, type) else type(thing)
    for name in OF_RESULTS:
        method = static_attribute(kind, name)
        if type(method) is types.FunctionType and needs_nothing(method):
            return f".{name}()"
    return ""


def _live_function(case: Case, source: SourceText, call: ast.Call) -> types.FunctionType | None:
    """Return the function of Python that *call* calls, None where that is not known."""
    if isinstance(call.func, ast.Attribute):
        owner = live_owner(case, source, call)
        is_owner = is_kind_of(owner, type) or is_kind_of(owner, types.ModuleType)
        found = None if owner is MISSING else static_attribute(owner if is_owner else type(owner), call.func.attr)
    else:
        found = case.program.namespace.get(name_of(call.func))
    return found if type(found) is types.FunctionType else None


def _by_counterpart(
    case: Case, source: SourceText, statement: ast.Expr | ast.Assign, call: ast.Call
) -> Iterator[Proposal]:
    """Yield how the object that *call* registers something with lets go of it."""
    undo = _counterpart(case, source, call)
    if not undo or not isinstance(call.func, ast.Attribute):
        return
    place, patch, owner = source.text_of(call.func.value), case.patch(), live_owner(case, source, call)
    if place == "atexit" and not (call.args and lets_go(name_of(call.args[0]))):
        return  # what is to happen at exit would not happen
    is_handle_wanted = _wants_handle(owner, undo, call.func.attr) or _wants_result(case, statement, owner, undo)
    if takes_result(type_name(type(owner)), call.func.attr) or is_handle_wanted:
        args = [_named_result(case, source, statement, patch)]
    else:
        n_args = _n_arguments(owner, undo, call)
        if call.func.attr.startswith("add") and _are_plain(case, source, call.args[:n_args]):
            return  # data that is stored, as a node of a graph: to take that out again would be to store nothing
        args = _named_arguments(case, source, statement, call.args[:n_args], patch)
        shared = _parameters(owner, undo)[n_args:]
        args += [f"{word.arg}={source.text_of(word.value)}" for word in call.keywords if word.arg in shared]
    lines = [f"{place}.{undo}({', '.join(args)})"]
    line = lines[0]
    if undo == "removeHandler" and re.fullmatch(r"[\w.]+", args[0]):
        lines.append(f"{args[0]}.close()")
    later = _later(line)
    if own := own_way(source, statement, line):
        patch, line, lines = case.patch(), own, [own]
    if written := end_of(case, source, statement, patch, lines, later=later):
        yield from case.proposal(words_of(case, source, statement, written, line), patch)


def _by_flag(case: Case, source: SourceText, statement: ast.Expr | ast.Assign, call: ast.Call) -> Iterator[Proposal]:
    """Yield how the same call takes back what it has registered: ``button.on_click(callback, remove=True)``."""
    if not isinstance(call.func, ast.Attribute) or not call.args or call.keywords:
        return
    if _FLAG not in _parameters(live_owner(case, source, call), call.func.attr)[len(call.args) :]:
        return
    patch = case.patch()
    args = _named_arguments(case, source, statement, call.args, patch)
    line = f"{source.text_of(call.func)}({', '.join(args)}, {_FLAG}=True)"
    if written := end_of(case, source, statement, patch, [line], later=Later.ALWAYS):
        yield from case.proposal(words_of(case, source, statement, written, line), patch)


_FLAG = "remove"


def _are_plain(case: Case, source: SourceText, nodes: list[ast.expr]) -> bool:
    """Return whether *nodes*, arguments, are numbers and texts: neither something that is called nor a handle."""
    values = (
        node.value if isinstance(node, ast.Constant) else evaluate(source.text_of(node), case.program.namespace)
        for node in nodes
    )
    return bool(nodes) and all(is_exactly(value, (int, float, str, bytes)) for value in values)


def _returned_taken_back(case: Case, source: SourceText, statement: ast.stmt) -> Iterator[Proposal]:
    """Yield how the run takes back what a function registers and returns the handle of: ``return bus.connect(f)``."""
    call = statement.value if isinstance(statement, ast.Return) else None
    function = source.function_of(statement)
    if (
        not isinstance(call, ast.Call)
        or not isinstance(call.func, ast.Attribute)
        or not isinstance(function, FUNCTIONS)
    ):
        return
    site, owner = call_site(case, source, function), live_owner(case, source, call)
    undo = _counterpart(case, source, call)
    if site is None or not undo or not isinstance(site.statement, (ast.Expr, ast.Assign)):
        return
    wants = takes_result(type_name(type(owner)), call.func.attr) or _wants_handle(owner, undo, call.func.attr)
    n_args = 0 if wants else _n_arguments(owner, undo, call)
    patch, args = case.patch(), [*map(source.text_of, call.args[:n_args])]
    line = f"{source.text_of(call.func.value)}.{undo}({', '.join(args)})"
    own = "" if wants else own_way(source, statement, line)
    lines = site.translated([own or line], function)
    if lines is None:
        return
    if wants:
        lines = [lines[0].replace("()", f"({_named_result(case, site.source, site.statement, patch)})")]
    yield from _at_end(case, site.source, site.statement, patch, *lines)


def _counterpart(case: Case, source: SourceText, call: ast.Call) -> str:
    """Return the name of the function that undoes *call*, if the object that it is called on has one."""
    if not isinstance(call.func, ast.Attribute):
        return ""
    name, owner = call.func.attr, live_owner(case, source, call)
    if owner is MISSING:
        return ""
    if undo := takes_result(type_name(type(owner)), name):
        return undo
    if undo := takes_one_out(type_name(type(owner)), name):
        place = source.text_of(call.func.value)
        return undo if call.args and is_registry(case, place) and not _is_work(case) else ""
    if has_base(type(owner), contextlib.ExitStack) and not _are_alike(owner):
        return ""
    return next((undo for undo in undoing(name) if has_method(owner, undo)), "")


def _is_work(case: Case) -> bool:
    """Return whether what is kept is to be called with arguments of its own, and no code of the user's calls it yet."""
    is_partial = is_exactly(newest(case.held), (functools.partial,))
    return is_partial and case.store is not None and not any(readers(case, case.store))


def _are_alike(stack: object) -> bool:
    """Return whether all that *stack* would leave are contexts of one kind: none was entered for another purpose."""
    callbacks = attribute(stack, "_exit_callbacks")
    entries = items_in(callbacks) if has_base(type(callbacks), collections.deque) else []
    contexts = [attribute(one, "__self__") for entry in entries for one in items_in(entry)[1:]]
    generators = [attribute(one, "gen") for one in contexts]
    codes = {one.gi_code if type(one) is types.GeneratorType else None for one in generators}
    return len({type(one) for one in contexts}) == len(codes) == 1


def _wants_handle(owner: object, undo: str, call: str) -> bool:
    """Return whether *undo* is given what the registration returned, not what that was given."""
    if undo in ("mpl_disconnect", "disconnect"):
        return undo == "mpl_disconnect" or _parameters(owner, undo)[:1] != _parameters(owner, call)[:1]
    wanted = _parameters(owner, undo)[:1]
    return bool(wanted) and is_handle(wanted[0]) and wanted[0] not in _parameters(owner, call)


def _wants_result(case: Case, statement: ast.Expr | ast.Assign, owner: object, undo: str) -> bool:
    """Return whether the run keeps what the registration returned, and *undo* takes nothing that it was given."""
    call, target = statement.value, statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not isinstance(target, ast.Name):
        return False
    wanted, result = _parameters(owner, undo)[:1], evaluate(target.id, case.program.namespace)
    is_something = result is not MISSING and result is not None and not is_exactly(result, (bool,))
    return is_something and bool(wanted) and wanted[0] not in _parameters(owner, call.func.attr)


def _parameters(owner: object, name: str) -> list[str]:
    """Return the names of what a method, or a function of a module, is given; empty where it is none of Python's."""
    is_module = is_kind_of(owner, types.ModuleType)
    function = static_attribute(owner if is_module or is_kind_of(owner, type) else type(owner), name)
    is_bound = not is_module and type(function) is not staticmethod
    if is_exactly(function, (staticmethod, classmethod)):
        function = function.__func__
    if type(function) is not types.FunctionType:
        return []
    return list(function.__code__.co_varnames[is_bound : function.__code__.co_argcount])


def _by_function(
    case: Case, source: SourceText, statement: ast.Expr | ast.Assign, call: ast.Call
) -> Iterator[Proposal]:
    """Yield how a function of the same module undoes what *call*, one of its functions, has done."""
    function = _live_function(case, source, call)
    module = None if function is None or "." in function.__qualname__ else sys.modules.get(function.__module__)
    names = module_dict(module) if is_kind_of(module, types.ModuleType) else None
    if function is None or names is None:
        return
    given = list(function.__code__.co_varnames[: function.__code__.co_argcount])
    words = dict(zip(given, call.args, strict=False)) | {word.arg: word.value for word in call.keywords if word.arg}
    defaults = dict(zip(reversed(given), reversed(function.__defaults__ or ()), strict=False))
    for undo in undoing_function(function.__name__, names):
        inverse = names[undo]
        if type(inverse) is not types.FunctionType or inverse.__module__ != function.__module__:
            continue
        n_needed = inverse.__code__.co_argcount - len(inverse.__defaults__ or ())
        wanted = inverse.__code__.co_varnames[:n_needed]
        if not n_needed or not all(name in words or type(defaults.get(name)) is str for name in wanted):
            continue
        above = source.text_of(call.func).removesuffix(function.__name__)
        if not above and undo not in case.program.namespace:
            continue
        patch = case.patch()
        nodes = [words[name] for name in wanted if name in words]
        named = _named_arguments(case, source, statement, nodes, patch)
        known = dict(zip([name for name in wanted if name in words], named, strict=True))
        args = [known.get(name) or repr(defaults[name]) for name in wanted]
        args += [UNDO_WORDS[undo]] if undo in UNDO_WORDS else []
        yield from _at_end(case, source, statement, patch, f"{above}{undo}({', '.join(args)})")


def _by_key(case: Case, source: SourceText, statement: ast.Expr | ast.Assign, call: ast.Call) -> Iterator[Proposal]:
    """Yield how the entry that *call*, of a library, makes in a public dict of its object goes by its key."""
    keys, function = keys_in(case.held) if is_kind_of(case.held, dict) else [], _live_function(case, source, call)
    place, _, name = case.holder.rpartition(".")
    if function is None or origin_of(function.__code__.co_filename) is Origin.USER or name.startswith("_"):
        return
    if not keys or not is_of_run(case, source, statement) or source.text_of(call.func).rpartition(".")[0] != place:
        return
    for node in call.args[:_N_KEYS]:
        key = evaluate(source.text_of(node), case.program.namespace)
        is_text = isinstance(node, ast.JoinedStr) and all(type(one) is str for one in keys)
        is_there = any(type(one) is type(key) and one == key for one in keys) if is_exactly(key, _KEYS) else False
        if not is_text and not is_there:
            continue
        patch, text = case.patch(), source.text_of(node)
        if is_text:
            patch.before(source, statement, [f"{(name := case.fresh('key'))} = {text}"])
            patch.replace(source, node, name)
            text = name
        yield from _at_end(case, source, statement, patch, f"{case.holder}.pop({text}, None)")
        return


def live_owner(case: Case, source: SourceText, call: ast.Call) -> Any:
    """Return the object that *call* is a method of, `MISSING` if that is not known.

    What the code calls ``self.bus`` in a method is looked for in the object that the run makes and names, a parameter
    in what the one call of the function gives.
    """
    if not isinstance(call.func, ast.Attribute):
        return MISSING
    text = source.text_of(call.func.value)
    function = source.function_of(call)
    owner = source.class_of(function) if function is not None else None
    if owner is not None:
        used = (
            one for one in sorted(case.names_in_run()) if type(case.program.namespace.get(one)).__name__ == owner.name
        )
        made = list(made_in_run(case, owner.name)) or list(used)
        if len(made) == 1:
            text = with_names(text, {receiver_of(function): made[0]})
    elif isinstance(function, FUNCTIONS) and re.split(r"\W", text)[0] in {one.arg for one in function.args.args}:
        site = call_site(case, source, function)
        text = with_names(text, site.names) if site is not None else text
    return evaluate(text, case.program.namespace)


def _named_result(case: Case, source: SourceText, statement: ast.Expr | ast.Assign, patch: Patch) -> str:
    """Return the name of what the call of *statement* returns; it gets one where it has none."""
    if isinstance(statement, ast.Assign):
        return source.text_of(statement.targets[0])
    name = kept_name(case, source, statement, "connection")
    patch.replace(source, statement.value, f"{name} = {source.text_of(statement.value)}")
    return name


def _named_arguments(
    case: Case, source: SourceText, statement: ast.stmt, nodes: list[ast.expr], patch: Patch
) -> list[str]:
    """Return the words for *nodes*, arguments of a call; what is made there gets a name above *statement*."""
    args, named = [], []
    for node in nodes:
        text = source.text_of(node)
        if isinstance(node, (ast.Call, ast.Lambda)):
            name = kept_name(case, source, statement, word_for(node))
            named.append(f"{name} = {text}")
            patch.replace(source, node, name)
            text = name
        args.append(text)
    if named:
        patch.before(source, statement, named)
    return args


def _n_arguments(owner: object, undo: str, call: ast.Call) -> int:
    """Return how many of the arguments of the registration *call* its counterpart takes.

    Behind the first they are those that it needs, or calls by the same name.
    """
    is_owner = is_kind_of(owner, types.ModuleType) or is_kind_of(owner, type)
    function: Any = static_attribute(owner if is_owner else type(owner), undo)
    function = function.__func__ if is_exactly(function, (staticmethod, classmethod)) else function
    if type(function) is not types.FunctionType:
        return min(len(call.args), 1)
    taken, given = _parameters(owner, undo), _parameters(owner, name_of(call.func))
    n_needed = len(taken) - len(function.__defaults__ or ())
    pairs = enumerate(zip(call.args, taken, strict=False))
    fitting = [n == 0 or n < n_needed or name in given[n : n + 1] for n, (_, name) in pairs]
    return fitting.index(False) if False in fitting else len(fitting)
