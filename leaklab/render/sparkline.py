"""Draw levels of memory as a few characters in a line of text."""

from __future__ import annotations

from collections.abc import Sequence

_BLOCKS, _ASCII = "▁▂▃▄▅▆▇█", "_.-=*#"
_LEAST_SHARE = 0.01
"""A level that moves by less than this share of itself is drawn flat: noise would look like a mountain."""


def draw_levels(levels: Sequence[float], *, encoding: str | None = "utf-8") -> str:
    """Return one character a level, the lowest for the least of them.

    Args:
        levels: In bytes, oldest first.
        encoding: Of where it is written; where that has no blocks, signs of ASCII stand for them.
    """
    if not levels:
        return ""
    signs = _BLOCKS if _has(_BLOCKS, encoding) else _ASCII
    least, most = min(levels), max(levels)
    extent = max(most - least, _LEAST_SHARE * most, 1)
    return "".join(signs[min(int((level - least) / extent * len(signs)), len(signs) - 1)] for level in levels)


def _has(text: str, encoding: str | None) -> bool:
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
