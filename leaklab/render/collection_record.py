"""Write the record of a notebook's checks as JSON, read it back, and say in a line what it holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgspec

from leaklab.errors import ReportError
from leaklab.model import Check, Outcome
from leaklab.model.collection import COLLECTION_SCHEMA, Collection, NotedCheck
from leaklab.render.embedding import find_embedded
from leaklab.render.json import FORMAT, from_json, record_from_json, record_to_json

COLLECTION_FORMAT = "leaklab checks"


class _Header(msgspec.Struct):
    format: str = ""


def collection_to_json(collection: Collection) -> str:
    """Return *collection* as one line of JSON; of the other reports only title and text.

    Raises:
        ReportError: if a figure is NaN or infinite, which JSON cannot say.
    """
    views = tuple(replace(view, markup="") for view in collection.views)
    return record_to_json(replace(collection, views=views), COLLECTION_FORMAT, "collection")


def read_record(data: bytes) -> Check | Collection:
    """Return the record in *data*: JSON, or an HTML page that carries it within itself.

    Raises:
        ReportError: if there is none, or it was made by another version.
    """
    is_page = data.lstrip()[:1] == b"<"
    found = find_embedded(data) if is_page else data
    if found is None:
        msg = (
            "this page carries no record: give a page made by %leakreport, leaklab run or report.to_html(path), or JSON"
        )
        raise ReportError(msg)
    try:
        form = msgspec.json.decode(found, type=_Header).format
    except (msgspec.DecodeError, UnicodeDecodeError):
        form = FORMAT  # the reader of single checks says what is wrong
    if form == COLLECTION_FORMAT:
        return record_from_json(found, Collection, COLLECTION_FORMAT, COLLECTION_SCHEMA)
    return from_json(found)


def as_collection(record: Check | Collection) -> Collection:
    """Return *record*, a single check as a collection of one."""
    if isinstance(record, Collection):
        return record
    return Collection(title=record.settings.name, checks=(NotedCheck(record),))


def heading(check: Check, number: int) -> str:
    """Return what *check*, the *number*-th from 1, is called."""
    return check.settings.name or f"check {number}"


def tally_words(collection: Collection) -> str:
    """Return ``4 checks: 2 leak, 1 clean, 1 inconclusive``."""
    n_checks = len(collection.checks)
    if not n_checks:
        return "no check was made"
    outcomes = Counter(noted.check.verdict.outcome for noted in collection.checks)
    told = ", ".join(f"{outcomes[outcome]:,} {outcome.value}" for outcome in Outcome if outcomes[outcome])
    return f"{n_checks:,} {'check' if n_checks == 1 else 'checks'}: {told}"
