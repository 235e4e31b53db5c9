"""What no variable reaches: cycles that are not collected, what only C keeps."""

from __future__ import annotations

import ast
import itertools
import re
import types
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias

from leaklab.cure.case import Case, last_name, name_of
from leaklab.cure.edits import local_names
from leaklab.cure.ends import definition_of, end_of, is_of_run, receiver_of, statements
from leaklab.cure.live import MISSING, evaluate
from leaklab.cure.source import FUNCTIONS, Patch, Proposal, SourceText
from leaklab.explain.cycles.cycles import UNSEEN_ROOT
from leaklab.explain.idioms.advice import HEAD_OF_GRAPH, Advice, is_gradient
from leaklab.explain.idioms.graphs import BY_ATTRIBUTES, adds_up_gradients
from leaklab.explain.leaks.evidence import Evidence
from leaklab.heap.known_holders import NATIVE_CACHES
from leaklab.lines.syntax import own_nodes
from leaklab.model.paths import CycleCertainty
from leaklab.runtime.gc_control import user_lets_collect
from leaklab.runtime.objects import class_attribute, has_base, is_kind_of, is_tensor, loaded_type

_SHORT = range(4)


def cycle_garbage(e: Evidence) -> Advice | None:
    """Garbage in cycles that no collection frees, because it is switched off or looks elsewhere."""
    if not (e.in_cycle and e.gc_is_off) or e.cycle_is_hidden:
        return None
    if (attribute := _of_ctx(e)) is not None:
        return Advice(
            f"`ctx{attribute}` keeps an output of the custom autograd.Function, and the output leads back to `ctx` "
            "through its graph; the collector that would free this cycle is switched off, or the objects are frozen. "
            "Hand the tensor to `ctx.save_for_backward(...)` instead, which makes no cycle; or call `gc.collect()` "
            "from time to time.",
            also=("autograd-ctx",),
        )
    return Advice(
        f"The objects refer to each other in a cycle{_circle(e)}, and the collector that would free them is switched "
        "off, or they are frozen. Call `gc.collect()` from time to time (and before any `gc.freeze()`), or break the "
        "cycle: hold one of the references weakly (`weakref.ref`), or set it to None when the object is done.",
        "Not weakly if this reference is the only one that keeps its object.",
    )


def collected(case: Case) -> Iterator[Proposal]:
    """Yield how garbage in cycles is collected where the user has switched the collector off."""
    if user_lets_collect() or case.program.function or "reference cycle" not in case.leak.path.root:
        return
    texts = (*(source.text for source in case.sources), *case.cells_run)
    is_imported = any(_IMPORTS_GC.search(text) for text in texts)
    lines = ["gc.collect()"] if is_imported else ["import gc", "gc.collect()"]
    words = "Let the collector run at the end of each run: it is switched off."
    yield from case.at_end(words, *lines)


def held_weakly(case: Case) -> Iterator[Proposal]:
    """Yield how functions that an object makes and keeps for itself have the object by a weak reference.

    ``self.scale = lambda x: x * self.factor``. Not where the code hands such a function on: it may outlive its object.
    """
    references = {step.reference for step in case.leak.path.steps}
    if "reference cycle" not in case.leak.path.root or not any("closure variable" in one for one in references):
        return
    for source in case.sources:
        for method in (node for node in source.nodes if isinstance(node, FUNCTIONS) and node.args.args):
            owner = method.args.args[0].arg
            uses = _uses_in_kept(source, method, owner, references) if source.class_of(method) is not None else []
            if not uses or not all(_is_attribute_of(source, use) for use in uses):
                continue
            patch, weak = case.patch(), f"weak_{owner}"
            if weak in local_names(method):
                continue
            lines = [] if "weakref" in case.program.namespace else ["import weakref"]
            patch.before(source, _first_of(method, uses), [*lines, f"{weak} = weakref.proxy({owner})"])
            for use in uses:
                patch.replace(source, use, weak)
            words = f"Let the function have `{owner}` by a weak reference: `{owner}` keeps the function."
            yield from case.proposal(words, patch)
            return


