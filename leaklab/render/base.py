"""What every report is made of: shown in a cell or on a terminal, saved by the suffix of a file, read back.

A report is a record and a row of a table, its `Forms`; `Report` does the rest. Graphs, which are no records, share
`Displayed`, what shows itself, and `save_by_suffix`. On a terminal a text is as wide as that, and coloured where
colour is wanted.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast, overload

from markupsafe import Markup

from leaklab.errors import ReportError
from leaklab.files import FilePath, write_bytes
from leaklab.render.document import Document
from leaklab.render.json import BYTE_ORDER_MARK, embedded, one_line, record_from_json, record_within
from leaklab.render.templates import page
from leaklab.render.writers import html_of, text_of
from leaklab.text import WIDTH, fenced, in_columns, printable

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Self


_RESET = "\x1b[0m"
_STYLES = {"LEAK": "\x1b[1;31m", "CLEAN": "\x1b[1;32m", "BOUNDED": "\x1b[1;34m", "INCONCLUSIVE": "\x1b[1;33m"}
_RED, _GREEN, _BOLD = "\x1b[31m", "\x1b[32m", "\x1b[1m"
_OUTCOME = re.compile(rf"^(?:{'|'.join(_STYLES)})(?=  )", re.MULTILINE)
_CHANGED = re.compile(r"^( {16})([-+]) (.*)$", re.MULTILINE)  # below the label of a change
_HERE = re.compile(r"<== here.*$", re.MULTILINE)
_EXPRESSION = re.compile(r"`[^`\n]+`")


def terminal_columns() -> int:
    """Return the width of the terminal that standard output is; of anything else that of files."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if _is_terminal() else WIDTH


def on_terminal(text: str) -> str:
    """Return *text*, of which every character prints, with colour where standard output is a terminal that shows it.

    ``NO_COLOR`` and a terminal that says it is dumb are respected.
    """
    is_wanted = _is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return coloured(text) if is_wanted else text


def in_alarm(text: str, *, in_notebook: bool) -> str:
    """Return *text* in the colour of a leak, where standard output is a terminal that shows it, or a notebook."""
    is_wanted = in_notebook or (_is_terminal() and os.environ.get("TERM") != "dumb")
    return f"{_STYLES['LEAK']}{text}{_RESET}" if is_wanted and not os.environ.get("NO_COLOR") else text


def coloured(text: str) -> str:
    """Return *text* with outcomes, changed lines, expressions and the suspect reference in colour."""
    text = _EXPRESSION.sub(lambda found: f"{_BOLD}{found[0]}{_RESET}", text)
    text = _OUTCOME.sub(lambda found: f"{_STYLES[found[0]]}{found[0]}{_RESET}", text)
    text = _CHANGED.sub(_changed_line, text)
    return _HERE.sub(lambda found: f"{_RED}{found[0]}{_RESET}", text)


def _changed_line(found: re.Match[str]) -> str:
    colour = _GREEN if found[2] == "+" else _RED
    return f"{found[1]}{colour}{found[2]} {found[3]}{_RESET}"


def _is_terminal() -> bool:
    try:
        return sys.stdout.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


Record = TypeVar("Record")
_HTML, _JSON, _TEXT, _MARKDOWN = ".html", ".json", ".txt", ".md"


class Displayed(ABC):
    """What shows itself as the last line of a cell. Showing it never raises: an error must not hide what was found."""

    __slots__ = ()

    @abstractmethod
    def _text(self) -> str:
        """Return it as text."""

    def __str__(self) -> str:
        """Return it as text that no terminal takes for commands: what does not print is an escape.

        It is as wide as the terminal that it may be printed on, else 100 columns.
        """
        return self._lines(terminal_columns())

    def _lines(self, n_columns: int = WIDTH) -> str:
        with in_columns(n_columns):
            return printable(self._text())

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
            bundle["text/plain"] = on_terminal(str(self))
            markup = self._fragment()
        except Exception as error:  # noqa: BLE001 - of whatever type it is: what could be drawn is shown
            bundle["text/plain"] += printable(f"\n(not all of it could be drawn: {_named(error)})")
            return bundle
        return {**bundle, "text/html": markup} if markup else bundle

    def _repr_html_(self) -> str | None:
        """Return the HTML alone, for front ends that ask for nothing else; None where there is only text."""
        return self._repr_mimebundle_().get("text/html")


