"""Write a record as JSON and read it back, from a page as well; hide what it says of the user's data.

The types of every field are checked when a record is read. A page carries its record in a script element, where no
browser takes it for markup.
"""

from __future__ import annotations

import ast
import math
import re
import struct
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from io import StringIO
from typing import Any, TypeVar

import msgspec

from leaklab.errors import ReportError
from leaklab.model import SCHEMA_VERSION, Check, Leak, Outcome, RootPath
from leaklab.model.check import NOTEBOOK_SCHEMA, KeptCheck, NotebookChecks
from leaklab.text import unit_words, well_formed, with_texts

Record = TypeVar("Record")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
FORMAT = "leaklab check"
"""What a file says it is, in its first field."""


class _Header(msgspec.Struct):
    format: str = ""
    schema: int = 0


def to_json(check: Check) -> str:
    """Return *check* as one line of JSON.

    Raises:
        ReportError: if a figure is NaN or infinite, which JSON cannot say.
    """
    return one_line({"format": FORMAT, **check_fields(check)}, "check")


def check_fields(check: Check) -> dict[str, object]:
    """Return what a file of *check* holds."""
    return asdict(_without_file_names(check))


def _without_file_names(check: Check) -> Check:
    """Return *check* without the names under which its changed files were compiled: they say nothing elsewhere."""
    leaks = []
    for leak in check.leaks:
        cures = tuple(
            replace(cure, changes=tuple(replace(change, filename="") for change in cure.changes)) for cure in leak.cures
        )
        leaks.append(replace(leak, cures=cures))
    return replace(check, leaks=tuple(leaks))


def from_json(text: str | bytes) -> Check:
    """Return the check that `to_json` wrote.

    Raises:
        ReportError: if *text* is damaged, something else than a check, or of another version.
    """
    return record_from_json(text, Check, (FORMAT,), SCHEMA_VERSION)


def one_line(value: Mapping[str, object], place: str) -> str:
    """Return *value* as one line of JSON; named tuples become objects, lone surrogates escapes.

    Args:
        value: Made of plain values, lists, tuples and dicts with text as keys.
        place: What messages call it.

    Raises:
        ReportError: if a figure is NaN or infinite, which JSON cannot say.
    """
    line = msgspec.json.encode(_plain(value, place)).decode("utf-8")
    return line if line.isprintable() else _UNPRINTABLE.sub(_escape, line)


def _escape(found: re.Match[str]) -> str:
    """Return a character of a string as JSON's escape, unless it prints: some terminals take it for a command."""
    if found[0].isprintable():
        return found[0]
    return "".join(f"\\u{unit:04x}" for (unit,) in struct.iter_unpack(">H", found[0].encode("utf-16-be")))


_UNPRINTABLE = re.compile(r"[^ -~]")