def _uses_in_kept(
    source: SourceText, method: ast.FunctionDef | ast.AsyncFunctionDef, owner: str, references: set[str]
) -> list[ast.Name]:
    """Return where functions inside of *method*, which *owner* keeps and only calls, use *owner*."""
    functions = [node for node in ast.walk(method) if isinstance(node, (ast.Lambda, *FUNCTIONS)) and node is not method]
    uses: list[ast.Name] = []
    for statement in (node for node in ast.walk(method) if isinstance(node, ast.Assign)):
        target, value = statement.targets[0], {*ast.walk(statement.value)}
        if not isinstance(target, ast.Attribute) or source.text_of(target.value) != owner:
            continue
        names = {node.id for node in value if isinstance(node, ast.Name)}
        kept = [one for one in functions if one in value or (isinstance(one, FUNCTIONS) and one.name in names)]
        found = [node for one in kept for node in ast.walk(one) if isinstance(node, ast.Name) and node.id == owner]
        if found and f".{target.attr}" in references and _is_only_called(source, target.attr):
            uses += found
    return uses


def _is_only_called(source: SourceText, attribute: str) -> bool:
    """Return whether all that the code does with *attribute* is to call it, or an entry of it, by a variable."""
    for node in source.nodes:
        if not isinstance(node, ast.Attribute) or node.attr != attribute or not isinstance(node.ctx, ast.Load):
            continue
        above, below = source.parent(node), node
        if isinstance(above, ast.Subscript) and above.value is node:
            above, below = source.parent(above), above  # type: ignore[assignment]  # an entry of it
        is_called = isinstance(above, ast.Call) and above.func is below
        is_key = isinstance(above, ast.keyword) and above.arg == "key"  # of max, min, sorted
        if not isinstance(node.value, ast.Name) or not (is_called or is_key):
            return False
    return True


def _is_attribute_of(source: SourceText, use: ast.Name) -> bool:
    above = source.parent(use)
    return isinstance(above, ast.Attribute) and above.value is use


def _first_of(method: ast.FunctionDef | ast.AsyncFunctionDef, uses: list[ast.Name]) -> ast.stmt:
    """Return the first statement of *method* itself that has one of *uses* in it."""
    return next(one for one in method.body if any(use in {*ast.walk(one)} for use in uses))


def hook_without_itself(case: Case) -> Iterator[Proposal]:
    """Yield how the hook of a tensor has the tensor's value and not the tensor, whose graph keeps the hook.

    ``h.register_hook(lambda grad: grad * h)``: a cycle through C++, which the collector cannot see. Not where the code
    wants gradients of gradients: through a value there are none.
    """
    if any("create_graph" in source.text for source in case.sources):
        return
    for source, statement in statements(case):
        for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
            tensor = call.func.value if isinstance(call.func, ast.Attribute) and name_of(call.func) == _HOOK else None
            hook = call.args[0] if len(call.args) == 1 else None
            if not isinstance(tensor, ast.Name) or not isinstance(hook, ast.Lambda):
                continue
            uses = [node for node in ast.walk(hook.body) if isinstance(node, ast.Name) and node.id == tensor.id]
            if not uses or not all(isinstance(one.ctx, ast.Load) for one in uses):
                continue
            patch, value = case.patch(), case.fresh(f"{tensor.id}_value")
            if value in local_names(source.function_of(statement)):
                continue
            patch.before(source, statement, [f"{value} = {tensor.id}.detach()"])
            for use in uses:
                patch.replace(source, _detached(source, use), value)
            words = f"Let the hook use the value of `{tensor.id}`: the graph of `{tensor.id}` keeps the hook."
            yield from case.proposal(words, patch)
            return


_HOOK = "register_hook"


def _detached(source: SourceText, node: ast.expr) -> ast.expr:
    """Return the call of ``detach`` that *node* is detached by, else *node*."""
    above = source.parent(node)
    call = source.parent(above) if isinstance(above, ast.Attribute) and above.attr == "detach" else None
    return call if isinstance(call, ast.Call) else node


_IMPORTS_GC = re.compile(r"^\s*import\b.*\bgc\b", re.MULTILINE)


