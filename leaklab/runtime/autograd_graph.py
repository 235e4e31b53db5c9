"""Walk autograd graphs, without running a hook and without harming the graphs.

Reading ``next_functions`` leaves a Python wrapper on every node it returns, for the life of the graph, and a graph with
more than some 40,000 wrapped nodes overflows the stack when it is freed. Hence a budget of nodes, wrappers that were
already there included, and for the few operations that take any number of tensors a bound on that number, which is
asked for before their inputs are.

A program without torch has no tensors and no nodes, and is asked as well: torch is looked up, never imported.
"""

from __future__ import annotations

import functools
import heapq
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from leaklab.runtime.objects import HEAP_TYPE, class_dict, flags_of, loaded_type, no_torch_functions

Edge = tuple[Any, Any, str]
"""Source, target, and the reference as Python writes it, or in words."""

MAX_WRAPPED_NODES = 20_000
"""Half of what overflowed an 8 MB stack when the graph was freed."""
_MAX_COUNTED_NODES = 10_000
"""So many are wrapped to count them: the others are left to whoever looks for the graph that has them."""

_MAX_FIXED_INPUTS = 32  # more than any operation has whose inputs are no list
_NO_SEQUENCE_NUMBER = 2**63  # nodes that no forward pass made report the highest number there is
_FIXED_INPUTS = re.compile(r"\w+Backward\w*\d|AccumulateGrad")  # as the operations of torch itself are called, except
_LIST_OPERATIONS = ("Stack", "Cat", "ChunkCat", "BlockDiag", "Foreach", "CudnnRnn", "MiopenRnn", "NestedTensor")

_inherits = type.__subclasscheck__  # (base, kind): in C, where `in kind.__mro__` would compare by a metaclass's __eq__

UNPACK_HOOK, PACK_HOOK = " (unpack hook)", " (pack hook)"
"""How a reference ends from a node to a function that ``torch.autograd.graph.saved_tensors_hooks`` was given."""

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

    def __init__(self, nodes: Iterable[Any], n_leaves: int, most_nodes: int = 0, *, reads_saved: bool = True) -> None:
        """Begin with the wrapped *nodes* of the heap.

        Args:
            nodes: All that are wrapped already.
            n_leaves: Tensors in the heap that require a gradient and are no result: each may be the input of a node.
            most_nodes: So many may be wrapped, `MAX_WRAPPED_NODES` by default. The newest come first: what was added.
            reads_saved: Whether the tensors saved in the nodes are wanted, not only the nodes.
        """
        self._reads_saved = reads_saved
        self.edges: list[Edge] = []
        self.nodes: dict[int, Any] = {id(node): node for node in nodes}
        self.n_unwalked = 0
        self._n_leaves = n_leaves
        self._most_nodes = most_nodes or MAX_WRAPPED_NODES
        self._pending: list[tuple[int, int, Any]] = []
        self._readers: dict[int, _NodeReader] = {}
        for number, node in enumerate(self.nodes.values()):
            heapq.heappush(self._pending, (-self._reader(node).number_of(node), number, node))

    @property
    def _budget(self) -> int:
        return self._most_nodes - len(self.nodes)

    def _reader(self, node: Any) -> _NodeReader:
        reader = self._readers.get(id(type(node)))
        if reader is None:
            reader = self._readers[id(type(node))] = _NodeReader(type(node))
        return reader

    def from_tensors(self, tensors: Iterable[Any]) -> None:
        """Add what *tensors* hold, and all of their graphs that the budget allows, of the newest first.

        A graph may have thousands of tensors of its own: their nodes are not to take what its other nodes need.
        """
        waiting, n_with_heads = [*tensors], len(self.nodes) + self._budget // 4
        with no_torch_functions():
            while True:
                while waiting and (len(self.nodes) < n_with_heads or self._budget < 1):
                    self._tensor(waiting.pop())
                while self._pending:
                    self._node(heapq.heappop(self._pending)[-1])
                if not waiting:
                    return
                n_with_heads = self._most_nodes

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
            heapq.heappush(self._pending, (-self._reader(node).number_of(node), len(self.nodes), node))
            self.nodes[id(node)] = node

    def _node(self, node: Any) -> None:
        reader = self._reader(node)
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
        self.number_of = source["_sequence_nr"]
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
        number = self.number_of(node)
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
    """Return whether *tensor* was made by an operation that its graph remembers; wraps no node, as ``grad_fn`` would.

    The caller holds `leaklab.runtime.objects.no_torch_functions`.
    """
    read = _of_tensors()
    return bool(read.requires_grad(tensor) and not read.is_leaf(tensor))


def has_graph(tensor: Any) -> bool:
    """Return whether *tensor* was computed and carries its graph, of which no node is wrapped."""
    with no_torch_functions():
        return is_result(tensor)


def backward_hooks_of(tensor: Any) -> Any:
    """Return the dict of the hooks of *tensor*, or None."""
    return _of_tensors().backward_hooks(tensor)


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
    walk = GraphWalk(wrapped_nodes, count_leaves(tensors), _MAX_COUNTED_NODES, reads_saved=False)
    walk.from_tensors(tensors)
    gradients = [held for _source, held, reference in walk.edges if reference == ".grad"]
    walk.from_tensors(gradients)
    return len(walk.nodes)


def is_lower_bound(n_nodes: int) -> bool:
    """Return whether `count_nodes` returned *n_nodes* because its budget ended, so that there may be more of them."""
    return n_nodes > _MAX_COUNTED_NODES - _MAX_FIXED_INPUTS
