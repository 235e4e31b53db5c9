"""Look at the live object that an expression names, without running code of the user."""

from __future__ import annotations

import ast
import collections
import sys
import types
from collections.abc import Mapping
from typing import Any

from leaklab.runtime.containers import EMPTY, entries_in, items_in, newest_items, newest_pairs, values_in
from leaklab.runtime.objects import (
    LRU_CACHE,
    class_attribute,
    has_base,
    is_exactly,
    is_kind_of,
    is_tensor,
    loaded_type,
    module_dict,
    static_attribute,
)
from leaklab.runtime.referents import get_referents

_FUNCTION_KINDS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodDescriptorType,
    types.ClassMethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType, staticmethod, classmethod,
)  # fmt: skip
"""`inspect.isroutine` would ask what it is given for its ``__class__``, which the user's types may answer."""
MISSING = object()
_OF_TENSORS = ("grad", "grad_fn", "_base")
_OF_FUNCTIONS = ("__defaults__", "__kwdefaults__", "__closure__", "__dict__")
_FUNCTIONS = (types.FunctionType, LRU_CACHE)
_PARTS = ("_modules", "_parameters", "_buffers")


def evaluate(expression: str, namespace: Mapping[str, Any]) -> Any:
    """Return the object that *expression* names, `MISSING` where that takes running code of the user.

    Names, attributes and items of exact lists, tuples and dicts are followed; the parts of a `torch.nn.Module` too.
    """
    try:
        node = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError):
        return MISSING
    return _follow(node, namespace)


def _follow(node: ast.expr, namespace: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return namespace.get(node.id, MISSING)
    if isinstance(node, ast.Call):  # the running notebook, whose methods are variables of the notebook
        is_shell = isinstance(node.func, ast.Name) and node.func.id == "get_ipython" and not node.args
        return getattr(namespace.get("get_ipython"), "__self__", MISSING) if is_shell else MISSING
    if isinstance(node, ast.Attribute):
        dotted = ast.unparse(node)
        owner = _follow(node.value, namespace)
        if owner is MISSING:
            return sys.modules.get(dotted, _in_module(dotted))
        return attribute(owner, node.attr)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, (ast.Constant, ast.UnaryOp)):
        owner = _follow(node.value, namespace)
        try:
            return MISSING if owner is MISSING else _item(owner, ast.literal_eval(node.slice))
        except ValueError:  # `rows[-n]`, `rows[not n]`: no literal
            return MISSING
    if isinstance(node, ast.Subscript) and isinstance(node.slice, (ast.Name, ast.Attribute)):
        owner, key = _follow(node.value, namespace), _follow(node.slice, namespace)
        items = entries_in(owner) if is_exactly(owner, _DICTS) else ()
        return next((value for one, value in items if one is key), MISSING)
    return MISSING


def _in_module(dotted: str) -> Any:
    of_module, _, name = dotted.rpartition(".")
    module = sys.modules.get(of_module)  # None and any other object may stand there
    variables = module_dict(module) if is_kind_of(module, types.ModuleType) else None
    return MISSING if variables is None else variables.get(name, MISSING)


def attribute(owner: object, name: str) -> Any:
    """Return an attribute that no code has to be run for, else `MISSING`."""
    if is_tensor(owner) and name in _OF_TENSORS:
        base: Any = loaded_type("torch", "Tensor")
        return getattr(base, name).__get__(owner) if name != "grad" or base.is_leaf.__get__(owner) else MISSING
    if type(owner) is types.FunctionType and name in _OF_FUNCTIONS:
        return getattr(owner, name)
    if type(owner) is types.CellType and name == "cell_contents":
        return next(iter(get_referents(owner)), MISSING)
    found = static_attribute(owner, name, MISSING)
    if type(found) is types.MemberDescriptorType:
        try:
            return found.__get__(owner, type(owner))
        except AttributeError:
            return MISSING
    if found is MISSING and is_kind_of(owner, _module_type()):
        parts = (object.__getattribute__(owner, "__dict__").get(part) for part in _PARTS)
        return next((part[name] for part in parts if is_exactly(part, _DICTS) and name in part), MISSING)
    is_computed = class_attribute(type(found), "__get__") is not None and not is_exactly(found, _FUNCTIONS)
    return MISSING if is_computed else found


_DICTS = (dict, collections.OrderedDict, collections.defaultdict)


def _module_type() -> type:
    found = loaded_type("torch.nn", "Module")
    return _Nothing if found is None else found


class _Nothing:
    """No object is of this type."""


def _item(owner: Any, key: Any) -> Any:
    if is_exactly(owner, (list, tuple, collections.deque)) and type(key) is int:
        found = items_in(owner)
        return found[key] if -len(found) <= key < len(found) and found[key] is not EMPTY else MISSING
    if is_exactly(owner, _DICTS) and is_exactly(key, (str, int, float, bool, bytes)):
        return dict.get(owner, key, MISSING)
    if type(key) is int and is_kind_of(owner, _module_type()):
        parts = object.__getattribute__(owner, "__dict__").get("_modules")
        return dict.get(parts, str(key), MISSING) if is_kind_of(parts, dict) else MISSING
    return MISSING


def values_of(container: Any) -> list[Any]:
    """Return what a list or a dict, no subclass of these, has as items or as values; nothing of anything else."""
    if is_exactly(container, _DICTS):
        return values_in(container)
    return items_in(container) if type(container) is list else []


def newest(container: Any) -> Any:
    """Return the entry of *container* that was put there last, `MISSING` if it has none or no order."""
    kind = type(container)
    if has_base(kind, dict):
        return next((value for _, value in newest_pairs(container, 1)), MISSING)
    is_ordered = has_base(kind, list) or has_base(kind, collections.deque)
    return next(iter(newest_items(container, 1)), MISSING) if is_ordered else MISSING


def has_method(thing: object, *names: str) -> bool:
    """Return whether the type of *thing*, or *thing* itself if it is a class or a module, has functions of *names*."""
    is_owner = is_kind_of(thing, type) or is_kind_of(thing, types.ModuleType)
    found = (static_attribute(thing if is_owner else type(thing), name) for name in names)
    return all(any(is_kind_of(one, kind) for kind in _FUNCTION_KINDS) for one in found)


def needs_nothing(function: types.FunctionType, *, is_bound: bool = True) -> bool:
    """Return whether *function* can be called without arguments, as a method if it *is_bound*."""
    code = function.__code__
    n_given = len(function.__defaults__ or ()) + is_bound
    return code.co_argcount <= n_given and code.co_kwonlyargcount <= len(function.__kwdefaults__ or ())
