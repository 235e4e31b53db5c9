"""Name those attributes, out of a list, through which a holder refers to a child."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaklab.explain.references.descriptors import MISSING, c_descriptor, is_evaluable, read_by
from leaklab.explain.references.record import Reference, by_attribute

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def among(holder: object, child: object, names: Iterable[str], kind: str = "attribute") -> Iterator[Reference]:
    """Name the attributes in *names* that C code answers with *child*; names that the type lacks are passed over."""
    for name in names:
        descriptor = c_descriptor(type(holder), name)
        if descriptor is not MISSING and read_by(descriptor, holder) is child:
            yield by_attribute(name, kind, evaluable=is_evaluable(type(holder), name, descriptor))
