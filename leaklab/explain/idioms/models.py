"""What earlier runs leave in a module or an optimizer, and whole models that they leave."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from leaklab.cure.case import Case, called
from leaklab.cure.ends import end_of
from leaklab.cure.live import MISSING, attribute, evaluate
from leaklab.cure.source import Proposal, SourceText
from leaklab.explain.idioms.advice import NAMESPACE, Advice, clearing, is_expression, named, place_words, written
from leaklab.explain.idioms.in_use import counter_in
from leaklab.explain.leaks.evidence import Evidence
from leaklab.heap.roles import Role
from leaklab.runtime.objects import has_base, loaded_type
from leaklab.text import unit_words

_COMPUTED = (ast.JoinedStr, ast.BinOp)
_FIELD = re.compile(r"%[-#0 +]*\d*[a-zA-Z]")
"""A field of a text that ``%`` fills in."""


def optimizer_state(e: Evidence) -> Advice | None:
    """An optimizer collects parameter groups or state, or one is made anew for the same parameters."""
    if e.in_cycle:
        return None
    is_remade = (
        bool(e.entry_kinds)
        and all(kind.startswith("torch.optim.") and ".lr_scheduler." not in kind for kind in e.entry_kinds)
        and e.has_tensors
        and not any("Parameter" in kind or kind.startswith("torch.nn.modules.") for kind in e.kinds)
    )
    if is_remade:
        release = ""
        if e.owner is not None and e.owner.kind.startswith("accelerate.") and is_expression(e.owner.code):
            release = f" `{written(e.owner.code)}.free_memory()` lets go of what it has prepared."
        return Advice(
            f"{named(e.place)} keeps the optimizers of earlier runs, and each has state of its own (momentum, "
            f"averages) for every parameter. Make one optimizer before the loop and use it again.{release}"
        )
    if Role.OPTIMIZER_STATE not in e.roles_above or e.has_optimizer:
        return None
    gone = e.facts.gone_parameters
    owner = e.holder.removesuffix(".param_groups").removesuffix(".state")
    if e.place.endswith(".state") and gone:
        return Advice(
            f"{named(owner)} still has the state of {unit_words(gone, 'parameters')} that no group contains: each run "
            f"replaces parameters and leaves the state of the old ones in {named(e.place)}. Make a new optimizer when "
            f"the parameters are replaced, or take the state of an old one out (`{written(owner)}.state.pop(...)` "
            "with it).",
            "Not while the old parameters are still trained.",
        )
    if re.search(r"\.state\[.+\]\['\w+'\]$", e.holder):
        return Advice(
            f"{named(e.place)} gets more entries in every step, and the optimizer keeps it as long as it has the "
            "parameter. Keep the newest entries only, as many as a step reads "
            f"(`del {written(e.place)}[:-10]`, say).",
            "Not if all of them are read again.",
        )
    words = f" It still has the state of {unit_words(gone, 'parameters')} that no group contains." if gone else ""
    return Advice(
        f"{named(owner)} keeps parameters of earlier runs in {named(e.place)}.{words} Make a new optimizer instead of "
        "adding a group in each run, or take the old group out together with the state of its parameters "
        f"(`{written(owner)}.param_groups.pop()`, and `{written(owner)}.state.pop(...)` for each of them).",
        "Not while the old parameters are still trained.",
    )


def run_switch(e: Evidence) -> Advice | None:
    """Whole training runs, models and optimizers, are kept."""
    on_class = any(Role.CLASS in roles for roles in e.roles[: max(len(e.steps_above) - 1, 0)])
    is_part = e.holder.endswith("._modules")  # of a model that goes on: see `table_of_module`
    has_runs = e.has_optimizer or (e.has_models and not on_class and not is_part)
    if not (has_runs and e.has_tensors) or e.in_cycle or e.crossing is None:
        return None
    what = "the model and the optimizer" if e.has_optimizer else "the model"
    if e.holder == NAMESPACE:
        newest = f" (the newest is `{e.path.steps[0].reference}`)" if e.path.steps else ""
        return Advice(
            f"Every run binds {what} to a new variable of the notebook{newest}, and no variable is ever deleted. Use "
            "one name, so that each run replaces what the run before made, or `del` the old variables.",
            "Not if the runs are compared live, model against model.",
        )
    return Advice(
        f"{place_words(e)} keeps {what} of every run, so that two are in memory when the next run starts. Keep the "
        "figures you need (metrics, the path of a checkpoint), save weights to a file, and let go of the rest before "
        f"the next run begins{clearing(e)}.",
        "Not if the runs are compared live, model against model; `with leaklab.training_run(name)` shows what "
        "survives.",
    )


def group_taken_out(case: Case) -> Iterator[Proposal]:
    """Yield how the group that a run adds to an optimizer goes with the run, with its state."""
    for store in case.stores:
        for node in ast.walk(store.statement):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr != "add_param_group":
                continue
            optimizer = store.source.text_of(node.func.value)
            lines = [f'for parameter in {optimizer}.param_groups.pop()["params"]:']
            lines.append(f"    {optimizer}.state.pop(parameter, None)")
            patch = case.patch()
            if end_of(case, store.source, store.statement, patch, lines):
                words = f"Take the group out of `{optimizer}` again when the run ends, with its state."
                yield from case.proposal(words, patch)
            return


def state_taken_out(case: Case) -> Iterator[Proposal]:
    """Yield how the state of a parameter that another one replaces in its group leaves the optimizer with it."""
    if not case.holder.endswith(".state"):
        return
    for source in case.sources:
        for node in source.nodes:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            optimizer = _optimizer_of(source, target)
            if not isinstance(node, ast.Assign) or target is None or not optimizer:
                continue
            place, patch = source.text_of(target), case.patch()
            lines = [f"{optimizer}.state.pop({place}, None)"]
            if _is_params(target):
                lines = [f"for old in {place}:", f"    {optimizer}.state.pop(old, None)"]
            patch.before(source, node, lines)
            words = f"Remove the state of the parameter that is replaced from `{optimizer}`."
            yield from case.proposal(words, patch)
            return


def _is_params(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == "params"


def _optimizer_of(source: SourceText, target: ast.expr | None) -> str:
    """Return the optimizer in a group of which *target* is the parameters, or one of them; empty if it is neither."""
    params = target.value if isinstance(target, ast.Subscript) and not _is_params(target) else target
    if not isinstance(params, ast.Subscript) or not _is_params(params):
        return ""
    around = source.function_of(params) or source.tree
    groups = [node for node in ast.walk(around) if isinstance(node, ast.Attribute) and node.attr == "param_groups"]
    return source.text_of(groups[0].value) if groups else ""


def table_of_module(e: Evidence) -> Advice | None:
    """A module gets one more buffer, parameter or part by every run, under a name of its own."""
    found = re.search(r"\._(buffers|parameters|modules)$", e.holder)
    if found is None or e.in_cycle or e.crossing is None or not any(Role.MODULE in roles for roles in e.roles):
        return None
    name = written(e.holder[: found.start()])
    one = {"buffers": "buffer", "parameters": "parameter", "modules": "part"}[found[1]]
    key = re.fullmatch(r"\['([^\W\d]\w*)'\]|\.([^\W\d]\w*)", e.crossing.text)
    example = f" (`del {name}.{key[1] or key[2]}`, for example)" if key else ""
    return Advice(
        f"`{name}` gets one more {one} in every run, each under a new name, and keeps all of them. Use one name, so "
        f"that each replaces the one before, or delete the old one after use{example}.",
        "Not if the module computes with all of them.",
        also=("module-tables",),
    )


def one_name(case: Case) -> Iterator[Proposal]:
    """Yield how what is registered under a new name by every run is registered under one name.

    Not models that are variables: a trained one is a result, which only its owner can do without. What the names number
    by a counter, ``fisher_3`` of the third task, is meant to be kept beside the others: there it cures nothing.
    """
    for store in case.stores:
        for node in ast.walk(store.statement):
            named = _computed_name(node)
            if named is None or not isinstance(node, (ast.Call, ast.Subscript)):
                continue
            parts = [
                _FIELD.sub("", part.value)
                for part in ast.walk(named)
                if isinstance(part, ast.Constant) and type(part.value) is str
            ]
            name = "_".join(parts).strip("_ .-")
            name = _free_name(case, store.source, node, name) if name.isidentifier() else ""
            if name:
                is_shared = called(node) == "getLogger"
                then = "all runs then have one" if is_shared else "each run then replaces that of the run before"
                words, patch = f"Use one name, `{name}`: {then}.", case.patch()
                for one in _alike(store.source, named):
                    patch.replace(store.source, one, f'"{name}"')
                counter = "" if is_shared else counter_in(case, store.source, [named])
                drops = (
                    f"the code numbers what it registers by `{counter}`, and the earlier ones would be gone"
                    if counter
                    else ""
                )
                yield from (replace(one, drops=drops) for one in case.proposal(words, patch))
                return


def _alike(source: SourceText, named: ast.expr) -> Iterator[ast.expr]:
    """Yield *named* and what is written like it in the same function, which means the same name."""
    text, function = source.text_of(named), source.function_of(named)
    for node in ast.walk(function or source.tree):
        if isinstance(node, type(named)) and source.function_of(node) is function and source.text_of(node) == text:
            yield node


def _free_name(case: Case, source: SourceText, node: ast.Call | ast.Subscript, name: str) -> str:
    """Return *name*, or one like it that nothing has yet where *node* registers; empty if that is not known."""
    names = (name, f"{name}_newest")
    if isinstance(node, ast.Subscript):
        variables = case.program.namespace
        results = (value for variable, value in variables.items() if variable.startswith(name))
        has_models = (module := loaded_type("torch.nn", "Module")) and any(has_base(type(v), module) for v in results)
        return "" if has_models else next((one for one in names if one not in variables), "")
    is_setattr = isinstance(node.func, ast.Name)
    owner_node = node.args[0] if is_setattr else node.func.value if isinstance(node.func, ast.Attribute) else None
    owner = MISSING if owner_node is None else evaluate(source.text_of(owner_node), case.program.namespace)
    return "" if owner is MISSING else next((one for one in names if attribute(owner, one) is MISSING), "")


def _computed_name(node: ast.AST) -> ast.expr | None:
    """Return the name, if it is computed, under which a call registers something, or ``globals()`` gets it."""
    if isinstance(node, ast.Subscript) and called(node.value) == "globals" and isinstance(node.slice, _COMPUTED):
        return node.slice
    if not isinstance(node, ast.Call):
        return None
    name_of_call = called(node)
    place = {
        "register_buffer": 0, "register_parameter": 0, "add_module": 0, "register_module": 0, "setattr": 1,
        "getLogger": 0,
    }  # fmt: skip
    if name_of_call not in place or len(node.args) <= place[name_of_call]:
        return None
    name = node.args[place[name_of_call]]
    return name if isinstance(name, _COMPUTED) else None
