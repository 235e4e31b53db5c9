"""Write a record as JSON and read it back, with the types of every field checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

import msgspec

from leaklab.errors import ReportError
from leaklab.model import SCHEMA_VERSION, Check
from leaklab.render.wording import well_formed

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record")
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
    return record_to_json(check, FORMAT, "check")


def from_json(text: str | bytes) -> Check:
    """Return the check that `to_json` wrote.

    Raises:
        ReportError: if *text* is damaged, something else than a check, or of another version.
    """
    return record_from_json(text, Check, FORMAT, SCHEMA_VERSION)


def record_to_json(record: DataclassInstance, form: str, place: str) -> str:
    """Return a frozen record as one line of JSON that says first what it is.

    Args:
        record: With a field ``schema``.
        form: What the file says it is.
        place: What messages call the record.

    Raises:
        ReportError: if a figure is NaN or infinite, which JSON cannot say.
    """
    return one_line({"format": form, **asdict(record)}, place)


def one_line(value: Mapping[str, object], place: str) -> str:
    """Return *value* as one line of JSON; named tuples become objects, lone surrogates escapes.

    Args:
        value: Made of plain values, lists, tuples and dicts with text as keys.
        place: What messages call it.

    Raises:
        ReportError: if a figure is NaN or infinite, which JSON cannot say.
    """
    return msgspec.json.encode(_plain(value, place)).decode("utf-8")


def record_from_json(text: str | bytes, kind: type[Record], form: str, schema: int) -> Record:
    """Return the record of type *kind* that `record_to_json` wrote.

    Raises:
        ReportError: if *text* is damaged, something else than *form*, or of another version than *schema*.
    """
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    try:
        header = msgspec.json.decode(data, type=_Header)
    except msgspec.ValidationError:
        header = _Header()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        msg = f"this is no JSON, or a damaged file: {error}; save the report again with report.to_json(path)"
        raise ReportError(msg) from error
    if header.format != form:
        msg = f'not a file of leaklab: its "format" is not "{form}"; give a file made by report.to_json(path)'
        raise ReportError(msg)
    if header.schema != schema:
        is_older = header.schema < schema
        maker, advice = ("an older", "run the check again") if is_older else ("a newer", "upgrade leaklab to read it")
        msg = f"report of schema {header.schema}, made by {maker} leaklab; this one reads {schema}: {advice}"
        raise ReportError(msg)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        msg = f"this report was changed after leaklab wrote it: {error}; save it again with report.to_json(path)"
        raise ReportError(msg) from error


def _plain(value: object, place: str) -> object:
    """Return *value* made of what JSON knows: lone surrogates become escapes, NaN is refused."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, float) and not math.isfinite(value):
        msg = f"{place} is {value}, which JSON cannot say: please report this as a defect of leaklab"
        raise ReportError(msg)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: _plain(item, f"{place}.{key}") for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item, f"{place}[{index}]") for index, item in enumerate(value)]
    return value
