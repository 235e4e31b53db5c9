"""What shows itself in a notebook shows what it can, whatever fails."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from markupsafe import Markup

import leaklab
from leaklab.model.check import NotebookChecks
from leaklab.render.base import Displayed
from leaklab.render.templates import page
from leaklab.reports.comparison import Comparison
from leaklab.reports.notebook import NotebookReport


class View(Displayed):
    def __init__(self, text: object, markup: object) -> None:
        self.text, self.markup = text, markup

    def __repr__(self) -> str:
        return "<View>"

    def _text(self) -> str:
        return said(self.text)

    def _fragment(self) -> str:
        return said(self.markup)


class MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError


def said(words: object) -> str:
    if isinstance(words, Raises):
        raise words.kind(*words.args)
    return str(words)


class Raises(NamedTuple):
    """What is raised, made anew each time: an exception that is raised again gets a longer traceback."""

    kind: type[Exception]
    args: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("view", "bundle"),
    [
        (View("text", "<p>"), {"text/plain": "text", "text/html": "<p>"}),
        (View("text", ""), {"text/plain": "text"}),
        (View("text", Raises(KeyError, ("x",))), {"text/plain": "text\n(not all of it could be drawn: KeyError: 'x')"}),
        (View("text", Raises(MuteError)), {"text/plain": "text\n(not all of it could be drawn: MuteError)"}),
        (View(Raises(MuteError), "<p>"), {"text/plain": "<View>\n(not all of it could be drawn: MuteError)"}),
    ],
)
def test_what_can_be_drawn_is_shown(view, bundle):
    assert view._repr_mimebundle_(include={"text/plain"}, exclude=set()) == bundle


def test_what_has_nothing_to_draw_says_so_in_words():
    nothing = Comparison(fixed=False, lines=())
    assert nothing._repr_mimebundle_() == {"text/plain": "no leak in either check"}
    assert set(NotebookReport(NotebookChecks("", (), (), ()))._repr_mimebundle_()) == {"text/plain"}
    assert leaklab.training_run("A", show=False)._repr_mimebundle_() == {"text/plain": "<leaklab.training_run('A')>"}


def test_a_page_escapes_its_title_and_carries_its_policy_before_all_that_it_rules():
    body, head = Markup("<p>body</p>"), Markup("<style></style>\n")
    text = page("</title><script>", body, head=head, script="let a = 1;")
    assert "<title>&lt;/title&gt;&lt;script&gt;</title>\n<style>" in text
    assert text.index("Content-Security-Policy") < text.index("<style>")
    assert text.count("<script>let a = 1;</script>") == 1
    assert "Content-Security-Policy" not in page("title", Markup())