def record_from_json(
    text: str | bytes,
    kind: type[Record],
    formats: Sequence[str],
    schema: int,
    restored: Callable[[Any], Any] | None = None,
) -> Record:
    """Return the record of type *kind* in *text*, the types of every field checked.

    Args:
        text: JSON.
        kind: Type of the record.
        formats: What the file may say it is; the first is how it is written today.
        schema: The version that can be read.
        restored: Makes the fields of the record of those in the file, where they differ.

    Raises:
        ReportError: if *text* is damaged, something else, or of another version.
    """
    data = (text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")).removeprefix(BYTE_ORDER_MARK)
    try:
        header = msgspec.json.decode(data, type=_Header)
    except msgspec.ValidationError:
        header = _Header(format="?")
    except _UNREADABLE as error:
        msg = f"this is not JSON, or the file is damaged: {error}; save the report again with report.to_json(path)"
        raise ReportError(msg) from error
    if header.format not in formats:
        msg = f'not a file of leaklab: its "format" is not "{formats[0]}"; give a file made by report.to_json(path)'
        raise ReportError(msg)
    if header.schema != schema:
        is_older = header.schema < schema
        maker, advice = ("an older", "run the check again") if is_older else ("a newer", "upgrade leaklab to read it")
        msg = f"report of schema {header.schema}, made by {maker} leaklab; this one reads {schema}: {advice}"
        raise ReportError(msg)
    try:
        if restored is None:
            return msgspec.json.decode(data, type=kind)
        return msgspec.convert(restored(msgspec.json.decode(data)), type=kind)
    except (*_UNREADABLE, KeyError, TypeError) as error:
        msg = f"this report was changed after leaklab wrote it: {error}; save it again with report.to_json(path)"
        raise ReportError(msg) from error


_LEFT_OUT = (
    ("n_places", 1),
    ("cures", ()),
    ("cure", None),
    ("changed_cell", ""),
    ("also_causes", ()),
    ("only_path", False),
    ("statements", False),
    ("min_bytes", 0),
    ("statements", ()),
    ("shares", ()),
    ("noted", ()),
    ("undecided", ()),
    ("stacks", {"frames": (), "stacks": ()}),
    ("node_bytes", 0),
    ("ways", ()),
    ("request_label", ""),
    ("reserved_bytes", None),
    ("reserved_free_bytes", None),
    ("largest_free_bytes", None),
)
"""Fields that version 0.1.0 did not have, at values that say nothing: a file is then as that version wrote it."""


def _plain(value: object, place: str) -> object:
    """Return *value* made of what JSON knows: lone surrogates become escapes, NaN is refused."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, float) and not math.isfinite(value):
        msg = f"{place} is {value}, which JSON cannot express: please report this as a bug of leaklab"
        raise ReportError(msg)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: _plain(item, f"{place}.{key}") for key, item in value.items() if (key, item) not in _LEFT_OUT}
    if isinstance(value, (tuple, list)):
        return [_plain(item, f"{place}[{index}]") for index, item in enumerate(value)]
    return value


_OPEN, _CLOSE = '<script type="application/json" data-leaklab="record">', "</script>"
_FOUND = re.compile(re.escape(_OPEN.encode()) + rb"(.*?)" + re.escape(_CLOSE.encode()), re.DOTALL)
# Within a script element a browser looks for its end tag and for comments alone: without "<" there is neither. The
# other four would mean something to other readers. JSON may write any character of a string as an escape, and none of
# the five stands in JSON outside one.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def embedded(json: str) -> str:
    """Return *json*, a record, as an element of a page that shows nothing and runs nothing."""
    return script_data(json, "record")


def script_data(json: str, name: str) -> str:
    """Return *json* as such an element that a script of the page finds by *name*."""
    return f'<script type="application/json" data-leaklab="{name}">{well_formed(json).translate(_ESCAPES)}{_CLOSE}'


def find_embedded(page: bytes) -> bytes | None:
    """Return the JSON that `embedded` put into *page*; None if there is none."""
    # The last one: all that stands before it was written by a renderer that lets no user's text be markup.
    found = _FOUND.findall(page)
    return found[-1] if found else None


NOTEBOOK_FORMAT = "leaklab checks"


def notebook_to_json(collection: NotebookChecks) -> str:
    """Return *collection* as one line of JSON; of the other reports only title and text.

    Raises:
        ReportError: if a figure is NaN or infinite, which JSON cannot say.
    """
    return one_line({"format": NOTEBOOK_FORMAT, **notebook_fields(collection)}, "collection")


def notebook_fields(collection: NotebookChecks) -> dict[str, object]:
    """Return what a file of *collection* holds."""
    checks = tuple(replace(kept, check=_without_file_names(kept.check)) for kept in collection.checks)
    return asdict(
        replace(collection, checks=checks, views=tuple(replace(view, markup="") for view in collection.views))
    )


def read_record(data: bytes) -> Check | NotebookChecks:
    """Return the record in *data*: JSON, or an HTML page that carries it within itself.

    Raises:
        ReportError: if there is none, or it was made by another version.
    """
    found = record_within(data)
    if format_of(found) == NOTEBOOK_FORMAT:
        return record_from_json(found, NotebookChecks, (NOTEBOOK_FORMAT,), NOTEBOOK_SCHEMA)
    return from_json(found)  # which says what is wrong


class _FileFormat(msgspec.Struct):
    """What every record begins with."""

    format: str = ""


def format_of(record: bytes) -> str:
    """Return what *record*, JSON, says it is; empty where it says nothing that can be read."""
    try:
        return msgspec.json.decode(record, type=_FileFormat).format
    except _UNREADABLE:
        return ""


def record_within(data: bytes) -> bytes:
    """Return the JSON in *data*: all of it, or what a page carries within itself.

    Raises:
        ReportError: if a page carries none.
    """
    found = find_embedded(data) if data.lstrip()[:1] == b"<" else data
    if found is None:
        msg = (
            "this page carries no record: give a page made by %leakreport, leaklab run or report.to_html(path), or JSON"
        )
        raise ReportError(msg)
    return found


def as_notebook_checks(record: Check | NotebookChecks) -> NotebookChecks:
    """Return *record*, a single check as a collection of one."""
    if isinstance(record, NotebookChecks):
        return record
    return NotebookChecks(title=record.settings.name, checks=(KeptCheck(record),))


def heading(check: Check, number: int) -> str:
    """Return what *check*, the *number*-th from 1, is called."""
    return check.settings.name or f"check {number}"


def tally_words(collection: NotebookChecks) -> str:
    """Return ``4 checks: 2 leak, 1 clean, 1 inconclusive``."""
    n_checks = len(collection.checks)
    if not n_checks:
        return "no check was made"
    outcomes = Counter(noted.check.verdict.outcome for noted in collection.checks)
    counts = ", ".join(f"{outcomes[outcome]:,} {outcome.value}" for outcome in Outcome if outcomes[outcome])
    return f"{unit_words(n_checks, 'checks')}: {counts}"


HIDDEN = "hidden"
_WITH_EXPRESSIONS = ("JoinedStr", "TemplateStr")

_STRING = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
# An apostrophe follows a letter ("the cell's"), the quote that opens a string does not. What was cut off for its length
# may have lost its closing quote: it ends with the text.
_QUOTED = re.compile(rf"(?<!\w)(?:[bBrRuUfF]{{1,2}})?(?:{_STRING}|'[^']*\Z|\"[^\"]*\Z)", re.DOTALL)
_OF_NAMES = re.compile(
    r"\b(?:attribute|cell|class|function|global|local|module|parameter|thread|variable)s? (?P<name>'[A-Za-z_][\w.]*')"
)
_SUBSCRIPT = re.compile(r"\[([^\[\]]*)\]\Z")
_MAPPING = re.compile(r"dict|mapping|cache|counter", re.IGNORECASE)
# A folder's name may have spaces within, so the path must begin with one that has none at its start.
_FOLDERS = re.compile(r"(?<![\w.<])(?:[A-Za-z]:)?[\\/](?=[^\s\\/])(?:[^\\/:'\"<>|\n]+[\\/])+(?=[^\s\\/:'\"]+)")


def redacted(check: Check, blank: Blank | None = None) -> Check:
    """Return *check* without summaries, keys, strings and folders; the same string gets the same number everywhere.

    Names of variables, attributes, functions and types stay, and so do shapes, figures and fingerprints: a redacted
    report still says what grows and who holds it, and can still be compared with another one. *blank* numbers the
    strings where something else shows them too.
    """
    blank = Blank(check) if blank is None else blank
    bare = replace(
        check,
        settings=replace(check.settings, summaries=False),
        leaks=tuple(map(_without_summaries, check.leaks)),
        bounded=tuple(map(_without_summaries, check.bounded)),
    )
    redacted = with_texts(replace(bare, environment=()), blank.blanked)
    leaks = tuple(map(_with_fingerprint, redacted.leaks, check.leaks))
    bounded = tuple(map(_with_fingerprint, redacted.bounded, check.bounded))
    # The name is the user's own title, by which two reports are compared.
    settings = replace(redacted.settings, name=check.settings.name)
    return replace(redacted, leaks=leaks, bounded=bounded, settings=settings, environment=check.environment)


def _without_summaries(leak: Leak) -> Leak:
    steps = tuple(replace(step, summary="") for step in leak.path.steps)
    cures = tuple(replace(cure, changed_cell="") for cure in leak.cures)  # a whole cell says more than the one line
    return replace(leak, path=RootPath(leak.path.root, steps), cures=cures)


def _with_fingerprint(redacted: Leak, leak: Leak) -> Leak:
    return replace(redacted, fingerprint=leak.fingerprint)


class Blank:
    """The strings and keys that were met, each with its number.

    Args:
        check: The record whose paths say which subscripts are keys, and not positions in a list.
    """

    def __init__(self, check: Check) -> None:
        self._numbers: dict[str, int] = {}
        keys = {key for leak in (*check.leaks, *check.bounded) for key in _keys(leak.path)}
        listed = "|".join(map(re.escape, sorted(keys, key=len, reverse=True)))
        self._key = re.compile(rf"\[({listed})\]") if keys else None

    def blanked(self, text: str) -> str:
        """Return *text* with every string in quotes, every key of a mapping and every folder blanked."""
        names = {match.start("name") for match in _OF_NAMES.finditer(text)}
        text = _QUOTED.sub(lambda match: match[0] if match.start() in names else self._token(match[0]), text)
        if self._key is not None:
            text = self._key.sub(lambda match: f"[{self._token(match[1])}]", text)
        return _FOLDERS.sub("", text)

    def source(self, text: str) -> str:
        """Return *text*, Python, line by line without its strings and comments; empty where it cannot be read."""
        try:
            tokens = list(tokenize.generate_tokens(StringIO(text).readline))
            nodes = list(_strings_in(ast.parse(text)))
        except (SyntaxError, ValueError, RecursionError, tokenize.TokenError):
            return ""
        lines = text.splitlines()
        for token in tokens:
            if token.type == tokenize.COMMENT:
                lines[token.start[0] - 1] = lines[token.start[0] - 1][: token.start[1]].rstrip()
        rows = [line.encode() for line in lines]
        for node in reversed(nodes):
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            hidden = self._token(ast.get_source_segment(text, node) or "").encode()
            tail = rows[last][node.end_col_offset :]
            rows[first : last + 1] = [rows[first][: node.col_offset] + hidden + tail, *[b""] * (last - first)]
        return _FOLDERS.sub("", b"\n".join(rows).decode())

    def _token(self, found: str) -> str:
        inner = found.lstrip("bBrRuUfF").strip("'\"")
        number = self._numbers.setdefault(inner, len(self._numbers) + 1)
        return f"'{HIDDEN} {number}'"


def _strings_in(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the texts in *tree*, in their order; of those with expressions within only the whole."""
    for node in ast.iter_child_nodes(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
        if isinstance(node, ast.expr) and (is_text or type(node).__name__ in _WITH_EXPRESSIONS):
            yield node
        else:
            yield from _strings_in(node)


def _keys(path: RootPath) -> Iterator[str]:
    """Yield the subscripts by which mappings are read on *path*, but for those in quotes."""
    for before, step in zip(path.steps, path.steps[1:], strict=False):
        match = _SUBSCRIPT.search(step.reference)
        if match and _MAPPING.search(before.kind) and not _QUOTED.match(match[1]):
            yield match[1]
