"""What a check has found: single places that grow, the lines of code behind them, and everything together."""

from __future__ import annotations

import re
import sys
import types
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from leaklab.check.judging import Judgement
from leaklab.decide.growth import Growth
from leaklab.decide.verdict import MOST_OF_CACHES
from leaklab.explain.leaks.groups import Group, LeakAddress
from leaklab.explain.leaks.holders import RetainedBytes
from leaklab.explain.leaks.limits import filled_once
from leaklab.explain.leaks.sizes import GroupSizer
from leaklab.heap.names import best_reference
from leaklab.heap.view import HeapView
from leaklab.lines.branches import Names
from leaklab.lines.open_branches import CodeReading, OpenBranches
from leaklab.measure.measurement import Measurement
from leaklab.model import ContainerGrowth, Leak, ObjectGrowth, Outcome, StatementGrowth, TensorGrowth
from leaklab.model.check import MemoryShare
from leaklab.model.stacks import StackFrame
from leaklab.runtime.addresses import Ints
from leaklab.runtime.containers import items_in, newest_items, newest_pairs
from leaklab.runtime.objects import class_attribute, has_base, is_tensor, loaded_type
from leaklab.runtime.referents import is_own_dict

_ENOUGH_RUNS = f"more runs (-n {MOST_OF_CACHES + 1})"


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """Something that grows; lives as long as the view of the heap that it was found in.

    Attributes:
        leak: What a leak of it would say.
        growth: The judgement on it; CLEAN for what is left out.
        address: The place; None for what no root reaches.
        group: The survivors that it is made of; None for what grows in place and for what is made anew.
        share: So much of *group* every run leaves, as a part of its main objects.
        row: Its row in the table of containers, if it has one.
        aside: Why it is left out, in words: the little that a library notes in a table of its own; else empty.
        limited_bytes: Bytes per run that go into a holder that limits itself.
        is_filling: Whether such a holder is not full yet.
        is_opaque: Whether what grows may have native memory of unknown size.
        freed: What no root reaches any more once all holders let go; None where that was not asked.
        is_log: Whether it gains a few numbers in their order, and no more.
        code: What the code that fills it says, where that was watched.
    """

    leak: Leak
    growth: Growth
    address: LeakAddress | None = None
    group: Group | None = None
    share: float = 0.0
    row: ContainerGrowth | None = None
    aside: str = ""
    limited_bytes: float = 0.0
    is_filling: bool = False
    is_opaque: bool = False
    freed: Ints | None = None
    is_log: bool = False
    code: CodeReading = field(default_factory=CodeReading)

    @property
    def is_leak(self) -> bool:
        """Whether it grows without end."""
        return self.growth.outcome is Outcome.LEAK

    def judged_by_code(self, survey: Survey, container: int, unlisted: object = None) -> Finding:
        """Return it as not decided, if it counts as a leak and the code that fills *container* may still end that.

        Otherwise it is noted what that code says.

        Args:
            survey: All that is known.
            container: A vertex.
            unlisted: What fills, where the collector does not list it: then *container* refers to it.
        """
        if not self.is_leak:
            return self
        if why := survey.may_end(container, unlisted):
            return self.undecided(why)
        return replace(self, code=survey.reading(container, unlisted))

    def unless_emptied(self, n_runs: int) -> Finding:
        """Return it as not decided where it gained less than before, and code that drops entries was seen to run.

        A window that has just become full looks the same; after so many runs that none of the usual size would be, it
        is as it was.
        """
        if not (self.is_leak and self.code.is_emptied and n_runs <= MOST_OF_CACHES):
            return self
        return self.undecided(
            "but less in the last runs, since entries are dropped; more runs (-n) would show whether it ends"
        )

    def undecided(self, why: str) -> Finding:
        """Return it as not decided; *why* follows the reason for which it counted as a leak."""
        growth = Growth(Outcome.INCONCLUSIVE, self.growth.rate, f"{self.growth.reason}, {why}")
        return replace(self, growth=growth, leak=replace(self.leak, reason=growth.reason))

    @property
    def members(self) -> Sequence[int]:
        """Its survivors; none for what grows in place."""
        return () if self.group is None else self.group.members

    def newest(self, view: HeapView) -> list[object]:
        """Return the survivors of the last run that left any."""
        return [] if self.group is None else [view.objects[vertex] for vertex in self.group.newest(view)]


