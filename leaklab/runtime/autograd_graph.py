"""Walk autograd graphs and find their hooks, without running a hook and without harming the graphs.

Reading ``next_functions`` leaves a Python wrapper on every node it returns, for the life of the graph, and a graph with
more than some 40,000 wrapped nodes overflows the stack when it is freed. Hence a budget of nodes, wrappers that were
already there included, and for the few operations that take any number of tensors a bound on that number, which is
asked for before their inputs are.

Python has no list of the hooks of C++ nodes. ``node.register_hook(f)`` first hands the node's dict, or None where it
has none, together with ``f`` to the method ``_register_hook`` of ``torch.autograd.Function``, and only then gives a
dict to a node without one. So a stand-in for that method which raises when it is shown a marker instead of a hook
learns the dict, and the node stays as it was. That costs 3 us per node.

A program without torch has no tensors and no nodes, and is asked as well: torch is looked up, never imported.
"""

from __future__ import annotations

import functools
import math
import re
import threading
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from leaklab.runtime.objects import HEAP_TYPE, class_dict, flags_of, loaded_type, mro_of, no_torch_functions, safe_len

Edge = tuple[Any, Any, str]
"""Source, target, and the reference as Python writes it, or in words."""

MAX_WRAPPED_NODES = 20_000
"""Half of what overflowed an 8 MB stack when the graph was freed."""

_MAX_FIXED_INPUTS = 32  # more than any operation has whose inputs are no list
_NO_SEQUENCE_NUMBER = 2**63  # nodes that no forward pass made report the highest number there is
_FIXED_INPUTS = re.compile(r"\w+Backward\w*\d|AccumulateGrad")  # as the operations of torch itself are called, except
_LIST_OPERATIONS = ("Stack", "Cat", "ChunkCat", "BlockDiag", "Foreach", "CudnnRnn", "MiopenRnn", "NestedTensor")

_inherits = type.__subclasscheck__  # (base, kind): in C, where `in kind.__mro__` would compare by a metaclass's __eq__

POST_HOOKS = "post_hooks of the node"
"""What ``node.register_hook`` adds to."""
PRE_HOOKS = "pre_hooks of the node"
"""What ``node.register_prehook`` adds to."""
TENSOR_HOOKS = "tensor_pre_hooks of the node"
"""What ``tensor.register_hook`` adds to, where the tensor is the node's result."""
UNPACK_HOOK, PACK_HOOK = " (unpack hook)", " (pack hook)"
"""How a reference ends from a node to a function that ``torch.autograd.graph.saved_tensors_hooks`` was given."""

_REGISTRATIONS = (("register_hook", POST_HOOKS), ("register_prehook", PRE_HOOKS))
_ONE_AT_A_TIME = threading.RLock()  # two stand-ins at once could be put back in the wrong order

Ask = Callable[[Any, Any], Any]


class _TensorReaders(NamedTuple):
    """The descriptors in C of tensors: no subclass may answer instead."""

    is_leaf: Callable[[Any], Any]
    retains_grad: Callable[[Any], Any]
    requires_grad: Callable[[Any], Any]
    output_nr: Callable[[Any], Any]
    grad: Callable[[Any], Any]
    grad_fn: Callable[[Any], Any]
    base: Callable[[Any], Any]
    backward_hooks: Callable[[Any], Any]
    is_view: Callable[[Any], Any]
    version: Callable[[Any], Any]


@functools.cache
def _of_tensors() -> _TensorReaders:
    """Return what reads tensors; asked for only where there is a tensor, and so torch."""
    kind: Any = loaded_type("torch._C", "TensorBase")
    own = class_dict(kind)
    return _TensorReaders(
        is_leaf=own["is_leaf"].__get__,
        retains_grad=own["retains_grad"].__get__,
        requires_grad=own["requires_grad"].__get__,
        output_nr=own["output_nr"].__get__,
        grad=own["grad"].__get__,
        grad_fn=own["grad_fn"].__get__,
        base=own["_base"].__get__,
        backward_hooks=own["_backward_hooks"].__get__,
        is_view=own["_is_view"],
        version=own["_version"].__get__,
    )


def _function_base() -> Any:
    """Return the C base of every ``torch.autograd.Function``; None without torch."""
    return loaded_type("torch._C", "_FunctionBase")


def is_python_node_type(kind: type) -> bool:
    """Return whether nodes of *kind* come from a ``torch.autograd.Function``; they are its ``ctx`` as well."""
    base = _function_base()
    return base is not None and _inherits(base, kind)


def is_node_type(kind: type) -> bool:
    """Return whether *kind* is a type of autograd nodes: of C++ or written in Python."""
    if not flags_of(kind) & HEAP_TYPE:
        return type(class_dict(kind).get("next_functions")) is types.GetSetDescriptorType
    return is_python_node_type(kind)


