"""Say what in a notebook's kernel takes memory, or piles up: by what each lets go of, the likeliest mistake first.

Results that the notebook remembers, the last error, open figures, hooks registered again and again, kept graphs: of
each is computed what comes back if it goes, as `whyalive` does for one object, once the notebook has let go of its own.
What one of them frees is not counted with the next. The rest is listed by holder, as in the report of a process without
memory.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np

from leaklab.decide.growth import HABIT_FLOOR_BYTES, MIN_RUNS, steady_rate
from leaklab.explain.alive.retained import freed_with, retained_sizes, size_of_freed
from leaklab.explain.alive.smallest_cut import freed_without
from leaklab.explain.heaps.largest_tensors import buffers_by_size, held_by, storages_by_path, tensor_text
from leaklab.heap.reachability import references_of, references_to
from leaklab.heap.shortest_paths import ROOT
from leaklab.heap.view import HeapView
from leaklab.measure.cell_levels import CellRuns
from leaklab.measure.snapshot_sizes import TensorTable
from leaklab.model.kernel import CellGrowth, DeviceLevels, KernelRecord, Suspect, Suspicion
from leaklab.runtime.addresses import Ints, is_own_dict
from leaklab.runtime.objects import (
    attributes_of,
    has_base,
    is_exactly,
    loaded_type,
    loaded_variables,
    running_shell,
    type_name,
)
from leaklab.text import shorten

SMALL_BYTES = 64 * 1024
"""What lets go of less, or holds less, is not listed."""
LET_GO = "%leaks --let-go"
CLOSE_FIGURES = 'import matplotlib.pyplot as plt; plt.close("all")'
_MANY = 10
"""So many figures, or handlers that are alike, are listed however small they are."""
_FEW = 4
"""So many registrations of one function on one module are not meant."""
_BLOCKS_FLOOR = 2000.0
"""What a notebook keeps of each cell, its text and its code, stays below."""
_N_GROUPS, _N_HOLDERS, _N_VARIABLES, _N_CELLS = 20, 10, 5, 10
_LEAST_SHARE = 0.01  # of all tensors: what is less is no reason to be listed first
_LEAST_OF_GROWTH = 0.1  # of what cells have added
_WASTE = (Suspicion.OUTPUTS, Suspicion.EXCEPTION, Suspicion.FIGURES, Suspicion.HOOKS, Suspicion.GRAPHS)
_COUNTED = (Suspicion.HOOKS, Suspicion.FIGURES, Suspicion.CALLBACKS)
_TABLES = (dict, OrderedDict)
_PLAIN = (list, dict, tuple, set, deque, defaultdict)
_STORE = re.compile(r"_(?:\w+_)?hooks(?:_\w+)?")
_GLOBAL_STORE = re.compile(r"_global_\w*hooks\w*")
_LOCAL = re.compile(r"local '(.+)' of (.+)")
_HOOKS_HOME = "torch.nn.modules.module"
_LINE_LIMIT = 60


@dataclass(frozen=True, slots=True)
class NotebookKeeps:
    """What the notebook itself keeps, by addresses.

    Attributes:
        outputs: Results of cells for which the user has no variable.
        output_homes: The containers that hold them.
        errors: The last exceptions, and their tracebacks.
    """

    outputs: frozenset[int] = frozenset()
    output_homes: frozenset[int] = frozenset()
    errors: frozenset[int] = frozenset()


def heap_suspects(view: HeapView, keeps: NotebookKeeps, levels: Mapping[str, tuple[int, int]]) -> KernelRecord:
    """Return what of a kernel's heap is suspect, in no order yet, and how much there is.

    Args:
        view: The heap.
        keeps: What the notebook itself keeps.
        levels: Bytes allocated and reserved on each accelerator that is used.
    """
    claims = _Claims(view)
    storages = storages_by_path(view)
    suspects = [
        *_errors(claims, keeps),
        *_outputs(claims, keeps),
        *_figures(claims),
        *_hooks(claims),
        *_callbacks(claims),
        *_graphs(claims),
    ]
    buffers, _is_complete = buffers_by_size(view)
    rest = [one for one in (*storages, *buffers) if not claims.has(one.place, one.below)]
    suspects += _holders(claims, [one for one in held_by(view, rest, _N_HOLDERS) if one.n_bytes >= SMALL_BYTES])
    devices = _devices(view, levels)
    return KernelRecord(
        tuple(suspects) + tuple(_device_suspects(devices)),
        devices=devices,
        n_objects=view.n_heap,
        n_tensors=len(view.tensors),
        tensor_bytes=sum(storage.n_bytes for storage in storages),
        notes=tuple(view.notes),
    )


class _Freed(NamedTuple):
    """What comes back, without what is explained already.

    Attributes:
        n_bytes: How much.
        largest: The vertex of the largest tensor in it; -1 without one.
        needs_notebook: Whether the notebook has to let go of its own, too.
    """

    n_bytes: int
    largest: int
    needs_notebook: bool = False


class _Claims:
    """What is explained already, and what the notebook itself holds."""

    def __init__(self, view: HeapView) -> None:
        self.view = view
        self._claimed = np.zeros(view.index.n_vertices, bool)
        self._of_notebook: list[tuple[int, int]] = []

    def is_free(self, vertices: Ints) -> Ints:
        """Return those of *vertices* that nothing so far explains."""
        free: Ints = vertices[~self._claimed[vertices]]
        return free

    def has(self, place: int, below: Sequence[object] = ()) -> bool:
        """Return whether the object at *place*, or the array below it, is explained."""
        vertex = self.view.index.vertex_of(id(below[-1])) if below else -1
        return bool(self._claimed[place] or (vertex >= 0 and self._claimed[vertex]))

    def take(self, cuts: Iterable[tuple[int, int]], *, of_notebook: bool = False) -> _Freed:
        """Note as explained what goes without the references *cuts*, and without those of the notebook itself."""
        cut = list(cuts)
        alone = self.is_free(freed_without(self.view, cut))
        fresh = self.is_free(freed_without(self.view, [*self._of_notebook, *cut])) if self._of_notebook else alone
        if of_notebook:
            self._of_notebook += cut
        self._claimed[fresh] = True
        n_bytes = self.bytes_of(fresh)
        is_shared = len(fresh) > len(alone) and n_bytes > self.bytes_of(alone) + SMALL_BYTES
        return _Freed(n_bytes, self._largest(fresh), needs_notebook=is_shared and not of_notebook)

    def bytes_of(self, vertices: Ints) -> int:
        """Return what comes back if exactly *vertices* go."""
        return size_of_freed(self.view, vertices).exclusive_bytes if len(vertices) else 0

    def what(self, freed: _Freed) -> str:
        """Return the largest tensor of *freed* in words."""
        if freed.largest < 0:
            return ""
        return tensor_text(self.view.objects[freed.largest], summaries=self.view.summaries)

    def _largest(self, vertices: Ints) -> int:
        storages = self.view.storages
        tensors = vertices[self.view.is_tensor[vertices]].tolist()
        sizes = {v: sum(storages.by_key[key].n_bytes for key in storages.keys_of.get(v, ())) for v in tensors}
        return max(sizes, key=lambda vertex: sizes[vertex], default=-1)


def _errors(claims: _Claims, keeps: NotebookKeeps) -> Iterator[Suspect]:
    view, vertices = claims.view, _vertices(claims.view, keeps.errors)
    holders, held = references_to(view.index, vertices)
    cuts = [*zip(holders.tolist(), held.tolist(), strict=True), *((ROOT, vertex) for vertex in vertices.tolist())]
    freed = claims.take(cuts, of_notebook=True)
    kinds = [type(view.objects[vertex]) for vertex in vertices.tolist()]
    kind = next((type_name(of) for of in kinds if has_base(of, BaseException)), "")
    if freed.n_bytes >= SMALL_BYTES:
        what = claims.what(freed)
        if what and (local := _local(view, freed.largest)):
            what = f"{local}, {what}"
        yield Suspect(Suspicion.EXCEPTION, kind, freed.n_bytes, what=what, command=LET_GO)


def _local(view: HeapView, vertex: int) -> str:
    """Return of which function the object is a variable, ``batch in train``; empty if it is none."""
    names = (_LOCAL.fullmatch(step.reference) for step in reversed(view.describe(vertex).path.steps))
    return next((f"`{name[1]}` in {name[2]}" for name in names if name is not None), "")


def _outputs(claims: _Claims, keeps: NotebookKeeps) -> Iterator[Suspect]:
    view, values = claims.view, claims.is_free(_vertices(claims.view, keeps.outputs))
    holders, held = references_to(view.index, values)
    is_home = np.isin(view.index.ids[holders], np.array(sorted(keeps.output_homes), np.int64))
    freed = claims.take(zip(holders[is_home].tolist(), held[is_home].tolist(), strict=True), of_notebook=True)
    if freed.n_bytes >= SMALL_BYTES:
        n_results = len(values) - len(claims.is_free(values))
        yield Suspect(Suspicion.OUTPUTS, "Out", freed.n_bytes, n_results, what=claims.what(freed), command=LET_GO)


def _figures(claims: _Claims) -> Iterator[Suspect]:
    """Yield the figures that pyplot has open, and those that others hold."""
    view, kind = claims.view, loaded_type("matplotlib.figure", "Figure")
    if kind is None:
        return
    figures = np.flatnonzero(view.types.mask(lambda of: has_base(of, kind)))
    managers = loaded_variables("matplotlib._pylab_helpers").get("Gcf")
    home = -1 if managers is None else view.index.vertex_of(id(managers.figs))
    if home >= 0:
        _holders, held = references_of(view.index, np.array([home]))
        freed = claims.take((home, vertex) for vertex in held.tolist())
        if freed.n_bytes >= SMALL_BYTES or len(held) >= _MANY:
            command = f"{CLOSE_FIGURES}\n{LET_GO}" if freed.needs_notebook else CLOSE_FIGURES
            yield Suspect(Suspicion.FIGURES, "pyplot", freed.n_bytes, len(held), command=command)
    for where, group in _by_owner(view, claims.is_free(figures).tolist()):
        holders, held = references_to(view.index, np.array(group, np.int64))
        freed = claims.take(zip(holders.tolist(), held.tolist(), strict=True))
        if len(group) > 1:
            asked = _asking("whyalive", where)
            yield Suspect(Suspicion.FIGURES, where, freed.n_bytes, len(group), command=asked)


def _hooks(claims: _Claims) -> Iterator[Suspect]:
    """Yield each function that is registered again and again on one module, or on several."""
    view = claims.view
    homes: dict[str, Counter[str]] = defaultdict(Counter)
    cuts: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for owner, key, store in _hook_stores(view):
        entries = list(store.values())
        names = [_name_of_function(entry) for entry in entries]
        for name, count in Counter(names).items():
            if count >= _FEW:
                homes[name][f"{owner}.{key}"] += count
                home = view.index.vertex_of(id(store))
                pairs = ((home, view.index.vertex_of(id(entry))) for entry in entries)
                cuts[name] += [pair for pair, own in zip(pairs, names, strict=True) if own == name and pair[1] >= 0]
        entries.clear()
    for name, places in homes.items():
        freed = claims.take(cuts[name])
        (where, most), *_ = places.most_common(1)
        asked = f"list({where}.values())[-1]"
        count = places.total()
        if freed.n_bytes >= SMALL_BYTES or count >= _MANY:
            words = f"{name} on {len(places):,} modules" if len(places) > 1 else f"{name} on {where}"
            command = _asking("whyalive", asked)
            yield Suspect(
                Suspicion.HOOKS, words, freed.n_bytes, count, float(most), what=claims.what(freed), command=command
            )


def _hook_stores(view: HeapView) -> Iterator[tuple[str, str, dict[Any, Any]]]:
    """Yield who has it, its name, and the store, of all stores of hooks that are not empty."""
    for key, store in loaded_variables(_HOOKS_HOME).items():
        if _GLOBAL_STORE.fullmatch(key) and store:
            yield _HOOKS_HOME, key, store
    bases = [loaded_type("torch.nn", "Module"), loaded_type("torch.optim", "Optimizer")]
    owners = view.types.mask(lambda of: any(base is not None and has_base(of, base) for base in bases))
    for vertex in np.flatnonzero(owners).tolist():
        for key, store in attributes_of(view.objects[vertex]).items():
            if type(key) is str and _STORE.fullmatch(key) and is_exactly(store, _TABLES) and len(store) >= _FEW:
                yield _name(view, vertex), key, store


def _callbacks(claims: _Claims) -> Iterator[Suspect]:
    """Yield loggers that have many handlers of one class, and events of the notebook with many of one function."""
    for where, entries in _lists_of_callbacks(claims.view):
        for name, count in Counter(map(_name_of_function, entries)).items():
            if count >= _FEW:
                alike = {id(entry) for entry in entries if _name_of_function(entry) == name}
                home = claims.view.index.vertex_of(id(entries))
                freed = claims.take((home, vertex) for vertex in _vertices(claims.view, alike).tolist())
                words, command = f"{name} in {where}", _asking("whyalive", f"{where}[-1]")
                yield Suspect(Suspicion.CALLBACKS, words, freed.n_bytes, count, command=command)


def _lists_of_callbacks(view: HeapView) -> Iterator[tuple[str, list[Any]]]:
    kind = loaded_type("logging", "Logger")
    loggers = np.flatnonzero(view.types.mask(lambda of: kind is not None and has_base(of, kind))).tolist()
    for logger in (attributes_of(view.objects[vertex]) for vertex in loggers):
        name = "" if logger.get("name") == "root" else repr(logger.get("name"))
        handlers = logger.get("handlers")
        if type(handlers) is list:
            yield f"logging.getLogger({name}).handlers", handlers
    table = attributes_of(getattr(running_shell(), "events", None)).get("callbacks")
    for event, callbacks in table.items() if type(table) is dict else ():
        yield f"get_ipython().events.callbacks[{event!r}]", callbacks


def _name_of_function(thing: Any) -> str:
    """Return what a reader calls *thing*, which can be called: two functions made by one ``def`` have one name."""
    while is_exactly(thing, (MethodType, partial)):
        thing = thing.__func__ if type(thing) is MethodType else thing.func
    return str(thing.__qualname__) if type(thing) is FunctionType else type_name(type(thing))


def _graphs(claims: _Claims) -> Iterator[Suspect]:
    """Yield who keeps tensors together with the graphs behind them."""
    view = claims.view
    tensors = claims.is_free(np.flatnonzero(view.is_tensor & ~view.in_graph))
    holders, held = references_of(view.index, tensors)
    with_graph = np.unique(holders[view.in_graph[held]])
    groups = sorted(_by_owner(view, with_graph.tolist()), key=lambda group: -len(group[1]))
    for where, group in groups[:_N_GROUPS]:
        holders, held = references_of(view.index, np.array(group, np.int64))
        inside = view.in_graph[held]
        freed = claims.take(zip(holders[inside].tolist(), held[inside].tolist(), strict=True))
        if freed.n_bytes >= SMALL_BYTES:
            what, command = claims.what(freed), _asking("autograd", where)
            yield Suspect(Suspicion.GRAPHS, where, freed.n_bytes, len(group), what=what, command=command)


def _holders(claims: _Claims, held: Sequence[Any]) -> Iterator[Suspect]:
    """Yield who holds the largest tensors and arrays, and the variables that keep as much of other objects."""
    view, known = claims.view, Counter[str]()
    for one in held:
        if one.path is not None and one.path.steps:
            known[one.path.steps[0].reference] += one.n_bytes
        command = _asking("whyalive", one.holder) or "import leaklab; leaklab.explore()"
        yield Suspect(
            Suspicion.HOLDER, one.holder, one.n_bytes, one.n_tensors, what=one.what, command=command, unit=one.unit
        )
    sizes = retained_sizes(view)
    variables = [
        (start.expression, view.index.vertex_of(start.address))
        for start in view.starts
        if start.is_variable and not start.is_history and not start.is_shells
    ]
    found = [(name, vertex) for name, vertex in variables if vertex >= 0 and not claims.has(vertex)]
    for name, vertex in sorted(found, key=lambda one: -int(sizes[one[1]]))[:_N_VARIABLES]:
        n_bytes = claims.bytes_of(claims.is_free(freed_with(view, [vertex])))
        if n_bytes >= SMALL_BYTES and n_bytes > 2 * known[name]:
            kind = type_name(type(view.objects[vertex]))
            yield Suspect(Suspicion.HOLDER, name, n_bytes, what=kind, command=_asking("whyalive", name))


def _devices(view: HeapView, levels: Mapping[str, tuple[int, int]]) -> tuple[DeviceLevels, ...]:
    if not levels:
        return ()
    table = TensorTable()
    table.add_tensors(view.objects[vertex] for vertex in view.tensors)
    names = {number: name if ":" in name else f"{name}:0" for name, number in table.devices.items()}
    sizes = {key: (names[device], size) for _tensor, key, size, device in table.storages}
    of_tensors: Counter[str] = Counter()
    for device, size in sizes.values():
        of_tensors[device] += size
    return tuple(DeviceLevels(name, *level, of_tensors[name]) for name, level in levels.items())


def _device_suspects(devices: Iterable[DeviceLevels]) -> Iterator[Suspect]:
    for one in devices:
        kind = one.device.partition(":")[0]
        unknown, unused = one.allocated - one.tensors, one.reserved - one.allocated
        if unknown >= max(SMALL_BYTES, one.allocated * _LEAST_OF_GROWTH):
            asked = "import leaklab; leaklab.explore()"
            yield Suspect(Suspicion.DEVICE, one.device, unknown, what="unknown", command=asked)
        if unused > one.allocated and unused >= SMALL_BYTES:
            asked = f"import torch; torch.{kind}.empty_cache()"
            yield Suspect(Suspicion.DEVICE, one.device, unused, what="unused", command=asked)


def cell_growths(runs: Iterable[CellRuns], lines: Mapping[int, str]) -> tuple[CellGrowth, ...]:
    """Return what cells have added, the most first.

    Args:
        runs: What memory did over each execution.
        lines: The first line of the texts, by the numbers that the notebook gave them.
    """
    found = [
        CellGrowth(
            number=one.number,
            line=shorten(lines.get(one.number, ""), _LINE_LIMIT),
            n_runs=len(one.n_bytes),
            n_bytes=sum(one.n_bytes),
            n_blocks=sum(one.n_blocks),
            bytes_per_run=_pace(one.n_bytes, HABIT_FLOOR_BYTES),
            blocks_per_run=_pace(one.n_blocks, _BLOCKS_FLOOR),
        )
        for one in runs
    ]
    grown = [one for one in found if one.n_bytes >= SMALL_BYTES or one.blocks_per_run]
    return tuple(sorted(grown, key=lambda one: (-one.n_bytes, -one.n_blocks))[:_N_CELLS])


def _pace(amounts: Sequence[int], floor: float) -> float:
    """Return what each execution but the first adds; the first fills caches."""
    return steady_rate(amounts[1:], floor) if len(amounts) >= MIN_RUNS else 0.0


def cell_suspects(cells: Iterable[CellGrowth]) -> Iterator[Suspect]:
    """Yield the cells that add memory whenever they are executed."""
    for cell in cells:
        if cell.bytes_per_run or cell.blocks_per_run:
            later = cell.n_runs - 1
            yield Suspect(
                Suspicion.CELL,
                f"In[{cell.number}]",
                round(cell.bytes_per_run * later),
                later,
                cell.bytes_per_run or cell.blocks_per_run,
                what=cell.line,
                command=f"%leaks In[{cell.number}]",
            )


def ranked(suspects: Iterable[Suspect], tensor_bytes: int) -> tuple[Suspect, ...]:
    """Return *suspects*, the likeliest mistake first.

    What is kept for nothing comes first, the most bytes first, where that is more than a hundredth of all tensors and a
    tenth of what any cell adds; then cells that grow; then what piled up and is small; then the largest holders.
    """
    every = list(suspects)
    growing = max((one.n_bytes for one in every if one.kind is Suspicion.CELL), default=0)
    least = max(_LEAST_SHARE * tensor_bytes, _LEAST_OF_GROWTH * growing)

    def place(suspect: Suspect) -> tuple[int, int]:
        is_one = suspect.kind is Suspicion.GRAPHS and suspect.count == 1  # of the last step, most often
        if suspect.kind in _WASTE and suspect.n_bytes >= max(least, SMALL_BYTES) and not is_one:
            return 0, -suspect.n_bytes
        if suspect.kind is Suspicion.CELL:
            return 1, -suspect.n_bytes
        if (suspect.kind in _COUNTED and suspect.count >= _MANY) or suspect.kind is Suspicion.DEVICE:
            return 2, -suspect.n_bytes
        return 3, -suspect.n_bytes

    return tuple(sorted(every, key=place))


def _vertices(view: HeapView, addresses: Iterable[int]) -> Ints:
    found = view.index.vertices_of(np.array(sorted(addresses), np.int64))
    known: Ints = found[found >= 0]
    return known


def _by_owner(view: HeapView, vertices: Sequence[int]) -> list[tuple[str, list[int]]]:
    """Return *vertices*, objects that a root reaches, by the container that has them; a variable has itself."""
    places = {start.address for start in view.starts if start.is_place}
    groups: dict[int, list[int]] = {}
    for vertex in vertices:
        if view.is_reached(vertex):
            groups.setdefault(_owner(view, vertex, places), []).append(vertex)
    return [(_name(view, owner), group) for owner, group in groups.items()]


def _owner(view: HeapView, vertex: int, places: set[int]) -> int:
    owner = vertex
    while True:
        above = int(view.tree.parent[owner])
        if above < 0 or above == view.namespace or id(view.objects[above]) in places:
            return owner
        holder = int(view.tree.parent[above])
        is_container = is_exactly(view.objects[above], _PLAIN)
        if not is_container or (holder >= 0 and is_own_dict(view.objects[holder], view.objects[above])):
            return owner
        owner = above


def _name(view: HeapView, vertex: int) -> str:
    if not view.is_reached(vertex):
        return type_name(type(view.objects[vertex]))
    return view.describe(vertex).name


def _asking(magic: str, expression: str) -> str:
    """Return the magic that asks about *expression*; empty where that is words and no Python."""
    try:
        ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError):
        return ""
    return f"%{magic} {expression}" if expression else ""