@dataclass(frozen=True, slots=True)
class Survey:
    """What every step of the explanation looks at, and what it counts and sizes with."""

    view: HeapView
    measurement: Measurement
    judgement: Judgement
    sizer: GroupSizer
    retained: RetainedBytes
    branches: OpenBranches | None = None
    in_loop: bool = False
    long_graphs: frozenset[str] = frozenset()

    @property
    def n_runs(self) -> int:
        """So many runs were measured."""
        return self.measurement.n_runs

    def may_end(self, container: int, unlisted: object = None) -> str:
        """Return why the growth of the vertex *container* may end though the counts show a leak; empty if nothing does.

        Few runs cannot tell a leak from what still fills. The code can, where it was watched. *unlisted* is as for
        `Finding.judged_by_code`.
        """
        above = int(self.view.tree.parent[container])
        if above >= 0 and self.n_runs <= MOST_OF_CACHES and (why := filled_once(self.view.objects[above])):
            return f"but it may end: {why}; {_ENOUGH_RUNS} would show whether it does"
        reading = self.reading(container, unlisted)
        found = reading.branch or reading.limit
        if found is None or (self.n_runs > MOST_OF_CACHES and not found.drops):
            return ""
        enough = "more runs (-n)" if found.drops else _ENOUGH_RUNS
        return f"but it may end: {found.words}; {enough} would show whether it does"

    def owner(self, finding: Finding) -> str:
        """Return the file of the nearest type or module that owns what grows: the code that fills it may stand there.

        Empty where that is no library's, or IPython's: the limits of what a notebook keeps are so far away that they
        help nobody.
        """
        for address in () if finding.address is None else reversed(finding.address.chain):
            vertex = self.view.index.vertex_of(address)
            thing = self.view.objects[vertex] if vertex >= 0 else None
            module = thing if type(thing) is types.ModuleType else sys.modules.get(type(thing).__module__)
            name, file = getattr(module, "__name__", ""), getattr(module, "__file__", None)
            if type(file) is str and not is_tensor(thing) and name != "collections":
                return "" if str(name).startswith(("IPython.", "traitlets.")) else file
        return ""

    def reading(self, container: int, unlisted: object = None) -> CodeReading:
        """Return what the code says about the growth of the vertex *container*, where the code was watched.

        *unlisted* is as for `Finding.judged_by_code`. Of a loop that goes on, the code is watched when the heap is not
        at hand any more: then it says nothing yet, but how it knows the container.
        """
        if container < 0 or (self.branches is None and not self.in_loop):
            return CodeReading()
        names = names_in_code(self.view, container, unlisted)
        return CodeReading(names=names) if self.branches is None else self.branches.of(names)


Places = tuple[tuple[str, int], ...]
"""Lines as code objects have them: file name and number."""


