"""Hooks that runs register and nobody removes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from leaklab.cure.case import Case, called, store_of
from leaklab.cure.ends import end_of, kept_name, statements
from leaklab.cure.live import evaluate, has_method
from leaklab.cure.proposal import Proposal
from leaklab.cure.source import SourceText
from leaklab.explain.idioms.advice import Advice, is_expression, named, written
from leaklab.explain.leaks.evidence import Evidence
from leaklab.heap.roles import Role
from leaklab.runtime.containers import items_in
from leaklab.runtime.objects import is_exactly

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


def handles_removed(case: Case) -> Iterator[Proposal]:
    """Yield how the handles of hooks are kept and removed where the run, or the function that registers, ends."""
    yield from _returned_handles(case)
    for source, statement in statements(case):
        calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and is_hook_call(node)]
        if not calls or hasattr(statement, "body"):
            continue
        yield from _handle_removed(case, source, statement, calls)
        yield from _appended_handle(case, source, statement, calls[0])
        return


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
    if end_of(case, source, statement, patch, undo):
        yield from case.proposal(
            "Keep the handle that the registration returns, and remove the hook when the run ends.", patch
        )
