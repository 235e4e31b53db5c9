"""What every run registers under a name of its own: in a module of torch's, in `sys.modules`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from leaklab.cure.case import Case, called
from leaklab.cure.live import MISSING, attribute, evaluate
from leaklab.cure.proposal import Proposal
from leaklab.cure.source import SourceText
from leaklab.explain.evidence import Evidence
from leaklab.explain.groups import MODULES
from leaklab.explain.idioms.advice import (
    Advice,
    written,
)
from leaklab.heap.roles import Role

_COMPUTED = (ast.JoinedStr, ast.BinOp)
_FIELD = re.compile(r"%[-#0 +]*\d*[a-zA-Z]")
"""A field of a text that ``%`` fills in."""


def left_in_modules(e: Evidence) -> Advice | None:
    """A module that every run makes, or imports under a new name, stays in ``sys.modules``."""
    if e.holder != MODULES or e.in_cycle:
        return None
    newest = re.fullmatch(r"module ('.+')", e.path.root)
    take = f"`sys.modules.pop({newest[1] if newest else 'name'}, None)`"
    return Advice(
        "Every run leaves a module in `sys.modules` under a name of its own. There it stays until the program ends, "
        "with everything that its variables, functions and classes refer to. Use one name, so that each run replaces "
        f"the module of the run before, or take it out when it has been used ({take}, for example).",
        "Not while something is still to be imported from it, or unpickled by its name.",
    )


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
        f"`{name}` gets one more {one} by every run, each under a name of its own, and keeps all of them. Use one "
        f"name, so that each replaces the one before, or delete the old one when it has been used{example}.",
        "Not if the module computes with all of them.",
        also=("module-tables",),
    )


def one_name(case: Case) -> Iterator[Proposal]:
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
                words = f"Use one name, `{name}`: each run then replaces that of the run before."
                yield from case.instead(words, store.source, named, f'"{name}"')
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
    name_of_call = called(node)
    place = {"register_buffer": 0, "register_parameter": 0, "add_module": 0, "register_module": 0, "setattr": 1}
    if name_of_call not in place or len(node.args) <= place[name_of_call]:
        return None
    name = node.args[place[name_of_call]]
    return name if isinstance(name, _COMPUTED) else None
