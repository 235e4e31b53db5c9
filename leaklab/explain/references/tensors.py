"""Name what tensors and autograd nodes refer to, most of which the garbage collector does not report.

Saved tensors are found through ``_raw_saved_*`` only: ``_saved_*`` would run unpack hooks and could compute a
checkpointed part of the model again.
"""

from __future__ import annotations

import collections
import warnings
from typing import TYPE_CHECKING, Any

from leaklab.explain.heap.node_hooks import TENSOR_HOOKS, node_hooks
from leaklab.explain.references.attributes import among
from leaklab.explain.references.descriptors import MISSING, c_descriptor, class_dict, is_evaluable, read
from leaklab.explain.references.record import Reference, in_words
from leaklab.objects import is_tensor, mro_of, no_torch_functions, type_name

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOOK_ATTRIBUTES = ("_backward_hooks", "_post_accumulate_grad_hooks")
_NODE_ATTRIBUTES = (
    "to_save",
    "saved_for_forward",
    "dirty_tensors",
    "non_differentiable",
    "needs_input_grad",
)
_RAW = "_raw_saved_"


def in_tensor(holder: Any, child: object) -> Iterator[Reference]:
    """Name the graph, the gradient, the base of a view and the hooks."""
    with no_torch_functions(), warnings.catch_warnings():
        # .grad of a tensor that is no leaf warns; one that retains its gradient answers all the same
        warnings.simplefilter("ignore")
        hidden = ("_base", "grad") if is_tensor(child) else ("grad_fn",)
        found = [*among(holder, child, _HOOK_ATTRIBUTES), *among(holder, child, hidden, "hidden")]
    yield from found


def in_node(holder: Any, child: object) -> Iterator[Reference]:
    """Name the nodes that come next in backward, the leaf, and what is saved for backward."""
    kind = type(holder)
    yield from among(holder, child, ("variable",), "hidden")
    yield from among(holder, child, _NODE_ATTRIBUTES)
    if type(child) is dict:
        # Asking a node for it that has none leaves an empty dict on the node.
        yield from among(holder, child, ("metadata",), "hidden")
    if type(child) is collections.OrderedDict:
        yield from _hooks(holder, child)
    # Reading them wraps every input of the node for good: only for a node, to whom they have been read before.
    following = read(holder, "next_functions") if is_node(type(child)) else ()
    for index, pair in enumerate(following if type(following) is tuple else ()):
        if pair[0] is child:
            text = f".next_functions[{index}][0]"
            yield Reference(text, text, ".next_functions[*][0]", "hidden")
    for name in sorted(_raw_names(kind)):
        yield from _saved(holder, name, child)


def _hooks(node: Any, child: Any) -> Iterator[Reference]:
    """Name *child* as hooks that *node* owns: by asking it, and if it is no dict of its own as those of its tensor."""
    own = [in_words(words, "hidden") for _, hooks, words in node_hooks([node]) if hooks is child]
    yield from own
    if not own and all(type(key) is int for key in list(dict.keys(child))):
        yield in_words(TENSOR_HOOKS, "hidden")


def _raw_names(kind: type) -> set[str]:
    return {name for each in mro_of(kind) for name in class_dict(each) if type(name) is str and name.startswith(_RAW)}


def _saved(node: Any, name: str, child: object) -> Iterator[Reference]:
    """Name *child* where it is saved under *name*: a tensor, what a hook packed, or the hook that unpacks it."""
    saved = read(node, name)
    many = type(saved) is tuple or type(saved) is list
    evaluable = is_evaluable(type(node), name, c_descriptor(type(node), name))
    variables: Any = saved if many else (saved,)
    for index, variable in enumerate(variables):
        word = name.removeprefix(_RAW)
        place, words, stable = f".{name}", repr(word), repr(word)
        if many:
            place, words, stable = f"{place}[{index}]", f"{word}[{index}]", f"{word}[*]"
        for attribute, verb in (("data", "saved for backward as"), ("unpack_hook", "unpack hook of")):
            if _read_saved(variable, attribute) is child:
                suffix = f"{place}.{attribute}" if evaluable else None
                yield Reference(f"{verb} {words}", suffix, f"{verb} {stable}", "hidden")


def _read_saved(variable: object, attribute: str) -> object:
    if type_name(type(variable)) != "torch._C._autograd.SavedTensor":
        return MISSING
    try:
        return getattr(variable, attribute)
    except RuntimeError:  # freed by backward
        return MISSING


def is_node(kind: type) -> bool:
    """Return whether *kind* is a type of autograd nodes; those written in C++ share no base class."""
    return c_descriptor(kind, "next_functions") is not MISSING
