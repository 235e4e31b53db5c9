"""The table of all forms: each is a golden file, and how its text is made of stored records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from making import settled

Form = Callable[[Path], str]
FORMS: dict[str, Form] = {}


def form(name: str) -> Callable[[Form], Form]:
    def noted(function: Form) -> Form:
        assert name not in FORMS
        FORMS[name] = function
        return function

    return noted


def on(name: str, record: Callable[[], Any], make: Callable[[Any], str]) -> None:
    """Note a form that needs no folder."""
    form(name)(lambda _folder: make(record()))


def page(view: Any) -> str:
    return settled(view.to_html())
