"""Tell whether other code than Python's runs for a function, so that a change of its code object has no effect."""

from __future__ import annotations

from collections.abc import Collection
from types import FunctionType
from typing import Any

from leaklab.cure.edits import NotTriedError
from leaklab.runtime.objects import loaded_variables, mro_of


def refuse_compiled(functions: Collection[FunctionType]) -> None:
    """Refuse functions that torch runs in a form of its own.

    Raises:
        NotTriedError: if one of them was scripted, or if torch.compile has compiled anything in this process: what it
            has inlined where nobody tells.
    """
    counters: Any = loaded_variables("torch._dynamo.utils").get("counters")
    if functions and counters and counters["frames"]["ok"]:
        msg = "torch.compile has compiled code of this process"
        raise NotTriedError(msg)
    if any(_is_scripted(function) for function in functions):
        msg = "torch runs a scripted form of that code"
        raise NotTriedError(msg)


def _is_scripted(function: FunctionType) -> bool:
    scripted: Any = loaded_variables("torch.jit._state").get("_jit_caching_layer", {})
    if function in scripted:
        return True
    store: Any = loaded_variables("torch.jit._recursive").get("concrete_type_store")
    classes = [] if store is None else list(store.type_store)
    return any(vars(base).get(function.__name__) is function for of in classes for base in mro_of(of))