def _of_ctx(e: Evidence) -> str | None:
    """Return the attribute of ``ctx`` by which a tensor leads back to itself, ``.y``; None if none does."""
    pairs = zip(e.path.steps, e.path.steps[1:], strict=False)
    found = (
        after.reference
        for before, after in pairs
        if before.reference == HEAD_OF_GRAPH
        and before.kind.endswith("Backward")
        and BY_ATTRIBUTES.fullmatch(after.reference.removeprefix("."))
    )
    return next(found, None)


def _circle(e: Evidence) -> str:
    references = [step.reference for step in e.path.steps if step.reference.startswith(".")]
    kinds = [step.kind for step in e.path.steps[:1]]
    return f" ({kinds[0]}{''.join(references)})" if references and kinds and len(references) <= len(_SHORT) else ""


def immortal_cycle(e: Evidence) -> Advice | None:
    """A cycle through autograd's C++ side, which the collector can never free."""
    if not (e.in_cycle and e.cycle_is_hidden):
        return None
    sure = "it is never freed"
    if e.certainty is CycleCertainty.PROBABLE:
        sure = "it is probably never freed (one of its owners cannot be read from Python)"
    return Advice(f"The cycle runs through {_unseen(e)}, where Python's collector cannot see: {sure}. {_where(e)}")


def _unseen(e: Evidence) -> str:
    is_array = any(step.kind == "numpy.ndarray" for step in e.path.steps)
    has_graph = any(step.reference.startswith((HEAD_OF_GRAPH, ".grad", "saved for")) for step in e.path.steps)
    return "a NumPy array of objects" if is_array and not has_graph else "autograd's C++ side"


def _where(e: Evidence) -> str:
    """Return what to cut, as precisely as it is known."""
    references = [step.reference for step in e.path.steps]
    how = ""
    if ".grad" in references:
        how = (
            " Gradients carry a graph after backward(create_graph=True): set them to None after use, or take them "
            "with `torch.autograd.grad(..., create_graph=True)`, which stores nothing in `.grad`."
        )
    elif any("hook" in reference for reference in references):
        how = " Keep the handle that the hook's registration returns, and call its `remove()` when the run ends."
    if e.cut is None:
        return (how or " Cut one of its references: a hook's handle, or a `.grad` that carries a graph.").strip()
    words = f"Cut it at {e.cut.reference}: {e.cut.how}. {e.cut.words}".rstrip(".") + f".{how}"
    return (
        f"{words} leaklab.cut_cycles() makes this cut and reports how much memory that frees."
        if e.cut.is_safe
        else words
    )


def native(e: Evidence) -> Advice | None:
    """Nothing in Python explains it: not even a cycle, where collections run and do not free it."""
    if e.path.root != UNSEEN_ROOT and not e.in_cycle:
        return None
    text = (
        "Its holder is invisible: no Python reference keeps it. Look at extension modules (a reference count that is "
        "never decremented), at C++ objects, and at compiled or traced code that is made again in every run."
    )
    if e.unit != "bytes":
        return Advice(text)
    harmless = "; ".join(f"{cache.name} ({cache.sign})" for cache in NATIVE_CACHES)
    return Advice(f"{text} It is not a leak if it stops growing: {harmless}.")


def saved_for_backward(case: Case) -> Iterator[Proposal]:
    """Yield how a tensor that ``forward`` puts on its ``ctx``, ``ctx.y = y``, is handed to ``save_for_backward``."""
    attributes = {step.reference.removeprefix(".") for step in case.leak.path.steps}
    attributes |= {last_name(case.holder)}
    for source in case.sources:
        for owner in (node for node in source.nodes if isinstance(node, ast.ClassDef)):
            methods = {one.name: one for one in owner.body if isinstance(one, ast.FunctionDef)}
            passes = [methods[name] for name in ("forward", "backward") if name in methods]
            if len(passes) != len(("forward", "backward")) or "save_for_backward" in source.text_of(passes[0]):
                continue
            patch = case.patch()
            name = _put_on_ctx(source, passes[0], attributes, patch)
            if not name:
                continue
            for node in ast.walk(passes[1]):
                if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.value, ast.Name):
                    patch.replace(source, node, f"{node.value.id}.saved_tensors[0]")
            words = f"Hand the tensor to `ctx.save_for_backward(...)`, not to `ctx.{name}`: that makes no cycle."
            yield from case.proposal(words, patch)
            return


