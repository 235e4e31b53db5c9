"""Name the items of numpy arrays of objects, which the garbage collector does not report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from leaklab.explain.references.descriptors import has_plain_items
from leaklab.explain.references.record import Reference, by_attribute

if TYPE_CHECKING:
    from collections.abc import Iterator

_read_base = np.ndarray.base.__get__
_read_dtype = np.ndarray.dtype.__get__
_read_flat = np.ndarray.flat.__get__
_read_shape = np.ndarray.shape.__get__


def in_array(holder: Any, child: object) -> Iterator[Reference]:
    """Name items by their indices, and the object whose memory a view shows."""
    if _read_dtype(holder) == np.dtype(object):
        shape = _read_shape(holder)
        for number, item in enumerate(_read_flat(holder)):
            if item is child:
                yield _item_reference(np.unravel_index(number, shape), evaluable=has_plain_items(type(holder)))
    if _read_base(holder) is child:
        yield by_attribute("base", "hidden")


def _item_reference(indices: tuple[Any, ...], *, evaluable: bool) -> Reference:
    text = f"[{', '.join(str(int(index)) for index in indices) or '()'}]"
    return Reference(text, text if evaluable else None, f"[{', '.join('*' * len(indices))}]", "hidden")


NAMERS = {np.ndarray: in_array}
