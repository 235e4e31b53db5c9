"""What functions and frames keep: closures, default values, suspended frames, tracebacks."""

from __future__ import annotations

import ast
import re
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

from leaklab.cure.case import Case, called, name_of
from leaklab.cure.ends import definition_of
from leaklab.cure.live import evaluate, newest
from leaklab.cure.source import FUNCTIONS, Proposal, SourceText
from leaklab.explain.counterparts import TASK_KINDS
from leaklab.explain.idioms.advice import HEAD_OF_GRAPH, Advice, clearing, is_expression, is_private, named, place_words
from leaklab.explain.idioms.lifetimes import has_tasks, is_result_of_task
from leaklab.explain.idioms.windows import is_looked_up, newest_read, readers
from leaklab.explain.leaks.evidence import Evidence
from leaklab.heap.known_holders import known_holder
from leaklab.heap.roles import Role
from leaklab.runtime.containers import items_in, values_in
from leaklab.runtime.objects import has_base, is_exactly, is_kind_of, loaded_type

_PLACES = ("closure", "default", "partial", "frame-local")
_WORDS = ("closure variable", "default of", "local ")
_PARTIAL = "functools.partial"
_SUSPENDED = frozenset({"generator", "coroutine", "async_generator", *TASK_KINDS})
_COLLECTIONS = (list, dict, set, deque, defaultdict, OrderedDict)
_CHAIN = frozenset({".__cause__", ".__context__"})
_FUTURES = frozenset({"concurrent.futures._base.Future", "_asyncio.Future", "_asyncio.Task"})


def closure_kept(e: Evidence) -> Advice | None:
    """A closure, a default argument, a partial or a suspended frame keeps it."""
    through = any(step.reference.startswith(_WORDS) or ".__defaults__" in step.reference for step in e.steps_above)
    crosses = e.crossing is not None and e.crossing.kind in _PLACES
    crosses = crosses or is_argument_of_partial(e) or is_chain_of_functions(e)
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
            "local variable until it ends. Call `close()` on each when it is no longer needed, and let go of "
            f"it{clearing(e)}.",
            "Not while somebody will still ask for the next value.",
        )
    if is_chain_of_functions(e):
        return _in_chain(e)
    default = next((step.reference for step in e.steps_above if step.reference.startswith("default of")), "")
    if default or any("__kwdefaults__" in step.reference for step in e.steps_above):
        name = re.match(r"default of '(\w+)' of (.+)", default)
        what = f"The default value of `{name[1]}` in `{name[2]}`" if name else f"A default value, {named(e.place)},"
        write = f" Write `{name[1]}=None` in the signature and make a new one inside the function." if name else ""
        return Advice(
            f"{what} keeps what every call puts there: it is made once, with the function, and lives as long as "
            f"the function.{write or ' Make it inside the function.'}",
            "Not if the calls are meant to share it; then make that visible and limit its size.",
        )
    return _in_closure(e)


def _in_closure(e: Evidence) -> Advice:
    if e.is_collected and not is_argument_of_partial(e):
        return Advice(
            f"{place_words(e)} gets more entries in every run. It lives as long as the function does, and the "
            "function is kept from run to run. Make the collection anew for each run, keep only the newest entries, "
            "or let the function return what it has collected and begin again.",
            "Not if all of it is needed together at the end.",
        )
    if is_argument_of_partial(e) or any(kind == _PARTIAL for kind in e.entry_kinds):
        return Advice(
            f"{place_words(e)} keeps what a `functools.partial` was given as an argument, for as long as the partial "
            "lives. Let go of the partials that have been called; and do not make each run's partial from that of the "
            "run before.",
            "Not if they are all still to be called.",
        )
    return _in_chain(e)


def _in_chain(e: Evidence) -> Advice:
    function = _INSIDE_FUNCTION.split(e.holder)[0]
    place = named(function) if is_expression(function) and not is_private(function) else place_words(e)
    return Advice(
        f"{place} keeps functions of earlier runs with the variables that they use: each run wraps the function of "
        "the previous run, or keeps one that lives on. Wrap the original function in each run, and pass values as "
        "arguments.",
        "Not if every layer is needed.",
    )


def is_chain_of_functions(e: Evidence) -> bool:
    """Return whether a function has that of the run before as a default: each wraps the last."""
    functions = e.entry_kinds <= {"function", "method"}
    return e.crossing is not None and functions and e.holder.endswith((".__defaults__", ".__kwdefaults__"))


_INSIDE_FUNCTION = re.compile(r"\.__(?:closure|defaults|kwdefaults)__")