def _put_on_ctx(source: SourceText, forward: ast.FunctionDef, attributes: set[str], patch: Patch) -> str:
    """Write `save_for_backward` where *forward* sets one of *attributes* of its ``ctx``; return which, if any."""
    ctx = receiver_of(forward)
    for node in ast.walk(forward):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(node, ast.Assign) or not isinstance(target, ast.Attribute) or target.attr not in attributes:
            continue
        if isinstance(target.value, ast.Name) and target.value.id == ctx and isinstance(node.value, ast.Name):
            patch.replace(source, node, f"{ctx}.save_for_backward({node.value.id})")
            return target.attr
    return ""


def packed_detached(case: Case) -> Iterator[Proposal]:
    """Yield how a pack hook (`torch.autograd.graph.saved_tensors_hooks`) hands the tensor on without its graph.

    A result that an operation saves leads to the operation; torch itself saves it without, a hook does not know.
    """
    for place, call in _calls_of(case, "saved_tensors_hooks"):
        hooks = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "pack_hook")]
        found = _hook(case, place, hooks[0]) if hooks else None
        if found is None:
            continue
        source, hook = found
        name = hook.args.args[-1].arg if hook.args.args else ""
        results = (
            [hook.body]
            if isinstance(hook, ast.Lambda)
            else [node.value for node in own_nodes(hook) if isinstance(node, ast.Return) and node.value is not None]
        )
        patch = case.patch()
        given = [one for result in results for one in _handed_on(result) if one.id == name]
        for one in given:
            patch.replace(source, one, f"{name}.detach()")
        if given:
            words = f"Pack `{name}.detach()`: a result that leads to its own graph keeps itself alive."
            yield from case.proposal(words, patch)
            return


_Hook: TypeAlias = ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef


def _calls_of(case: Case, function: str) -> Iterator[tuple[SourceText, ast.Call]]:
    for source in case.sources:
        yield from (
            (source, node) for node in source.nodes if isinstance(node, ast.Call) and name_of(node.func) == function
        )


def _hook(case: Case, source: SourceText, given: ast.expr) -> tuple[SourceText, _Hook] | None:
    """Return the text of the function or method that *given* names."""
    if isinstance(given, ast.Lambda):
        return source, given
    found = evaluate(ast.unparse(given), case.program.namespace)
    if found is MISSING and isinstance(given, ast.Attribute):  # of an object that the run has let go of
        kind = case.type_in_run(name_of(given.value))
        found = MISSING if kind is None else class_attribute(kind, given.attr, MISSING)
    function: Any = found.__func__ if type(found) is types.MethodType else found
    definition = definition_of(case, function) if type(function) is types.FunctionType else None
    of = None if definition is None else case.source(function.__code__.co_filename)
    return None if of is None or definition is None else (of, definition)


def _handed_on(result: ast.expr) -> Iterator[ast.Name]:
    """Yield the variables that *result* is made of as they are: itself, or entries of a tuple, a list or a dict."""
    if isinstance(result, ast.Name):
        yield result
    elif isinstance(result, (ast.Tuple, ast.List)):
        yield from itertools.chain.from_iterable(map(_handed_on, result.elts))
    elif isinstance(result, ast.Dict):
        yield from itertools.chain.from_iterable(map(_handed_on, result.values))


def gradients_forgotten(case: Case) -> Iterator[Proposal]:
    """Yield how gradients that carry a graph (``backward(create_graph=True)``), or that are sparse, are let go of.

    What earlier runs have added up goes with them, by intention: the gradients are others then.
    """
    is_sparse = case.leak.unit == "bytes" and case.leak.cause != "native"
    find = _sparse_forgotten if is_sparse else _gradients_forgotten
    yield from (replace(proposal, cuts_history=True) for proposal in find(case))


