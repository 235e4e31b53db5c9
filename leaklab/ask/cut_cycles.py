"""Cut the immortal cycles of the present heap on request, and say what that gave back."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from leaklab.errors import LeaklabError
from leaklab.explain.cycles.cuts import openings
from leaklab.explain.cycles.cycles import Immortal, immortal_cycles
from leaklab.heap.borrow import borrow_heap
from leaklab.heap.view import NO_BIRTHS, HeapView
from leaklab.model.paths import CutResult
from leaklab.runtime.addresses import Addresses, addresses_of, kinds_of
from leaklab.runtime.gc_control import collect_quietly, user_has_frozen
from leaklab.runtime.sizes import storages_of
from leaklab.text import format_bytes, unit_words

_MAX_ROUNDS = 3
"""An object that a dict holds under two keys is let go in the second round."""


def cut_cycles(fingerprint: str | None = None) -> CutResult:
    """Remove one reference of every immortal cycle, so that the collector can free it, and collect.

    The cycles are looked for again in the present heap. Only those are cut that are proved: that no variable, module,
    running function or other holder reaches, and whose every reference was read. A reference that is removed belongs
    to an object in the cycle: a hook, a gradient, an attribute or an entry. Nothing outside is changed; finalizers and
    weak reference callbacks of what is freed run as they always do.

    Args:
        fingerprint: Of the leak whose cycles are meant, ``report.leaks[0].fingerprint``; by default all.

    Returns:
        How much came back.

    Raises:
        TypeError: if *fingerprint* is no text.
        LeaklabError: if no such cycle exists, if none can be cut safely, or if the heap cannot be seen as a whole.
    """
    _refuse_wrong_type(fingerprint)
    if user_has_frozen():
        msg = (
            f"{gc.get_freeze_count():,} objects are frozen, so what they hold looks like garbage: call gc.unfreeze() "
            "first"
        )
        raise LeaklabError(msg)
    total = _CutGain()
    for number in range(_MAX_ROUNDS):
        gained = _cut_once(fingerprint)
        if number == 0 and not gained.n_references:
            raise LeaklabError(_refusal(fingerprint, gained))
        total.add(gained)
        if not (gained.n_alive and gained.n_references):
            break
    return total.result()


def _refuse_wrong_type(fingerprint: object) -> None:
    if fingerprint is not None and type(fingerprint) is not str:
        msg = f"cut_cycles needs the fingerprint of a leak, a str, not {type(fingerprint).__name__}"
        raise TypeError(msg)


@dataclass(slots=True)
class _CutGain:
    """What rounds of cutting gave back: fields as in `CutResult`, and how many objects should have gone but live."""

    n_cycles: int = 0
    n_references: int = 0
    n_objects: int = 0
    n_bytes: int = 0
    n_left: int = 0
    n_outside_gone: int = 0
    n_alive: int = 0
    notes: tuple[str, ...] = ()

    def add(self, other: _CutGain) -> None:
        """Add a later round: what it left uncut is all that is left."""
        self.n_cycles = max(self.n_cycles, other.n_cycles)
        self.n_references += other.n_references
        self.n_objects += other.n_objects
        self.n_bytes += other.n_bytes
        self.n_left = other.n_left
        self.n_outside_gone += other.n_outside_gone

    def result(self) -> CutResult:
        """Return the record, with its sentence."""
        cycles = "1 immortal cycle" if self.n_cycles == 1 else f"{self.n_cycles:,} immortal cycles"
        references = "1 reference" if self.n_references == 1 else f"{self.n_references:,} references"
        words = (
            f"cut {cycles} open by removing {references}: {unit_words(self.n_objects, 'objects')} and "
            f"{format_bytes(self.n_bytes)} of tensors came back"
        )
        if self.n_outside_gone:
            outside = unit_words(self.n_outside_gone, "objects")
            words += f", and with them {outside} outside the cycles that only they kept alive"
        else:
            words += ", and nothing outside was touched"
        if self.n_left:
            words += (
                f"; {self.n_left:,} more {'has' if self.n_left == 1 else 'have'} no reference that is safe to remove"
            )
        return CutResult(
            self.n_cycles, self.n_references, self.n_objects, self.n_bytes, self.n_left, not self.n_outside_gone, words
        )


def _refusal(fingerprint: str | None, found: _CutGain) -> str:
    if found.notes:
        return (
            "nothing was cut, because a part of the heap could not be read, and so no cycle is proven: "
            f"{found.notes[0]}"
        )
    which = "immortal cycle" if fingerprint is None else f"immortal cycle with the fingerprint {fingerprint!r}"
    if found.n_left:
        return (
            f"nothing was cut: the {which} has no hook, gradient, attribute or entry that could be removed; "
            "see the cut that the report proposes"
        )
    return f"there is no {which} in the heap: nothing was cut"


@dataclass(frozen=True, slots=True)
class _Witness:
    """Addresses and types of what should go, and of what should stay, noted before the cut.

    Attributes:
        inside: Address and type of what hangs on the cycles and nothing else, shape ``(n, 2)``.
        outside: The same of what they refer to outside.
        storages: For each tensor inside, by address, the bytes of its storages that no tensor outside shares.
    """

    inside: Addresses
    outside: Addresses
    storages: dict[int, dict[int, int]]


def _cut_once(fingerprint: str | None) -> _CutGain:
    """Find the cycles, cut them, collect, and count what has gone."""
    collect_quietly()
    gain = _CutGain()
    with borrow_heap(NO_BIRTHS, None) as view:
        witness = _open(view, fingerprint, gain)
    del view
    collect_quietly()
    _count(witness, gain)
    return gain


def _open(view: HeapView, fingerprint: str | None, gain: _CutGain) -> _Witness:
    """Cut the cycles in *view*; return what to look for afterwards."""
    gain.notes = view.notes
    cycles = [] if view.notes else list(immortal_cycles(view))
    wanted = [one for one in cycles if fingerprint is None or one.orphans.fingerprint == fingerprint]
    witness = _witness(view, wanted)
    cuts: list[Callable[[], None]] = []
    for one in wanted:
        offers, is_open = openings(view, one.references.region, one.component, one.references.crossing)
        gain.n_left += not is_open
        gain.n_cycles += bool(offers)
        cuts += [offer.perform for offer in offers if offer.perform is not None]
    for perform in cuts:
        try:
            perform()
        except (KeyError, IndexError, AttributeError, TypeError, RuntimeError):
            continue  # another thread was faster, or C code refuses
        gain.n_references += 1
    return witness


def _witness(view: HeapView, wanted: list[Immortal]) -> _Witness:
    """Note what hangs on the cycles, and what they refer to outside."""
    inside = np.zeros(view.index.n_vertices, bool)
    if wanted:
        region = wanted[0].references.region
        chosen = np.zeros(len(region.vertices), bool)
        for one in wanted:
            chosen[region.places_of(region.members_of(one.component))] = True
        inside[region.vertices[region.below(chosen)]] = True
    kinds = view.kinds
    pairs = np.stack([view.index.ids, kinds], axis=1)
    listed = np.arange(view.index.n_vertices) < view.n_heap
    sources = np.repeat(inside, np.diff(view.index.forward_offsets))
    held = np.zeros(view.index.n_vertices, bool)
    held[view.index.forward_targets[sources]] = True
    return _Witness(pairs[inside & listed], pairs[held & ~inside & listed], _storages(view, inside))


def _storages(view: HeapView, inside: npt.NDArray[np.bool_]) -> dict[int, dict[int, int]]:
    """Return for the tensors inside the storages that no tensor outside shares, by the tensor's address."""
    mine = [vertex for vertex in view.tensors if inside[vertex]]
    shared = {key for v in view.tensors if mine and not inside[v] for key, _ in storages_of(view.objects[v]) or ()}
    return {
        int(view.index.ids[vertex]): {
            key: size for key, size in storages_of(view.objects[vertex]) or () if key not in shared
        }
        for vertex in mine
    }


def _count(witness: _Witness, gain: _CutGain) -> None:
    """Count what of the noted objects has gone."""
    objects: list[object] = gc.get_objects()
    alive = set(zip(addresses_of(objects).tolist(), kinds_of(objects).tolist(), strict=True))
    objects.clear()
    gone = [address for address, kind in witness.inside.tolist() if (address, kind) not in alive]
    gain.n_objects = len(gone)
    gain.n_alive = len(witness.inside) - len(gone)
    left = {address for address, kind in witness.inside.tolist() if (address, kind) in alive}
    sizes: dict[int, int] = {}
    for address, storages in witness.storages.items():
        if address not in left:
            sizes.update(storages)
    for address in left:
        for key in witness.storages.get(address, ()):
            sizes.pop(key, None)
    gain.n_bytes = sum(sizes.values())
    gain.n_outside_gone = sum((address, kind) not in alive for address, kind in witness.outside.tolist())
