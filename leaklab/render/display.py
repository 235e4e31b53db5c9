"""Show a view in a notebook as HTML and in a terminal as text, whatever goes wrong while it is drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable


class Displayed(ABC):
    """What shows itself as the last line of a cell. Showing it never raises: an error must not hide what was found."""

    __slots__ = ()

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def _fragment(self) -> str:
        """Return it as HTML that survives the sanitizers of notebooks; empty where there is only text to show."""

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> dict[str, str]:
        """Return it as text for terminals and as HTML for notebooks; never raises."""
        del include, exclude  # IPython drops what it did not ask for
        bundle = {"text/plain": repr(self)}
        try:
            bundle["text/plain"] = str(self)
            markup = self._fragment()
        except Exception as error:  # noqa: BLE001 - of whatever type it is: what could be drawn is shown
            bundle["text/plain"] += f"\n(not all of it could be drawn: {_named(error)})"
            return bundle
        return {**bundle, "text/html": markup} if markup else bundle


def _named(error: Exception) -> str:
    """Return the type of *error* with its message, if it has one that can be read."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - of whatever type the error is
        message = ""
    return ": ".join(filter(None, (type(error).__name__, message)))
