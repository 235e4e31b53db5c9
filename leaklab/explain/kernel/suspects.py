"""Say what in a notebook's kernel takes memory, or piles up: by what each lets go of.

Results that the notebook remembers, the last error, open figures, hooks registered again and again, kept graphs: of
each is computed what comes back if it goes, as `whyalive` does for one object, once the notebook has let go of its own.
What one of them frees is not counted with the next. The rest is listed by holder, as in the report of a process without
memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from leaklab.explain.alive.retained import freed_with, retained_sizes
from leaklab.explain.heaps.largest_tensors import buffers_by_size, held_by, storages_by_path
from leaklab.explain.kernel.claims import MANY, SMALL_BYTES, Claims, asking, by_owner, vertices_at
from leaklab.explain.kernel.registered import callbacks, hooks
from leaklab.heap.reachability import references_of, references_to
from leaklab.heap.shortest_paths import ROOT
from leaklab.heap.view import HeapView
from leaklab.measure.snapshot_sizes import TensorTable
from leaklab.model.kernel import DeviceLevels, KernelRecord, Suspect, Suspicion
from leaklab.model.process import HeldTensors
from leaklab.runtime.autograd_graph import is_node_type
from leaklab.runtime.objects import has_base, loaded_type, loaded_variables, type_name

_LET_GO = "%leaks --let-go"
_CLOSE_FIGURES = 'import matplotlib.pyplot as plt; plt.close("all")'
_EXPLORE = "import leaklab; leaklab.explore()"
_N_GROUPS, _N_HOLDERS, _N_VARIABLES = 20, 10, 5
_HOLDERS_PER_PROCESS = 1000
_UNKNOWN_SHARE = 0.1  # of what is allocated: less is what an allocator rounds up to
_LOCAL = re.compile(r"local '(.+)' of (.+)")


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


def heap_suspects(
    view: HeapView, keeps: NotebookKeeps, levels: Mapping[str, tuple[int, int]], rss: int
) -> KernelRecord:
    """Return what of a kernel's heap is suspect, in no order yet, and how much there is.

    Args:
        view: The heap.
        keeps: What the notebook itself keeps.
        levels: Bytes allocated and reserved on each accelerator that is used.
        rss: Resident set of the process; who holds less than a thousandth of it is not listed.
    """
    claims = Claims(view)
    storages = storages_by_path(view)
    suspects = [
        *_errors(claims, keeps),
        *_outputs(claims, keeps),
        *_figures(claims),
        *hooks(claims),
        *callbacks(claims),
        *_graphs(claims),
    ]
    buffers, _is_complete = buffers_by_size(view)
    rest = [one for one in (*storages, *buffers) if not claims.has(one.place, one.below)]
    suspects += _holders(claims, held_by(view, rest, _N_HOLDERS), max(SMALL_BYTES, rss // _HOLDERS_PER_PROCESS))
    devices = _devices(view, levels)
    return KernelRecord(
        tuple(suspects) + tuple(_device_suspects(devices)),
        devices=devices,
        rss=rss,
        n_objects=view.n_heap,
        n_tensors=len(view.tensors),
        tensor_bytes=sum(storage.n_bytes for storage in storages),
        notes=tuple(view.notes),
    )


def _errors(claims: Claims, keeps: NotebookKeeps) -> Iterator[Suspect]:
    view, vertices = claims.view, vertices_at(claims.view, keeps.errors)
    holders, held = references_to(view.index, vertices)
    cuts = [*zip(holders.tolist(), held.tolist(), strict=True), *((ROOT, vertex) for vertex in vertices.tolist())]
    freed = claims.take(cuts, of_notebook=True)
    kinds = [type(view.objects[vertex]) for vertex in vertices.tolist()]
    kind = next((type_name(of) for of in kinds if has_base(of, BaseException)), "")
    if freed.n_bytes >= SMALL_BYTES:
        what = claims.what(freed)
        if what and (local := _local(view, freed.largest)):
            what = f"{local}, {what}"
        yield Suspect(Suspicion.EXCEPTION, kind, freed.n_bytes, what=what, command=_LET_GO)


def _local(view: HeapView, vertex: int) -> str:
    """Return of which function the object is a variable, ``batch in train``; empty if it is none."""
    names = (_LOCAL.fullmatch(step.reference) for step in reversed(view.describe(vertex).path.steps))
    return next((f"`{name[1]}` in {name[2]}" for name in names if name is not None), "")


def _outputs(claims: Claims, keeps: NotebookKeeps) -> Iterator[Suspect]:
    view, values = claims.view, claims.is_free(vertices_at(claims.view, keeps.outputs))
    holders, held = references_to(view.index, values)
    is_home = np.isin(view.index.ids[holders], np.array(sorted(keeps.output_homes), np.int64))
    freed = claims.take(zip(holders[is_home].tolist(), held[is_home].tolist(), strict=True), of_notebook=True)
    if freed.n_bytes >= SMALL_BYTES:
        n_results = len(values) - len(claims.is_free(values))
        yield Suspect(Suspicion.OUTPUTS, "Out", freed.n_bytes, n_results, what=claims.what(freed), command=_LET_GO)


def _figures(claims: Claims) -> Iterator[Suspect]:
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
        if freed.n_bytes >= SMALL_BYTES or len(held) >= MANY:
            command = f"{_CLOSE_FIGURES}\n{_LET_GO}" if freed.needs_notebook else _CLOSE_FIGURES
            yield Suspect(Suspicion.FIGURES, "pyplot", freed.n_bytes, len(held), command=command)
    for where, group in by_owner(view, claims.is_free(figures).tolist()):
        holders, held = references_to(view.index, np.array(group, np.int64))
        freed = claims.take(zip(holders.tolist(), held.tolist(), strict=True))
        if len(group) > 1:
            asked = asking("whyalive", where)
            yield Suspect(Suspicion.FIGURES, where, freed.n_bytes, len(group), command=asked)


def _graphs(claims: Claims) -> Iterator[Suspect]:
    """Yield who keeps tensors together with the graphs behind them."""
    view = claims.view
    tensors = claims.is_free(np.flatnonzero(view.is_tensor & ~view.in_graph))
    is_node = view.types.mask(is_node_type)  # a gradient is no part of a graph
    holders, held = references_of(view.index, tensors)
    with_graph = np.unique(holders[is_node[held]])
    groups = sorted(by_owner(view, with_graph.tolist()), key=lambda group: -len(group[1]))
    for where, group in groups[:_N_GROUPS]:
        holders, held = references_of(view.index, np.array(group, np.int64))
        inside = is_node[held]
        freed = claims.take(zip(holders[inside].tolist(), held[inside].tolist(), strict=True))
        if freed.n_bytes >= SMALL_BYTES:
            what, command = claims.what(freed), asking("autograd", where)
            yield Suspect(Suspicion.GRAPHS, where, freed.n_bytes, len(group), what=what, command=command)


def _holders(claims: Claims, held: Sequence[HeldTensors], least: int) -> Iterator[Suspect]:
    """Yield who holds the largest tensors and arrays, and the variables that keep as much of other objects."""
    view, known, groups = claims.view, Counter[str](), dict[tuple[str, str], list[HeldTensors]]()
    for one in held:
        variable = _variable_of(one)
        known[variable] += one.n_bytes
        is_python = asking("whyalive", one.holder) != ""
        groups.setdefault((one.holder if is_python or not variable else variable, one.unit), []).append(one)
    for (where, unit), group in groups.items():
        n_bytes, count = sum(one.n_bytes for one in group), sum(one.n_tensors for one in group)
        if n_bytes >= least:
            command = asking("whyalive", where) or _EXPLORE
            yield Suspect(Suspicion.HOLDER, where, n_bytes, count, what=group[0].what, command=command, unit=unit)
    sizes = retained_sizes(view)
    variables = {
        view.index.vertex_of(start.address): start.expression
        for start in reversed(view.starts)
        if start.is_variable and not start.is_history and not start.is_shells
    }
    found = [(name, vertex) for vertex, name in variables.items() if vertex >= 0 and not claims.has(vertex)]
    for name, vertex in sorted(found, key=lambda one: -int(sizes[one[1]]))[:_N_VARIABLES]:
        n_bytes = claims.bytes_of(claims.is_free(freed_with(view, [vertex])))
        if n_bytes >= least and n_bytes > 2 * known[name]:
            kind = type_name(type(view.objects[vertex]))
            yield Suspect(Suspicion.HOLDER, name, n_bytes, what=kind, command=asking("whyalive", name))


def _variable_of(held: HeldTensors) -> str:
    """Return the variable of the notebook at which the path begins; empty where it begins elsewhere."""
    is_variables = held.path is not None and held.path.root == "notebook variable" and held.path.steps
    return held.path.steps[0].reference if held.path is not None and is_variables else ""


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
        if unknown >= max(SMALL_BYTES, one.allocated * _UNKNOWN_SHARE):
            asked = _EXPLORE
            yield Suspect(Suspicion.DEVICE, one.device, unknown, what="unknown", command=asked)
        if unused > one.allocated and unused >= SMALL_BYTES:
            asked = f"import torch; torch.{kind}.empty_cache()"
            yield Suspect(Suspicion.DEVICE, one.device, unused, what="unused", command=asked)
