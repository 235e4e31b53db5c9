"""Make a page smaller: styles of many elements go into its style sheet."""

from __future__ import annotations

import re
from collections import Counter

# Only leaklab writes quotes into markup: in a user's text they are escaped, so what matches is a real attribute.
_STYLE = re.compile(r' style="([^"]*)"')
_TOOLTIP = re.compile(r'<span title="[^"]*"')
_N_LEAST = 5  # of fewer the rule is as long as what it saves
_PREFIX = "s"


def with_classes(markup: str) -> tuple[str, str]:
    """Return *markup* with a class in the place of each frequent ``style``, and the rules of these classes.

    A page of 60 checks becomes half as large. For pages of their own only: notebooks drop style sheets.

    Args:
        markup: In which no element with a ``style`` has a ``class``.
    """
    counts = Counter(_STYLE.findall(markup))
    names = {
        style: f"{_PREFIX}{number}"
        for number, (style, count) in enumerate(counts.most_common())
        if count >= _N_LEAST and style
    }
    shorter = _STYLE.sub(lambda found: f" class={names[found[1]]}" if found[1] in names else found[0], markup)
    return shorter, "\n".join(f".{name} {{{style}}}" for style, name in names.items())


def without_tooltips(markup: str) -> str:
    """Return *markup* without the ``title`` of its spans."""
    return _TOOLTIP.sub("<span", markup)
