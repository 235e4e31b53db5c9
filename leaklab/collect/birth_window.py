"""See every birth while some code runs: what is alive before it is frozen, so the collector lists only what is new."""

from __future__ import annotations

import gc

from leaklab.addresses import Addresses, addresses_of
from leaklab.collect.gcstate import collect_quietly, user_has_frozen


class BirthWindow:
    """Open it before the code and close it after, whatever happens in between.

    An address that dies and is used again inside the window is known to be new: no later comparison can tell that.
    Where the user has frozen objects of their own, or has switched the collector off, nothing is done at all. Garbage
    made of objects older than the window is collected only after it.

    Attributes:
        code_froze: After `close`, whether the code called ``gc.freeze()``: then everything alive is frozen still.
    """

    def __init__(self) -> None:
        self._is_open = False
        self.code_froze = False
        self._old: list[object] = []  # tracked and older than the window: visible only if the code thaws
        self._young: list[object] = []

    def open(self) -> None:
        """Freeze everything alive; the caller has just collected."""
        if gc.isenabled() and not user_has_frozen():
            gc.freeze()
            self._young = []
            self._is_open = True

    def close(self) -> Addresses | None:
        """Thaw, and return the addresses of what was born and lives; None if that is not known."""
        if not self._is_open:
            return None
        self._is_open = False
        try:
            collect_quietly()
            objects = gc.get_objects()
            addresses = addresses_of(objects)
            objects.clear()
            self.code_froze = not bool((addresses == id(self._young)).any())
            code_thawed = bool((addresses == id(self._old)).any())
        finally:
            # Objects that the code itself has frozen stay frozen: ours are among them, and it asked for that.
            if not self.code_froze:
                gc.unfreeze()
        return None if self.code_froze or code_thawed else addresses[addresses != id(self._young)]
