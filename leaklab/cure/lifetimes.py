"""End what a run begins: exceptions with their frames, executors, threads, figures, files, caches of results."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from leaklab.cure.candidate import Candidate
from leaklab.cure.case import Case
from leaklab.cure.containers import trimming
from leaklab.cure.live import MISSING, attribute, evaluate, has_method
from leaklab.cure.source import Patch, SourceText
from leaklab.runtime.containers import items_in
from leaklab.runtime.objects import LRU_CACHE, is_kind_of, type_name

_ENDS = {
    "ThreadPoolExecutor": "shutdown()", "ProcessPoolExecutor": "shutdown()", "Pool": "terminate()",
    "ThreadPool": "terminate()", "Timer": "cancel()", "SummaryWriter": "close()", "socket": "close()",
    "open": "close()", "TemporaryFile": "close()", "NamedTemporaryFile": "close()",
    "TemporaryDirectory": "cleanup()", "figure": "", "subplots": "", "mmap": "close()", "Manager": "shutdown()",
    "Popen": "wait()", "connect": "close()", "Session": "close()",
    "Client": "close()",
}  # fmt: skip
"""What a constructor's object is ended by."""


def exceptions(case: Case) -> Iterator[Candidate]:
    """Yield how an exception is kept as its text, without the frames that its traceback keeps."""
    if not any("raceback" in step.kind or step.reference == ".__traceback__" for step in case.leak.path.steps):
        return
    for store in case.stores:
        handler = _handler_around(store.source, store.statement)
        if handler is None or handler.name is None or store.value is None:
            continue
        names = [
            node
            for node in ast.walk(store.value)
            if isinstance(node, ast.Name) and node.id == handler.name and not _is_asked(store.source, node)
        ]
        if len(names) != 1:
            continue
        for text, words in (
            (f"repr({handler.name})", "Keep the text of the exception"),
            (f"{handler.name}.with_traceback(None)", "Keep the exception without its traceback"),
        ):
            patch = case.patch()
            patch.replace(store.source, names[0], text)
            yield from case.candidate(f"{words}: the traceback keeps the local variables of every frame.", patch)
        return


def _is_asked(source: SourceText, node: ast.Name) -> bool:
    """Return whether only something of the exception is taken: ``str(error)``, ``error.args``."""
    above = source.parent(node)
    return isinstance(above, ast.Attribute) or (
        isinstance(above, ast.Call) and isinstance(above.func, ast.Name) and above.func.id in ("str", "repr", "type")
    )


def _handler_around(source: SourceText, node: ast.AST) -> ast.ExceptHandler | None:
    above = source.parent(node)
    while above is not None and not isinstance(above, ast.ExceptHandler):
        above = source.parent(above)
    return above


def ended(case: Case) -> Iterator[Candidate]:
    """Yield how something with an end (an executor, a timer, a figure, a file) is ended where the run ends."""
    for filename, line in (*case.finding.keeping_lines, *case.finding.making_lines):
        source = case.source(filename)
        statement = source.statement_at(line) if source is not None else None
        if source is None or statement is None or filename != case.program.checked or hasattr(statement, "body"):
            continue
        calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and _called(node) in _ENDS]
        if calls and source.function_of(statement) is None:
            patch = case.patch()
            end = _write_end(case, source, statement, calls[0], patch)
            if end:
                yield from _ended_and_forgotten(case, source, statement, calls[0], end)
                yield from case.candidate(f"End it when the run has used it: `{end}`.", patch)
                return


def _write_end(case: Case, source: SourceText, statement: ast.stmt, call: ast.Call, patch: Patch) -> str:
    """Write the statement that ends what *call* makes, behind its last use; return it, empty if there is none."""
    if isinstance(statement, ast.Assign) and statement.value is call:
        target = statement.targets[0]
        first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
        if not isinstance(first, (ast.Name, ast.Attribute)):
            return ""
        name = source.text_of(first)
    else:
        name = case.fresh(_called(call).lower())
        patch.before(source, statement, [f"{name} = {source.text_of(call)}"])
        patch.replace(source, call, name)
    method = _ENDS[_called(call)]
    live = evaluate(name, case.program.namespace)
    if method and live is not MISSING and not has_method(live, method.partition("(")[0]):
        return ""
    pyplot = next((one for one in ("plt", "pyplot", "pylab") if one in case.program.namespace), "")
    end = f"{name}.{method}" if method else f"{pyplot}.close({name})" if pyplot else ""
    loop = next(source.loops_around(statement), None)
    if loop is not None:
        patch.after(source, loop.body[-1], [end])
    else:
        case.at_end_of_run(patch, end)
    return end