def is_argument_of_partial(e: Evidence) -> bool:
    """Return whether a partial holds what leaks as one of its own arguments: it calls with it, and never calls it."""
    pair = e.steps_above[-2:]
    return len(pair) > 1 and pair[0].kind == _PARTIAL and pair[1].reference.startswith((".args", ".keywords"))


def traceback_kept(e: Evidence) -> Advice | None:
    """A stored exception keeps the frames it went through, and their local variables."""
    # The newest tensor may be one that the exception has itself (`.obj`, `.args`), and most are in its frames.
    has_traceback = e.any_role(Role.EXCEPTION) and "traceback" in e.kinds
    if not (has_traceback or e.any_role(Role.TRACEBACK)) or e.in_cycle:
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
            "that the handler's formatter makes of a record, not the record; or empty it after reading "
            f"it{clearing(e)}.",
        )
    if references & _CHAIN:
        return Advice(
            f"{place_words(e)} keeps an exception, which keeps the one before it (`__cause__`, "
            f"`__context__`), {why}.{also} Store the text (`repr(error)`, `traceback.format_exc()`), or take its "
            "traceback and its chain: `error.with_traceback(None)`, `error.__cause__ = error.__context__ = None`.",
            "Not if the exception is raised again later and its origin should be shown.",
        )
    return Advice(
        f"{place_words(e)} keeps exceptions, {why}.{also} Store the text (`repr(error)`, `traceback.format_exc()`), or "
        "the exception without its traceback (`error.with_traceback(None)`).",
        "Not if the exception is raised again later and its origin should be shown.",
    )


def exception_as_text(case: Case) -> Iterator[Proposal]:
    """Yield how an exception is kept as its text, without the frames that its traceback keeps."""
    is_on_path = any("raceback" in step.kind or step.reference == ".__traceback__" for step in case.leak.path.steps)
    entry = newest(case.held)
    beside = items_in(entry) if is_exactly(entry, (tuple, list)) else values_in(entry) if type(entry) is dict else []
    if not is_on_path and not any(is_kind_of(one, BaseException) for one in (entry, *beside)):
        return
    references = {step.reference for step in case.leak.path.steps}
    for source in case.sources:
        for handler in (node for node in source.nodes if isinstance(node, ast.ExceptHandler)):
            nodes = (node for node in ast.walk(handler) if isinstance(node, ast.expr))
            kept = [node for node in nodes if _is_kept(case, source, handler, node, references)]
            for node in kept if len(kept) == 1 else ():
                yield from _as_text(case, source, node)
                if not references.isdisjoint(_CHAIN):
                    yield from _without_chain(case, source, node)
                return


def _is_kept(case: Case, source: SourceText, handler: ast.ExceptHandler, node: ast.expr, references: set[str]) -> bool:
    """Return whether *node*, the exception that *handler* has caught, is what the leak keeps."""
    statement = source.statement_of(node)
    is_info = isinstance(node, ast.Call) and source.text_of(node.func) == "sys.exc_info"
    is_error = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id == handler.name
    if statement is None or not (is_info or (is_error and isinstance(node, ast.Name) and not _is_asked(source, node))):
        return False
    if any(store.statement is statement for store in case.stores):
        return True
    if any(called(call) == case.name for call in ast.walk(statement)):  # an argument that is cached
        return True
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    return isinstance(target, ast.Attribute) and f".{target.attr}" in references


def _as_text(case: Case, source: SourceText, node: ast.expr) -> Iterator[Proposal]:
    name, why = source.text_of(node), "the traceback keeps the local variables of every frame"
    if isinstance(node, ast.Call):
        yield from case.instead(f"Keep the text of the exception: {why}.", source, node, f"repr({name}[1])")
        return
    ways = (
        ("the text of the exception", "str({})" if _is_formatted(source, node) else "repr({})"),
        ("the exception without its traceback", "{}.with_traceback(None)"),
    )
    for what, write in ways:
        yield from case.instead(f"Keep {what}: {why}.", source, node, write.format(name))


def record_as_text(case: Case) -> Iterator[Proposal]:
    """Yield how a handler keeps the text of a log record that nothing reads, not what the message was made of."""
    store, record = case.store, loaded_type("logging", "LogRecord")
    if store is None or store.how != "one" or not isinstance(store.value, ast.Name) or any(readers(case, store)):
        return
    own = store.source.function_of(store.statement)
    if not isinstance(own, FUNCTIONS) or own.name != "emit":
        return
    arguments = own.args.args
    is_emitted = [one.arg for one in arguments[1:]] == [store.value.id]
    if is_emitted and record is not None and has_base(type(newest(case.held)), record):
        text = f"{arguments[0].arg}.format({store.value.id})"
        words = f"Keep the text of the record: the record keeps all that its message is made of. Store `{text}`."
        yield from case.instead(words, store.source, store.value, text)


