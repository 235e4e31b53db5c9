"""Write a check as JSON and read it back, with the types of every field checked."""

from __future__ import annotations

import math
from dataclasses import asdict

import msgspec

from leaklab.errors import ReportError
from leaklab.model import SCHEMA_VERSION, Check
from leaklab.render.wording import well_formed

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
    record = {"format": FORMAT, **asdict(check)}
    return msgspec.json.encode(_plain(record, "check")).decode("utf-8")


def from_json(text: str | bytes) -> Check:
    """Return the check that `to_json` wrote.

    Raises:
        ReportError: if *text* is damaged, something else than a check, or of another version.
    """
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    try:
        header = msgspec.json.decode(data, type=_Header)
    except msgspec.ValidationError:
        header = _Header()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        msg = f"this is no JSON, or a damaged file: {error}; save the report again with report.to_json(path)"
        raise ReportError(msg) from error
    if header.format != FORMAT:
        msg = f'not a file of leaklab: its "format" is not "{FORMAT}"; give a file made by report.to_json(path)'
        raise ReportError(msg)
    if header.schema != SCHEMA_VERSION:
        is_older = header.schema < SCHEMA_VERSION
        maker, advice = ("an older", "run the check again") if is_older else ("a newer", "upgrade leaklab to read it")
        msg = f"report of schema {header.schema}, made by {maker} leaklab; this one reads {SCHEMA_VERSION}: {advice}"
        raise ReportError(msg)
    try:
        return msgspec.json.decode(data, type=Check)
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
    if isinstance(value, dict):
        return {key: _plain(item, f"{place}.{key}") for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item, f"{place}[{index}]") for index, item in enumerate(value)]
    return value