def _ended_and_forgotten(
    case: Case, source: SourceText, statement: ast.stmt, call: ast.Call, end: str
) -> Iterator[Candidate]:
    """Yield the same for what is kept in a container besides: that keeps its newest entries only."""
    store = next((store for store in case.stores if store.how in ("one", "item") and store.container is not None), None)
    if store is None or store.statement is statement:
        return
    place = store.container_text
    held = evaluate(place, case.program.namespace)
    lines, n_kept = trimming(case, place, held) if held is not MISSING else ([], 0)
    if lines:
        patch = case.patch()
        _write_end(case, source, statement, call, patch)
        patch.after(store.source, store.statement, lines)
        words = f"End it when the run has used it: `{end}`. Keep only the newest {n_kept:,} entries of `{place}`."
        yield from case.candidate(words, patch, emptied=(place,))


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def finished_tasks(case: Case) -> Iterator[Candidate]:
    """Yield how a task takes itself out of the set that keeps it, when it is done."""
    store, held = case.store, case.held
    if store is None or store.how != "one" or type(held) is not set or not isinstance(store.value, ast.Name):
        return
    tasks = items_in(held)
    if not tasks or any(type_name(type(one)).rpartition(".")[2] != "Task" for one in tasks):
        return
    patch = case.patch()
    line = f"{store.source.text_of(store.value)}.add_done_callback({store.container_text}.discard)"
    patch.after(store.source, store.statement, [line])
    yield from case.candidate(f"Let each task leave `{store.container_text}` when it is done.", patch)


def parameter_groups(case: Case) -> Iterator[Candidate]:
    """Yield how the group that a run adds to an optimizer goes with the run, with its state."""
    for store in case.stores:
        for node in ast.walk(store.statement):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr != "add_param_group" or store.source.filename != case.program.checked:
                continue
            optimizer = store.source.text_of(node.func.value)
            lines = [f'for parameter in {optimizer}.param_groups.pop()["params"]:']
            patch = case.patch()
            case.at_end_of_run(patch, *lines, f"    {optimizer}.state.pop(parameter, None)")
            yield from case.candidate(
                f"Take the group out of `{optimizer}` again when the run ends, with its state.", patch
            )
            return


_COMPUTED = (ast.JoinedStr, ast.BinOp)
_FIELD = re.compile(r"%[-#0 +]*\d*[a-zA-Z]")
"""A field of a text that ``%`` fills in."""


def numbered_names(case: Case) -> Iterator[Candidate]:
    """Yield how what is registered under a new name by every run is registered under one name."""
    for store in case.stores:
        for node in ast.walk(store.statement):
            named = _computed_name(node)
            if named is None or not isinstance(node, ast.Call):
                continue
            parts = [
                _FIELD.sub("", part.value)
                for part in ast.walk(named)
                if isinstance(part, ast.Constant) and type(part.value) is str
            ]
            name = "_".join(parts).strip("_ .-")
            name = _free_name(case, store.source, node, name) if name.isidentifier() else ""
            if name:
                patch = case.patch()
                patch.replace(store.source, named, repr(name).replace("'", '"'))
                yield from case.candidate(
                    f"Use one name, `{name}`: each run then replaces that of the run before.", patch
                )
                return


def _free_name(case: Case, source: SourceText, node: ast.Call, name: str) -> str:
    """Return *name*, or one like it that nothing has yet where *node* registers; empty if that cannot be told."""
    is_setattr = isinstance(node.func, ast.Name)
    owner_node = node.args[0] if is_setattr else node.func.value if isinstance(node.func, ast.Attribute) else None
    owner = MISSING if owner_node is None else evaluate(source.text_of(owner_node), case.program.namespace)
    names = (name, f"{name}_newest")
    return "" if owner is MISSING else next((one for one in names if attribute(owner, one) is MISSING), "")


def _computed_name(node: ast.AST) -> ast.expr | None:
    """Return the name, if it is computed, under which a call registers something."""
    if not isinstance(node, ast.Call):
        return None
    called = _called(node)
    place = {"register_buffer": 0, "register_parameter": 0, "add_module": 0, "register_module": 0, "setattr": 1}
    if called not in place or len(node.args) <= place[called]:
        return None
    name = node.args[place[called]]
    return name if isinstance(name, _COMPUTED) else None


def cached_results(case: Case) -> Iterator[Candidate]:
    """Yield how a cache of results is emptied where a run begins, which no later run gains by; and in words a bound."""
    name = case.holder
    if not case.is_variable or not is_kind_of(case.held, LRU_CACHE):
        return
    patch = case.patch()
    case.at_start_of_run(patch, f"{name}.cache_clear()")
    for candidate in case.candidate(f"Begin each run with an empty cache of `{name}`.", patch):
        yield replace(candidate, drops=f"what `{name}` has computed serves no later run: a bound keeps the newest")
    yield Candidate(f"Bound the cache of `{name}`: `@functools.lru_cache(maxsize=16)`.")
