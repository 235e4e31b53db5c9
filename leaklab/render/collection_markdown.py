"""Write checks as Markdown that reads well on GitHub, where no style and no script survives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from leaklab.model import Check, Leak, Outcome
from leaklab.model.collection import Collection, NotedCheck, NotedView
from leaklab.render.collection_record import as_collection, heading, tally_words
from leaklab.render.path import render_path
from leaklab.render.text import render_text
from leaklab.render.texts import clipped
from leaklab.render.wording import (
    amount_words,
    cause_words,
    effort_words,
    failure_words,
    projection_words,
    rate_words,
    retained_words,
    shorten,
    visible,
)
from leaklab.words import format_bytes

_SIGNS = {Outcome.LEAK: "🔴", Outcome.CLEAN: "🟢", Outcome.BOUNDED: "🔵", Outcome.INCONCLUSIVE: "🟡"}
_NAME_LIMIT = 80
_REASON_LIMIT = 300
_N_LEAKS = 20
# As numbers of characters these signs mean themselves: no emphasis, no link, no column of a table.
_SIGNIFICANT = re.compile(r"[\\`*_{}\[\]()#+!|~$@:&<>\"'-]")


def render_markdown(record: Check | Collection) -> str:
    """Return a check, or all checks of a notebook, as Markdown: a table of contents, then each check folded."""
    whole = as_collection(record)
    collection = clipped(replace(whole, views=()))  # those are texts of many lines
    title = shorten(collection.title, _NAME_LIMIT) or "leaklab: the checks of a notebook"
    lines = [f"# {_plain(title)}", "", _plain(tally_words(collection)), ""]
    if collection.failure:
        lines += [f"**The notebook ended early**: {_plain(shorten(collection.failure, _REASON_LIMIT))}", ""]
    lines += [f"- {_plain(note)}" for note in collection.notes]
    lines += ["", *_contents(collection.checks)]
    for number, noted in enumerate(collection.checks, 1):
        lines += ["", *_check(number, noted)]
    for view in whole.views:
        lines += ["", *_view(view)]
    return "\n".join(lines) + "\n"


def _contents(checks: tuple[NotedCheck, ...]) -> Iterator[str]:
    if not checks:
        return
    yield "| no. | check | verdict | runs | leaks | bytes per run | largest leak is held by |"
    yield "| ---: | --- | --- | ---: | ---: | ---: | --- |"
    for number, noted in enumerate(checks, 1):
        check, verdict = noted.check, noted.check.verdict
        n_bytes = _plain(format_bytes(verdict.bytes_per_run)) if verdict.bytes_per_run else ""
        holder = _code(check.leaks[0].holder) if check.leaks else ""
        outcome = f"{_SIGNS[verdict.outcome]} {verdict.outcome.value}"
        cells = (str(number), _name(check, number), outcome, f"{verdict.n_runs:,}", f"{len(check.leaks):,}", n_bytes)
        yield f"| {' | '.join((*cells, holder))} |"


def _check(number: int, noted: NotedCheck) -> Iterator[str]:
    check, verdict = noted.check, noted.check.verdict
    yield f"## {number}. {_name(check, number)} {_SIGNS[verdict.outcome]}"
    yield ""
    yield f"**{verdict.outcome.value.upper()}** {_plain(shorten(verdict.reason, _REASON_LIMIT))}"
    yield ""
    details = [noted.place, effort_words(check), projection_words(check)]
    details.append(failure_words(check) if check.failure else "")
    yield from (f"- {_plain(shorten(detail, _REASON_LIMIT))}" for detail in details if detail)
    for position, leak in enumerate(check.leaks[:_N_LEAKS], 1):
        yield ""
        yield from _leak(leak, position)
    yield ""
    yield from _folded("The whole report as text", _fenced(render_text(check)))


def _leak(leak: Leak, number: int) -> Iterator[str]:
    yield f"### Leak {number}: {_code(leak.what)}, {_plain(amount_words(leak))} per run"
    yield ""
    holders = dict.fromkeys(filter(None, (leak.holder, *leak.holders)))
    yield f"- held by {', '.join(map(_code, holders)) or 'nothing that has a name'}"
    yield f"- grows: {_plain(rate_words(leak))}"
    if frees := retained_words(leak):
        yield f"- {_plain(frees)}"
    yield from (f"- line {_code(site)}" for site in leak.sites)
    yield f"- cause: {_plain(shorten(cause_words(leak.cause), _REASON_LIMIT))}"
    yield f"- id: {_code(leak.fingerprint)}"
    yield ""
    yield from _fenced(render_path(leak.path))
    if leak.advice:
        yield ""
        yield "What to change:"
        yield ""
        yield from _fenced("\n".join(map(visible, leak.advice.splitlines())))


def _view(view: NotedView) -> Iterator[str]:
    yield f"## {_plain(shorten(view.title, _REASON_LIMIT))}"
    yield ""
    if view.place:
        yield f"- {_plain(view.place)}"
        yield ""
    yield from _folded("The report as text", _fenced(view.text))


def _folded(title: str, lines: Iterator[str]) -> Iterator[str]:
    # The empty lines let Markdown begin again within the element.
    yield from ("<details>", f"<summary>{title}</summary>", "", *lines, "", "</details>")


def _fenced(text: str) -> Iterator[str]:
    """Yield *text* between fences that are longer than any row of backticks in it."""
    longest = max((len(row) for row in re.findall("`+", text)), default=0)
    fence = "`" * max(longest + 1, 3)
    yield f"{fence}text"
    yield from map(visible, text.splitlines())
    yield fence


def _name(check: Check, number: int) -> str:
    return _plain(shorten(heading(check, number), _NAME_LIMIT))


def _plain(text: str) -> str:
    """Return *text* so that neither Markdown nor HTML finds a meaning in it."""
    return _SIGNIFICANT.sub(lambda match: f"&#{ord(match[0])};", visible(text))


def _code(text: str) -> str:
    return f"<code>{_plain(shorten(text, _REASON_LIMIT))}</code>"
