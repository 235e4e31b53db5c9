"""Write a page of its own around a report."""

from __future__ import annotations

from leaklab.render.parts import escaped
from leaklab.render.wording import shorten

_TITLE_LIMIT = 200
_BODY = "margin:24px auto;max-width:1000px;padding:0 16px"


def page(title: str, body: str, *, head: str = "", policy: str = "", style: str = _BODY) -> str:
    """Return a page that asks nothing of any server and follows the reader's choice of light or dark.

    Args:
        title: As text; shortened and escaped here.
        body: As HTML.
        head: What else the head holds, as HTML.
        policy: The content security policy; without one the page has none.
        style: Inline style of the body.
    """
    allowed = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n' if policy else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{allowed}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escaped(shorten(title, _TITLE_LIMIT))}</title>\n{head}</head>\n"
        f'<body style="{style}">\n{body}\n</body>\n</html>\n'
    )