@dataclass(frozen=True, slots=True)
class FoundLines:
    """The lines of code behind leaks, by the fingerprint of each.

    Attributes:
        sites: Its lines in words, the one that keeps first.
        keeping: The lines that keep.
        making: The lines that make.
        stacks: The calls that allocated what stays, and how many bytes the traced runs saw of it, largest first.
    """

    sites: dict[str, tuple[str, ...]] = field(default_factory=dict)
    keeping: dict[str, Places] = field(default_factory=dict)
    making: dict[str, Places] = field(default_factory=dict)
    stacks: dict[str, tuple[tuple[tuple[StackFrame, ...], int], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explained:
    """Everything that grows, with what the heap and the further runs tell of it.

    Attributes:
        leaks: What grows without end, the largest first.
        bounded: What grew and stopped.
        objects: Rows of types.
        tensors: Rows of tensors.
        containers: Rows of containers.
        notes: What the reader should know of what was counted.
        open_questions: What could not be decided, one clause each.
        suspects: What that is about.
        n_aside: Places that grow too little, or are not the user's.
        logs: What gains a few numbers in every run.
        kept: Objects that each run left, likewise tensors and their bytes.
        addresses: The places of everything that grows.
        native_bytes: What malloc hands out per run for the leaks that Python explains.
        shares: How much of what memory grows by is explained.
        charged: Kinds of memory whose rest was taken for that of a leak.
        noted: What the notes name.
        of_older_code: Fingerprints of leaks in objects whose class was defined anew since they were made.
        small: Leaks of fewer bytes than the settings ask for.
        lines: What each search for lines has found.
        statements: What each statement of a cell leaves behind.
        later_notes: What the reader should know of the runs after those that were counted.
        is_endless: Whether of all leaks the code was watched, and nothing in it could end them.
        is_emptied: Whether of one of the leaks code that drops entries was seen to run.
        is_new: Whether each entry of the leaks is one more, under no key that may come again.
        owners: Files of the types and modules that keep leaks which no code that was watched was seen to fill.
        names: In a loop that goes on, how the code knows the containers of the leaks, by the fingerprint of each.
    """

    leaks: tuple[Leak, ...] = ()
    bounded: tuple[Leak, ...] = ()
    objects: tuple[ObjectGrowth, ...] = ()
    tensors: tuple[TensorGrowth, ...] = ()
    containers: tuple[ContainerGrowth, ...] = ()
    notes: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    suspects: tuple[Leak, ...] = ()
    n_aside: int = 0
    logs: tuple[Leak, ...] = ()
    kept: tuple[int, ...] = ()
    tensors_kept: tuple[int, ...] = ()
    tensor_bytes_kept: tuple[int, ...] = ()
    addresses: tuple[LeakAddress, ...] = ()
    native_bytes: float = 0.0
    shares: tuple[MemoryShare, ...] = ()
    charged: frozenset[str] = frozenset()
    noted: tuple[Leak, ...] = ()
    of_older_code: frozenset[str] = frozenset()
    small: tuple[Leak, ...] = ()
    lines: tuple[FoundLines, ...] = ()
    statements: tuple[StatementGrowth, ...] = ()
    later_notes: tuple[str, ...] = ()
    is_endless: bool = False
    is_emptied: bool = False
    is_new: bool = True
    owners: frozenset[str] = frozenset()
    names: dict[str, Names] = field(default_factory=dict)

    def lies_in(self, containers: Collection[int]) -> bool:
        """Return whether everything that leaks was put into one of *containers*, by their addresses."""
        ends = ((one.fingerprint, one.chain[-1:] if one.grows else one.chain[-2:-1]) for one in self.addresses)
        followed = {fingerprint for fingerprint, end in ends if end and end[0] in containers}
        return followed >= {leak.fingerprint for leak in self.leaks}


_N_KEYS = 4
"""So many of the newest keys are looked at."""
_DEPTH = 3
"""A container in a container in a container is known by the name of the outermost."""
_MOST_REFERRERS = 100
_NAME = re.compile(r"(?:\.|\[')([^\W\d]\w*)(?:'\])?$")


def names_in_code(view: HeapView, vertex: int, unlisted: object = None) -> Names:
    """Return the names under which code can change the container *vertex*, or *unlisted*, which it refers to."""
    attributes: set[str] = set()
    variables: set[str] = set()
    free: dict[types.CodeType, set[str]] = defaultdict(set)
    owners: set[int] = set()
    is_listed = unlisted is None
    container = view.objects[vertex] if is_listed else unlisted
    waiting, depth = [(container, _referrers(view, vertex) if is_listed else [vertex])], 0
    while waiting and depth < _DEPTH:
        above: list[tuple[object, list[int]]] = []
        for held, outers in waiting:
            for outer in outers:
                holder = view.objects[outer]
                if type(holder) is types.CellType:
                    for code, name in _closures(view, outer):
                        free[code].add(name)
                    continue
                owners.add(id(holder))
                is_namespace = type(holder) is dict
                if type(holder) is dict:  # maybe that of an object
                    owners.update(view.index.ids[view.index.referrers(outer)].tolist())
                    is_namespace = not any(is_own_dict(view.objects[one], holder) for one in _referrers(view, outer))
                reference = best_reference(holder, held).text
                named = _NAME.search(reference)
                if named is not None:
                    attributes.add(named[1])
                    if is_namespace:
                        variables.add(named[1])
                is_plain = any(has_base(type(holder), kind) for kind in (list, tuple, dict))
                if is_plain and not reference.startswith("."):
                    above.append((holder, _referrers(view, outer)))
        waiting, depth = above, depth + 1
    return Names(
        frozenset(attributes),
        frozenset(variables),
        {code: frozenset(one) for code, one in free.items()},
        id(container),
        frozenset(owners),
        _has_identity_keys(container),
    )


def _referrers(view: HeapView, vertex: int) -> list[int]:
    referrers: list[int] = view.index.referrers(vertex)[:_MOST_REFERRERS].tolist()
    return referrers


def _has_identity_keys(container: object) -> bool:
    """Return whether the newest keys, or entries of a list, are objects that equal only themselves."""
    if has_base(type(container), dict):
        keys = [key for key, _value in newest_pairs(container, _N_KEYS)]
    elif has_base(type(container), set) or has_base(type(container), list):
        keys = newest_items(container, _N_KEYS)
    else:
        return False
    tensor = loaded_type("torch", "Tensor")
    return bool(keys) and all(
        all(class_attribute(type(key), name) is getattr(object, name) for name in ("__hash__", "__eq__"))
        or (tensor is not None and has_base(type(key), tensor))
        for key in keys
    )


def _closures(view: HeapView, cell: int) -> list[tuple[types.CodeType, str]]:
    """Return the code objects that have the variable in *cell*, with its name there."""
    found = []
    for closure in view.index.referrers(cell).tolist():
        cells = view.objects[closure]
        if type(cells) is not tuple:
            continue
        place = next((n for n, one in enumerate(items_in(cells)) if one is view.objects[cell]), None)
        for function in view.index.referrers(closure).tolist():
            of = view.objects[function]
            if type(of) is types.FunctionType and place is not None and place < len(of.__code__.co_freevars):
                found.append((of.__code__, of.__code__.co_freevars[place]))
    return found