def is_wrapper_type(kind: type) -> bool:
    """Return whether *kind* is a type of nodes of C++: these get a Python object when somebody first looks at them."""
    return not flags_of(kind) & HEAP_TYPE and is_node_type(kind)


def descriptors_of(kind: type) -> Any:
    """Return the descriptors in C of nodes of type *kind*, by name: no class of the user's has a say in them."""
    return class_dict(_function_base() if is_python_node_type(kind) else kind)


class GraphWalk:
    """Autograd graphs reached so far.

    Attributes:
        edges: From tensors and nodes to what they hold beyond what the collector reports.
        nodes: Every node met, by address.
        n_unwalked: Nodes whose inputs, and tensors whose graph, were not looked at.
    """

    def __init__(self, nodes: Iterable[Any], n_leaves: int, *, reads_saved: bool = True) -> None:
        """Begin with the wrapped *nodes* of the heap.

        Args:
            nodes: All that are wrapped already.
            n_leaves: Tensors in the heap that require a gradient and are no result: each may be the input of a node.
            reads_saved: Whether the tensors saved in the nodes are wanted, not only the nodes.
        """
        self._reads_saved = reads_saved
        self.edges: list[Edge] = []
        self.nodes: dict[int, Any] = {id(node): node for node in nodes}
        self.n_unwalked = 0
        self._n_leaves = n_leaves
        self._pending: deque[Any] = deque(self.nodes.values())
        self._readers: dict[int, _NodeReader] = {}

    @property
    def _budget(self) -> int:
        return MAX_WRAPPED_NODES - len(self.nodes)

    def from_tensors(self, tensors: Iterable[Any]) -> None:
        """Add what *tensors* hold, and all of their graphs that the budget allows."""
        with no_torch_functions():
            for tensor in tensors:
                self._tensor(tensor)
            while self._pending:
                self._node(self._pending.popleft())

    def _tensor(self, tensor: Any) -> None:
        for reference, read in ((".grad", _grad_of), ("._base", _base_of)):
            held = _ask(read, tensor)
            if held is not None:
                self.edges.append((tensor, held, reference))
        if _ask(is_result, tensor):
            if self._budget < 1:
                self.n_unwalked += 1
                return
            node = _ask(_of_tensors().grad_fn, tensor)
            if node is not None:
                self.edges.append((tensor, node, ".grad_fn"))
                self._meet(node)

    def _meet(self, node: Any) -> None:
        if id(node) not in self.nodes:
            self.nodes[id(node)] = node
            self._pending.append(node)

    def _node(self, node: Any) -> None:
        reader = self._readers.get(id(type(node)))
        if reader is None:
            reader = self._readers[id(type(node))] = _NodeReader(type(node))
        if self._reads_saved:
            self.edges.extend((node, held, reference) for held, reference in reader.held_by(node))
        if reader.most_inputs(node, self._n_leaves) > self._budget:
            self.n_unwalked += 1
            return
        for number, (before, _) in enumerate(_ask(reader.next_functions, node) or ()):
            if before is not None:
                self.edges.append((node, before, f".next_functions[{number}][0]"))
                self._meet(before)


class _NodeReader:
    """What a node of one type can be asked for, looked up once per type: ``dir()`` per node costs ten times more."""

    def __init__(self, kind: type) -> None:
        self._is_python = is_python_node_type(kind)
        source = descriptors_of(kind)
        self._name = "" if self._is_python else kind.__name__
        self.next_functions = source["next_functions"].__get__
        self._sequence_number = source["_sequence_nr"]
        raw = [name for name in source if name.startswith("_raw_saved_")]
        prefix = "_raw_" if self._is_python else "_raw"  # ctx.saved_tensors, but grad_fn._saved_self
        self._saved = [(name.removeprefix(prefix), source[name].__get__) for name in raw]
        self._variable = source["variable"].__get__ if "variable" in source else None

    def held_by(self, node: Any) -> Iterator[tuple[Any, str]]:
        """Yield the tensors saved in *node*, its unpack hooks, and the leaf it accumulates into.

        A tensor is read as it is stored: no unpack hook runs and no checkpoint is computed again.
        """
        for name, read in self._saved:
            saved = _ask(read, node)
            many = enumerate(saved) if type(saved) in (list, tuple) else ((None, saved),)
            for number, one in many:
                reference = f".{name}" if number is None else f".{name}[{number}]"
                for held, ending in ((_ask(_data, one), ""), (_ask(_unpack_hook, one), UNPACK_HOOK)):
                    if held is not None:
                        yield held, reference + ending
        leaf = None if self._variable is None else _ask(self._variable, node)
        if leaf is not None:
            yield leaf, ".variable"

    def most_inputs(self, node: Any, n_leaves: int) -> float:
        """Return a number that the inputs of *node* do not exceed, without looking at them; infinity if unknown."""
        if self._is_python:
            needs = _ask(_needs_input_grad, node)
            return len(needs) if type(needs) is tuple else math.inf
        if _FIXED_INPUTS.fullmatch(self._name) and not self._name.startswith(_LIST_OPERATIONS):
            return _MAX_FIXED_INPUTS
        # What was stacked or joined is older than the node, or a leaf.
        number = self._sequence_number(node)
        by_age = number + n_leaves if number < _NO_SEQUENCE_NUMBER else math.inf
        return min(by_age, _joined_length(node) if self._name.startswith(("Stack", "Cat")) else math.inf)