def _named(error: Exception) -> str:
    """Return the type of *error* with its message, if it has one that can be read."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - of whatever type the error is
        message = ""
    return ": ".join(filter(None, (type(error).__name__, message)))


@dataclass(frozen=True)
class Forms(Generic[Record]):
    """How reports of one class are written and read: their row in the table of all reports.

    Attributes:
        kind: Type of the record.
        format: What a JSON file says it is, in its first field.
        schema: Of the record; files of another one are refused.
        document: Describes the record once, for text and for HTML.
        text: Writes the record as plain text, where there is no *document*.
        html: Writes it as HTML that survives the sanitizers of notebooks, where there is no *document*; empty where
            the text is all there is.
        title: Of its page; *document* is then asked for all that a page shows, by ``is_page=True``.
        page: Writes it as a page of its own; without *title* and *page* that is the HTML below what the report is.
        more: Writers for further suffixes, and for ``.md`` where it is more than the text.
        fields: What a JSON file holds beside its format; by default the fields of the record.
        restored: Makes the fields of the record of those of a file, where they differ.
        old_formats: What older files say they are.
    """

    kind: type[Record]
    format: str
    schema: int
    document: Callable[..., Document] | None = None
    text: Callable[[Record], str] | None = None
    html: Callable[[Record], str] | None = None
    title: Callable[[Record], str] | None = None
    page: Callable[[Record], str] | None = None
    more: Mapping[str, Callable[[Record], str]] = field(default_factory=dict)
    fields: Callable[[Record], Mapping[str, object]] | None = None
    restored: Callable[[Any], Any] | None = None
    old_formats: tuple[str, ...] = ()

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Of the files that a report can be saved to."""
        return tuple(dict.fromkeys((_HTML, _JSON, _TEXT, _MARKDOWN, *self.more)))

    def text_of(self, record: Record) -> str:
        """Return *record* as lines."""
        if self.document is not None:
            return text_of(self.document(record))
        return "" if self.text is None else self.text(record)

    def html_of(self, record: Record) -> str:
        """Return *record* as HTML that survives the sanitizers of notebooks."""
        if self.document is not None:
            return html_of(self.document(record))
        return "" if self.html is None else self.html(record)

    def page_of(self, record: Record, title: str) -> str:
        """Return *record* as a page of its own, which carries it within itself and can be read back.

        The page is called *title* where the class has no other one.
        """
        if self.page is not None:
            return self.page(record)
        if self.document is None:
            body = Markup(self.html_of(record))  # noqa: S704 - leaklab's own
        elif self.title is None:
            body = html_of(self.document(record), is_page=True)
        else:
            title, body = self.title(record), html_of(self.document(record, is_page=True), is_page=True)
        return page(title, body + Markup(embedded(self.json(record))))  # noqa: S704 - a script element of its own

    def json(self, record: Record) -> str:
        """Return *record* as one line of JSON that says first what it is.

        Raises:
            ReportError: if a figure is NaN or infinite, which JSON cannot say.
        """
        fields = asdict(cast("Any", record)) if self.fields is None else self.fields(record)
        return one_line({"format": self.format, **fields}, self.format.removeprefix("leaklab "))

    def read(self, text: str | bytes) -> Record:
        """Return the record in *text*, which `json` wrote.

        Raises:
            ReportError: if it is damaged, something else, or of another version.
        """
        formats = (self.format, *self.old_formats)
        return record_from_json(text, self.kind, formats, self.schema, self.restored)


class Report(Displayed, Generic[Record]):
    """What the user holds: a record, shown, saved and read back as the class's `Forms` say.

    Attributes:
        record: Every figure; plain frozen data, without a reference to anything of the user's.
    """

    __slots__ = ()
    _forms: ClassVar[Forms[Any]]
    record: Record

    @classmethod
    def _around(cls, record: Record) -> Self:
        """Return the report on *record*, which was read from a file."""
        make = cast("Callable[[Record], Self]", cls)
        return make(record)

    def _known(self) -> Record:
        """Return the record to be written."""
        return self.record

    @overload
    def to_html(self) -> str: ...

    @overload
    def to_html(self, path: None) -> str: ...

    @overload
    def to_html(self, path: FilePath) -> None: ...

    def to_html(self, path: FilePath | None = None) -> str | None:
        """Return the report as a page of its own that needs no network; with *path* write it there and return None.

        The page carries the record within itself: `load` reads it back.

        Raises:
            ReportError: if the file cannot be written.
        """
        return returned_or_written(self._writers()[_HTML](), path)

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
        return returned_or_written(self._writers()[_JSON](), path)

    def save(self, path: FilePath) -> None:
        """Write the report to *path* in the form that its suffix asks for; an unknown one is answered with the known.

        ``.html`` is a page of its own, ``.json`` the record, ``.txt`` the text, ``.md`` Markdown. Some reports know
        more: ``.csv`` the main table, ``.svg`` and ``.dot`` the graph.

        Raises:
            ReportError: for any other suffix, or a file that cannot be written.
        """
        save_by_suffix(path, self._writers())

    def _writers(self) -> dict[str, Callable[[], str]]:
        """Return what writes each form, by suffix."""
        record, forms = self._known(), self._forms
        return {
            _HTML: partial(forms.page_of, record, repr(self).strip("<>")),
            _JSON: partial(forms.json, record),
            _TEXT: self._lines,
            # A user's text stands between the fences alone: in a heading it would be markup.
            _MARKDOWN: lambda: "\n".join((f"# {type(self).__name__}", "", *fenced(self._lines()), "")),
            **{suffix: partial(write, record) for suffix, write in forms.more.items()},
        }

    @classmethod
    def from_json(cls, path_or_text: FilePath) -> Self:
        """Return the report that `to_json` wrote, from its file or its text.

        Raises:
            ReportError: if there is no such file, or it holds no report that this version can read.
        """
        return cls._around(cls._forms.read(read_source(path_or_text)))

    @classmethod
    def load(cls, path: FilePath) -> Self:
        """Return the report in a file: JSON, or a page that carries its record within itself.

        Raises:
            ReportError: if the file cannot be read, or holds no report that this version can read.
        """
        return cls._around(cls._forms.read(record_within(read_bytes(path))))

    def _text(self) -> str:
        return str(self._forms.text_of(self._known()))

    def _fragment(self) -> str:
        return str(self._forms.html_of(self._known()))