def raised_anew(case: Case) -> Iterator[Proposal]:
    """Yield how one exception that is raised again and again loses the traceback of the times before."""
    names = {step.reference for step in case.leak.path.steps}
    for source in case.sources:
        for node in (one for one in source.nodes if isinstance(one, ast.Raise)):
            error = node.exc
            if not isinstance(error, (ast.Name, ast.Attribute)) or not {name_of(error), f".{name_of(error)}"} & names:
                continue
            caught = (one.name for one in source.above(node) if isinstance(one, ast.ExceptHandler))
            if isinstance(error, ast.Name) and error.id in caught:
                continue
            words = "Raise it without the traceback of earlier times: that keeps the local variables of every frame."
            yield from case.instead(words, source, error, f"{source.text_of(error)}.with_traceback(None)")
            return


def _is_formatted(source: SourceText, node: ast.expr) -> bool:
    """Return whether a text that the same call is given, with ``%s`` in it, has a place for *node*."""
    call = next((one for one in source.above(node) if isinstance(one, ast.Call)), None)
    texts = [one.value for one in call.args if isinstance(one, ast.Constant)] if call is not None else []
    return any(type(text) is str and "%s" in text for text in texts)


def frame_as_place(case: Case) -> Iterator[Proposal]:
    """Yield how a frame is kept as its file and line, without its local variables and those of its callers."""
    store = case.store
    if store is None or not isinstance(store.value, ast.Name) or not is_exactly(newest(case.held), (types.FrameType,)):
        return
    if store.how in ("one", "item") and not any(readers(case, store)):
        name = store.value.id
        text = f'f"{{{name}.f_code.co_filename}}:{{{name}.f_lineno}}"'
        words = "Keep the place in the code as text: a frame keeps its local variables, and those of its callers."
        yield from case.instead(words, store.source, store.value, text)


def _without_chain(case: Case, source: SourceText, node: ast.expr) -> Iterator[Proposal]:
    """Yield how an exception is kept without those before it, each of which has its traceback."""
    statement = source.statement_at(node.lineno)
    if not isinstance(node, ast.Name) or statement is None:
        return
    patch = case.patch()
    patch.before(source, statement, (f"{node.id}.__cause__ = {node.id}.__context__ = None",))
    patch.replace(source, node, f"{node.id}.with_traceback(None)")
    why = "each exception of the chain keeps the local variables of the frames it went through"
    yield from case.proposal(f"Keep the exception without its traceback and without those before it: {why}.", patch)


def _is_asked(source: SourceText, node: ast.Name) -> bool:
    """Return whether only something of the exception is taken: ``str(error)``, ``error.args``."""
    above = source.parent(node)
    return isinstance(above, ast.Attribute) or (
        isinstance(above, ast.Call) and isinstance(above.func, ast.Name) and above.func.id in ("str", "repr", "type")
    )


def default_made_anew(case: Case) -> Iterator[Proposal]:
    """Yield how each call gets a collection of its own that all calls have shared as the default of a parameter."""
    found = re.fullmatch(r"(.+)\.(?:__defaults__|__kwdefaults__)\[[^\[\]]+\]", case.holder)
    function: Any = None if found is None else evaluate(found[1], case.program.namespace)
    definition = definition_of(case, function) if type(function) is types.FunctionType else None
    if found is None or definition is None or not is_exactly(case.held, _COLLECTIONS):
        return
    source = case.source(function.__code__.co_filename)
    named = (node for node in ast.walk(definition) if isinstance(node, ast.Name) and node.id == case.name)
    if any(newest_read(case, store) for store in case.stores):
        return  # what earlier calls have put there is read
    if source is None or (has_base(type(case.held), dict) and any(is_looked_up(source, node) for node in named)):
        return  # a cache serves later calls
    default, first = _default_of(definition.args, case.name), definition.body[0]
    has_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    if default is None or (has_text and len(definition.body) == 1):
        return
    patch = case.patch()
    patch.replace(source, default, "None")
    patch.before(
        source, definition.body[has_text], [f"if {case.name} is None:", f"    {case.name} = {source.text_of(default)}"]
    )
    yield from case.proposal(f"Make a new `{case.name}` for each call that is given none.", patch)


def _default_of(args: ast.arguments, name: str) -> ast.expr | None:
    given = [*args.posonlyargs, *args.args]
    defaults = [*zip(reversed(given), reversed(args.defaults), strict=False)]
    defaults += [
        (arg, value) for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value is not None
    ]
    return next((value for arg, value in defaults if arg.arg == name), None)