def _sparse_forgotten(case: Case) -> Iterator[Proposal]:
    if not is_gradient(case.holder) or adds_up_gradients(case):
        return
    name = case.holder.partition(".")[0].partition("[")[0]
    line = _forgetting(name, case.program.namespace.get(name))
    if line:
        yield from case.at_start(
            f"Set the gradients to None before each run (`{line}`): backward() adds entries to a sparse gradient.", line
        )


def _gradients_forgotten(case: Case) -> Iterator[Proposal]:
    is_gradient = any(step.reference == ".grad" for step in case.leak.path.steps) or case.holder.endswith(".grad")
    found = [*_module_forgotten(case)] if case.leak.cause in ("native", "immortal-cycle") else []
    yield from found
    if found or case.leak.cause == "native":
        return
    if not (is_gradient or case.leak.cause in ("immortal-cycle", "graph-kept")):
        return
    why = _WITH_GRAPH
    names = case.names_in_run() if any(map(_is_create_graph, case.run_body)) else set[str]()
    for source, statement in filter(lambda pair: _is_create_graph(pair[1]), case.statements):
        function = source.function_of(statement)
        nodes = list(ast.walk(function or statement))
        names |= {node.id for node in nodes if isinstance(node, ast.Name)}
        inner = {name_of(part.target) for node in nodes for part in getattr(node, "generators", ())}
        local = {_grad_of(node) for node in nodes} - {"", *inner, *case.program.namespace}
        patch = case.patch()
        if local and end_of(case, source, statement, patch, [f"{name}.grad = None" for name in sorted(local)]):
            yield from case.proposal(f"Set the gradients to None after use: {why}.", patch)
    for name in sorted(names) if not adds_up_gradients(case) else ():
        line = _forgetting(name, case.program.namespace.get(name))
        if line:
            yield from case.at_start(f"Set the gradients to None before each run (`{line}`): {why}.", line)


_WITH_GRAPH = "with create_graph=True they refer to the graph, and the graph to them"


def _module_forgotten(case: Case) -> Iterator[Proposal]:
    """Yield how the gradients of a module that each run makes anew are let go of, where they carry a graph.

    Nothing in Python leads to them then: only native memory grows.
    """
    for source in case.sources:
        for node in source.nodes:
            if not isinstance(node, ast.stmt) or hasattr(node, "body") or not _is_create_graph(node):
                continue
            function = source.function_of(node)
            body = case.run_body if is_of_run(case, source, node) else [] if function is None else [function]
            nodes = [inner for one in body for inner in ast.walk(one)]
            for name in sorted({name for inner in nodes if (name := _module_asked(case, inner))}):
                patch = case.patch()
                if end_of(case, source, node, patch, [f"{name}.zero_grad()"]):
                    yield from case.proposal(f"Set the gradients of `{name}` to None after use: {_WITH_GRAPH}.", patch)
                    return


def _module_asked(case: Case, node: ast.AST) -> str:
    """Return the variable whose ``parameters()`` are asked for, or that is given a new module; empty for other code."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parameters":
        return name_of(node.func.value) if isinstance(node.func.value, ast.Name) else ""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call):
        module, made = loaded_type("torch.nn", "Module"), evaluate(ast.unparse(node.value.func), case.program.namespace)
        is_module = module is not None and is_kind_of(made, type) and has_base(made, module)
        return node.targets[0].id if is_module else ""
    return ""


def _grad_of(node: ast.AST) -> str:
    """Return the variable whose gradient is read by *node*."""
    if isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.value, ast.Name):
        return node.value.id
    return ""


def _forgetting(name: str, thing: Any) -> str:
    """Return the statement that sets the gradients of *thing* to None; empty where it has none."""
    kinds = (loaded_type("torch.nn", "Module"), loaded_type("torch.optim", "Optimizer"))
    if any(kind is not None and is_kind_of(thing, kind) for kind in kinds):
        return f"{name}.zero_grad()"
    base: Any = loaded_type("torch", "Tensor")
    if is_tensor(thing) and base.is_leaf.__get__(thing) and base.requires_grad.__get__(thing):
        return f"{name}.grad = None"
    return ""


def _is_create_graph(statement: ast.stmt) -> bool:
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
        and any(word.arg == "create_graph" for word in node.keywords)
        for node in ast.walk(statement)
    )