class FrameProperty(property):
    """A property of a report: a DataFrame made of its record, anew at each access."""

    def __init__(self, make: Callable[[Any], pd.DataFrame]) -> None:
        def made(report: Report[Any]) -> pd.DataFrame:
            return make(report.record)

        super().__init__(made, doc=make.__doc__)

    if TYPE_CHECKING:

        def __get__(self, report: Any, kind: type | None = None) -> pd.DataFrame: ...  # type: ignore[override]  # always


def returned_or_written(text: str, path: FilePath | None) -> str | None:
    """Return *text*, or write it: what a notebook's last line returns would flood the cell."""
    if path is None:
        return text
    write_text(path, text)
    return None


def save_by_suffix(path: FilePath, writers: Mapping[str, Callable[[], str]]) -> None:
    """Write to *path* what the writer of its suffix returns, in UTF-8.

    Raises:
        ReportError: if no writer has that suffix, or the file cannot be written; the message says what to do.
    """
    write_text(path, writers[known_suffix(path, writers)]())


def known_suffix(path: FilePath, suffixes: Iterable[str]) -> str:
    """Return the suffix of *path* in small letters.

    Raises:
        ReportError: if it is none of *suffixes*.
    """
    name, known = Path(path).name.lower(), sorted(suffixes, key=len)  # `.speedscope.json` is another than `.json`
    suffix = next((one for one in reversed(known) if name.endswith(one) and name != one), Path(path).suffix.lower())
    if suffix not in suffixes:
        ending = f"not in {suffix!r}" if suffix else "and has no suffix"
        msg = f"cannot save as {os.fspath(path)!r}: the name must end in {' or '.join(suffixes)}, {ending}"
        raise ReportError(msg)
    return suffix


def check_target(path: FilePath, suffixes: Iterable[str]) -> None:
    """Find out before long work whether its result could be saved to *path*; writes nothing.

    Args:
        path: The file.
        suffixes: Of the files that the result can be saved to.

    Raises:
        ReportError: if the suffix is another one, the folder is missing or cannot be written, or *path* is a folder.
    """
    known_suffix(path, suffixes)
    folder = Path(path).resolve().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        msg = f"cannot write {os.fspath(path)!r}: there is no folder {str(folder)!r} that can be written; make it first"
        raise ReportError(msg)
    if Path(path).is_dir():
        msg = f"cannot write {os.fspath(path)!r}: this is a folder; give the name of a file"
        raise ReportError(msg)


def write_text(path: FilePath, text: str) -> None:
    """Write *text* to *path* in UTF-8, with the same line ends everywhere; readers never see a part of it.

    Raises:
        ReportError: if the file cannot be written.
    """
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def read_source(path_or_text: FilePath) -> str | bytes:
    """Return *path_or_text* where it is JSON itself, else what the file of that name holds.

    Raises:
        ReportError: if the file cannot be read.
    """
    source = os.fspath(path_or_text)
    is_text = isinstance(path_or_text, str) and source.lstrip("\ufeff \t\r\n")[:1] in ("{", "[", '"')
    return source if is_text else read_bytes(source)


_TEXTS = (b"{", b"<")
"""How a record begins, and a page."""
_N_HEAD = 4_096
_OURS = "a file that leaklab can open: give a report (.json, .html), a heap snapshot (.npz) or a CUDA snapshot"


def read_bytes(path: FilePath, begins: tuple[bytes, ...] = _TEXTS, what: str = _OURS) -> bytes:
    """Return what the file at *path* holds, without the byte order mark that editors of Windows put first.

    Args:
        path: The file.
        begins: How what is wanted may begin. Of a file that begins otherwise, however large, only that is read.
        what: What is wanted.

    Raises:
        ReportError: if it cannot be read, is empty, or begins otherwise.
    """
    try:
        with Path(path).open("rb") as file:
            head = file.read(_N_HEAD)
            is_it = head.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(begins)
            data = head + file.read() if is_it else head
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        msg = f"cannot read {os.fspath(path)!r}: {reason}; give a file made by report.to_json(path)"
        raise ReportError(msg) from error
    if not is_it:
        msg = f"{os.fspath(path)!r} is not {what}" if head else f"{os.fspath(path)!r} is empty"
        raise ReportError(msg)
    return data.removeprefix(BYTE_ORDER_MARK)


def not_ours(path: FilePath) -> str:
    """Return that the file at *path* is none that leaklab can open, and what is one."""
    return f"{os.fspath(path)!r} is not {_OURS}"
