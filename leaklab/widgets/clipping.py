"""Cut texts to a length that a page can show; what does not print is written as an escape."""

from __future__ import annotations

from leaklab.render.wording import visible

TEXT_LIMIT = 400
BLOCK_LIMIT = 20_000


def clip(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return *text* in one line of at most *limit* characters, its middle left out where it is longer."""
    if len(text) > limit:  # first, so that a text of a million characters is not looked at whole
        tail = limit // 3
        text = f"{text[: limit - tail - 3]}...{text[len(text) - tail :]}"
    return visible(text)


def clip_block(text: str, limit: int = BLOCK_LIMIT) -> str:
    """Return *text* with its lines, at most *limit* characters of it."""
    if len(text) > limit:
        text = f"{text[:limit]}\n..."
    return "\n".join(map(visible, text.splitlines()))