def _ask(read: Any, thing: Any) -> Any:
    """Return what C code reads from *thing*; None where it refuses, as for freed buffers and functional wrappers."""
    try:
        return read(thing)
    except (RuntimeError, AttributeError, TypeError):
        return None


def gradient_of(tensor: Any) -> Any:
    """Return the gradient that *tensor* has, or None; the caller holds `leaklab.runtime.objects.no_torch_functions`."""
    return _ask(_grad_of, tensor)


def version_of(tensor: Any) -> int:
    """Return how often *tensor* was changed where it is; 0 of one that does not count that (of inference mode)."""
    return int(_ask(_of_tensors().version, tensor) or 0)


def _grad_of(tensor: Any) -> Any:
    read = _of_tensors()
    return read.grad(tensor) if read.is_leaf(tensor) or read.retains_grad(tensor) else None  # any other would warn


def _base_of(tensor: Any) -> Any:
    read = _of_tensors()
    return read.base(tensor) if read.is_view(tensor) else None


def requires_grad(tensor: Any) -> bool:
    """Return whether gradients of *tensor* are wanted."""
    return bool(_of_tensors().requires_grad(tensor))


def is_result(tensor: Any) -> bool:
    """Return whether *tensor* was made by an operation that its graph remembers."""
    read = _of_tensors()
    return bool(read.requires_grad(tensor) and not read.is_leaf(tensor))


def number_of(node: Any) -> int:
    """Return the number of *node*, which grows in the order in which a thread makes nodes; leaves have the highest."""
    return int(descriptors_of(type(node))["_sequence_nr"](node))


def inputs_of(node: Any) -> tuple[tuple[Any, int], ...]:
    """Return the nodes before *node* and which of their results it takes; wraps those that nobody has looked at yet."""
    return _ask(descriptors_of(type(node))["next_functions"].__get__, node) or ()


def result_of(tensor: Any) -> tuple[Any, int] | None:
    """Return the node that made *tensor* and which of its results it is; None for a tensor without a graph."""
    if not _ask(is_result, tensor):
        return None
    read = _of_tensors()
    node = _ask(read.grad_fn, tensor)
    return None if node is None else (node, int(read.output_nr(tensor)))


def count_leaves(tensors: Iterable[Any]) -> int:
    """Count the tensors that may be inputs of a node without being the result of one."""
    with no_torch_functions():
        return sum(1 for tensor in tensors if _ask(_is_wanted_leaf, tensor))


def _is_wanted_leaf(tensor: Any) -> bool:
    read = _of_tensors()
    return bool(read.requires_grad(tensor) and read.is_leaf(tensor))


def _needs_input_grad(node: Any) -> Any:
    return class_dict(_function_base())["needs_input_grad"].__get__(node)


def _data(saved: Any) -> Any:
    return None if saved is None else saved.data


def _unpack_hook(saved: Any) -> Any:
    return None if saved is None else saved.unpack_hook


def _joined_length(node: Any) -> float:
    """Return how long the result is in the direction in which tensors were stacked or joined: each adds one or more."""
    try:
        shape = node._input_metadata[0].shape  # noqa: SLF001
        dim = node._saved_dim  # noqa: SLF001
        return int(shape[dim if dim < _NO_SEQUENCE_NUMBER else dim - 2**64])  # -1 is reported without its sign
    except (AttributeError, IndexError, TypeError, RuntimeError):
        return math.inf


def count_nodes(tensors: list[Any], wrapped_nodes: list[Any]) -> int:
    """Return how many nodes the graphs of *tensors* have together, a lower bound where there are too many.

    Args:
        tensors: All tensors of the heap.
        wrapped_nodes: All nodes that Python has looked at already: they count against the budget.
    """
    walk = GraphWalk(wrapped_nodes, count_leaves(tensors), reads_saved=False)
    walk.from_tensors(tensors)
    gradients = [held for _source, held, reference in walk.edges if reference == ".grad"]
    walk.from_tensors(gradients)
    return len(walk.nodes)


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
            hooks = _of_tensors().backward_hooks(tensor)
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
