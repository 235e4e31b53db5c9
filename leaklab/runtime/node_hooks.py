"""Find the hooks of autograd nodes and of the tensors that they made, without running one.

Python has no list of the hooks of C++ nodes. ``node.register_hook(f)`` first hands the node's dict, or None where it
has none, together with ``f`` to the method ``_register_hook`` of ``torch.autograd.Function``, and only then gives a
dict to a node without one. So a stand-in for that method which raises when it is shown a marker instead of a hook
learns the dict, and the node stays as it was. That costs 3 us per node.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from leaklab.runtime.autograd_graph import Edge, backward_hooks_of, descriptors_of
from leaklab.runtime.objects import class_dict, loaded_type, mro_of, safe_len

POST_HOOKS = "post_hooks of the node"
"""What ``node.register_hook`` adds to."""
PRE_HOOKS = "pre_hooks of the node"
"""What ``node.register_prehook`` adds to."""
TENSOR_HOOKS = "tensor_pre_hooks of the node"
"""What ``tensor.register_hook`` adds to, where the tensor is the node's result."""
_REGISTRATIONS = (("register_hook", POST_HOOKS), ("register_prehook", PRE_HOOKS))
_ONE_AT_A_TIME = threading.RLock()  # two stand-ins at once could be put back in the wrong order

Ask = Callable[[Any, Any], Any]


class _Shown(Exception):  # noqa: N818 - a way to return, not an error
    """The marker was shown to the stand-in."""


def node_hooks(nodes: Iterable[Any]) -> list[Edge]:
    """Return from each of *nodes* the dicts of its hooks; nothing where torch does not register as described above.

    The hooks of the tensor that a node made are in another dict, see `tensor_hooks`.
    """
    found: list[Edge] = []
    function: Any = loaded_type("torch.autograd", "Function")
    bases = () if function is None else mro_of(function)
    home = next((base for base in bases if "_register_hook" in class_dict(base)), None)
    if home is None:
        return found
    registrations: dict[int, list[tuple[Any, str]]] = {}
    with _asking(home) as ask:
        for node in nodes:
            known = registrations.get(id(type(node)))
            if known is None:
                source = descriptors_of(type(node))
                known = [(source[name], words) for name, words in _REGISTRATIONS if name in source]
                registrations[id(type(node))] = known
            for register, words in known:
                hooks = ask(register, node)
                if hooks is False:
                    return []
                if safe_len(hooks):
                    found.append((node, hooks, words))
    return found


def is_function_type(kind: type) -> bool:
    """Return whether *kind* is the type of functions written in Python, or of their methods."""
    return kind is types.FunctionType or kind is types.MethodType


def origin_of(hook: Any) -> object:
    """Return where a function or method was made, the same for a pack hook and its unpack hook.

    That is its file and the function around it; of a method, the object that it belongs to.
    """
    if type(hook) is types.MethodType:
        return id(hook.__self__)
    return hook.__code__.co_filename, hook.__qualname__.rpartition(".")[0]


def tensor_hooks(edges: Iterable[Edge]) -> Iterator[Edge]:
    """Yield the dicts of hooks of tensors as what they are too: a possession of the node that made the tensor.

    Args:
        edges: References from tensors to nodes, among others. The dict of a tensor whose Python object is gone cannot
            be read.
    """
    for tensor, node, reference in edges:
        if reference == ".grad_fn":
            hooks = backward_hooks_of(tensor)
            if safe_len(hooks):
                yield node, hooks, TENSOR_HOOKS


@contextmanager
def _asking(home: Any) -> Iterator[Ask]:
    """Put the stand-in into its place; the value asks a node: its dict, None without one, False if it took the marker.

    Other threads may register hooks meanwhile: whatever is not the marker is passed on.
    """
    shown: list[Any] = []

    def marker(*_: object) -> None:
        """Stand for a hook; harmless even if it became one."""

    def stand_in(hooks: Any, hook: object) -> Any:
        if hook is marker:
            shown.append(hooks)
            raise _Shown
        return registering(hooks, hook)

    def ask(register: Any, node: Any) -> Any:
        try:
            handle = register(node, marker)
        except _Shown:
            return shown.pop()
        except (RuntimeError, TypeError, AttributeError):
            return None  # a node that takes no hooks
        handle.remove()
        return False

    with _ONE_AT_A_TIME:
        original = vars(home)["_register_hook"]
        registering = original.__func__
        home._register_hook = staticmethod(stand_in)  # noqa: SLF001
        try:
            yield ask
        finally:
            home._register_hook = original  # noqa: SLF001
            shown.clear()
