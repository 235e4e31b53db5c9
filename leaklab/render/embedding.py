"""Put a record into an HTML page, where no browser takes it for markup, and find it there again."""

from __future__ import annotations

import re

from leaklab.render.wording import well_formed

_OPEN, _CLOSE = '<script type="application/json" data-leaklab="record">', "</script>"
_FOUND = re.compile(re.escape(_OPEN.encode()) + rb"(.*?)" + re.escape(_CLOSE.encode()), re.DOTALL)
# Within a script element a browser looks for its end tag and for comments alone: without "<" there is neither. The
# other four would mean something to other readers. JSON may write any character of a string as an escape, and none of
# the five stands in JSON outside one.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def embedded(json: str) -> str:
    """Return *json* as an element of a page that shows nothing and runs nothing."""
    return f"{_OPEN}{well_formed(json).translate(_ESCAPES)}{_CLOSE}"


def find_embedded(page: bytes) -> bytes | None:
    """Return the JSON that `embedded` put into *page*; None if there is none."""
    # The last one: all that stands before it was written by a renderer that lets no user's text be markup.
    found = _FOUND.findall(page)
    return found[-1] if found else None
