"""Give a report its page and its record, as a text to work with or as a file."""

from __future__ import annotations

from abc import abstractmethod
from typing import overload

from leaklab.render.display import Displayed
from leaklab.render.files import FilePath, write_text


class Exports(Displayed):
    """A report with a page of its own and a record as JSON."""

    __slots__ = ()

    @abstractmethod
    def _html_file(self) -> str:
        """Return what a file with the page holds."""

    @abstractmethod
    def _json_file(self) -> str:
        """Return what a file with the record holds."""

    @overload
    def to_html(self) -> str: ...

    @overload
    def to_html(self, path: None) -> str: ...

    @overload
    def to_html(self, path: FilePath) -> None: ...

    def to_html(self, path: FilePath | None = None) -> str | None:
        """Return the report as a page of its own that needs no network; with *path* write it there and return None.

        The page of a `leaklab.LeakReport` carries its record within itself: `leaklab.load_report` reads it back.

        Raises:
            ReportError: if the file cannot be written.
        """
        return _returned_or_written(self._html_file(), path)

    @overload
    def to_json(self) -> str: ...

    @overload
    def to_json(self, path: None) -> str: ...

    @overload
    def to_json(self, path: FilePath) -> None: ...

    def to_json(self, path: FilePath | None = None) -> str | None:
        """Return the record, with every figure, as JSON; with *path* write it there and return None.

        Raises:
            ReportError: if the file cannot be written.
        """
        return _returned_or_written(self._json_file(), path)


def _returned_or_written(text: str, path: FilePath | None) -> str | None:
    """Return *text*, or write it: what a notebook's last line returns would flood the cell."""
    if path is None:
        return text
    write_text(path, text)
    return None
