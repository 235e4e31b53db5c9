"""What somebody needs to propose a change, a person or a language model: one leak in 4 KiB of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from leaklab.model import Check, Leak
from leaklab.model.cure import Change, Cure
from leaklab.model.sentences import growth_sentence
from leaklab.render.advice import headline
from leaklab.render.json import Blank, redacted
from leaklab.render.words import cause_words, effort_words, failure_words, others_words, render_path, retained_words
from leaklab.text import clipped, fenced, shorten

LIMIT_BYTES = 4096
"""UTF-8 of a whole brief: so much can be read beside everything else that a reader has before them."""
_SITE = re.compile(r"(?P<place>.+?)(?:, line |:)(?P<number>\d+)(?: in [^:]*)?: (?P<source>.*)", re.DOTALL)
_FENCE = re.compile(r" *`{3,}")
_COMMENT = re.compile(
    r"\s*#.*?(?P<own>  # (?:(?:keeps|makes|copies|opens|starts) it(?:, in .*)?|closes the cycle))?$", re.MULTILINE
)
_LINE_LIMIT = 160
_SOURCE_LIMIT = 40
"""So much of a long line stands in a place for certain."""
CURED = (
    "In eight runs, at most a tenth of what each run leaves behind is left, nothing else grows, nothing is raised, and"
    " the same parameters get gradients and are updated. What others use, such as a list of callbacks, must not be"
    " emptied, and the code must go on doing what it does."
)
TRY_IT = (
    "Try a change with `leaklab.try_change(report, change)`, or with `%%leakcheck --try NAME` above the cell: a unified"
    " diff, or the new source of the cell, of functions or of classes."
)


@dataclass(frozen=True, slots=True)
class _Room:
    """How much of each part is told: the first with which all of it fits is taken."""

    n_around: int
    n_path: int
    n_tried: int
    n_characters: int


_ROOMS = (
    _Room(10, 30, 5, 400), _Room(10, 16, 3, 200), _Room(5, 12, 3, 160), _Room(2, 8, 2, 120), _Room(0, 6, 1, 60),
)  # fmt: skip


def brief_of(check: Check, number: int, texts: Sequence[tuple[str, str]], *, redact: bool) -> str:
    """Return what there is to know of leak *number* of *check*, or of the verdict where nothing leaks.

    Args:
        check: The record.
        number: Of the leak, from 0.
        texts: Names as readers know them, ``this cell``, ``train.py``, and sources, the likeliest first; of others the
            line alone is shown.
        redact: Whether strings, keys, comments, folders and summaries of values are hidden.
    """
    if redact:
        blank = Blank(check)
        check = redacted(check, blank)
        check = replace(check, leaks=tuple(map(_without_comments, check.leaks)))
        texts = [(name, blank.source(text)) for name, text in texts]
    brief = ""
    for room in _ROOMS:
        brief = "\n".join(_lines(clipped(check, room.n_characters), number, texts, room)) + "\n"
        if len(brief.encode()) <= LIMIT_BYTES:
            return brief
    return cut_to(brief, LIMIT_BYTES)


def _without_comments(leak: Leak) -> Leak:
    """Return *leak*, in whose lines no string is left, without comments but leaklab's own."""

    def bare(text: str) -> str:
        return _COMMENT.sub(lambda found: found["own"] or "", text)

    def without(change: Change) -> Change:
        return replace(change, before=bare(change.before), after=bare(change.after))

    cures = (replace(cure, changes=tuple(map(without, cure.changes))) for cure in leak.cures)
    return replace(leak, sites=tuple(map(bare, leak.sites)), cures=tuple(cures))


def cut_to(text: str, n_bytes: int) -> str:
    """Return *text*, Markdown, with as many whole lines as *n_bytes* of UTF-8 hold; a fence that is open is closed."""
    if len(text.encode()) <= n_bytes:
        return text
    kept, open_fence, fence = list[str](), "", ""
    for line in text.splitlines():
        if found := _FENCE.match(line):
            fence = "" if open_fence and line == open_fence else open_fence or found[0]
        if len("\n".join((*kept, line, fence, "...", "")).encode()) > n_bytes:
            break
        kept.append(line)
        open_fence = fence
    return "\n".join((*kept, *filter(None, (open_fence,)), "...", ""))


def _lines(check: Check, number: int, texts: Sequence[tuple[str, str]], room: _Room) -> Iterator[str]:
    yield f"# {check.verdict.outcome.value}: {_text(headline(check))}"
    yield ""
    yield _text("; ".join(filter(None, (f"{effort_words(check)}", failure_words(check)))))
    if not check.leaks:
        yield from (_text(f"- {note}") for note in check.notes[: room.n_tried])
        return
    leak = check.leaks[number]
    if len(check.leaks) > 1:
        yield f"This is leak {number} of {len(check.leaks)}, numbered from 0; the others:"
        others = [one for place, one in enumerate(check.leaks) if place != number]
        yield from (_text(f"- {growth_sentence(one)}") for one in others[: room.n_tried])
    yield ""
    yield from _facts(leak, "" if number == 0 else growth_sentence(leak))
    yield from _section("Path, root first", _fenced(_middle_out(render_path(leak.path).splitlines(), room.n_path)))
    yield from _section("Lines", _sites(leak.sites, texts, room))
    yield from _section("Tried", _tried(leak.cures[: room.n_tried]))
    yield from _section("What would count as cured", (CURED, "", TRY_IT))


def _facts(leak: Leak, sentence: str) -> Iterator[str]:
    facts = {
        "leak": sentence,
        "held by": _code(leak.holder),
        "also held by": ", ".join(_code(one) for one in leak.holders if one != leak.holder),
        "what": _code(leak.what),
        "left with it": others_words(leak.others),
        "cause": "; also ".join(map(cause_words, (leak.cause, *leak.also_causes))),
        "would free": retained_words(leak),
        "evidence": leak.reason,
        "advice": " ".join(leak.advice.split()),
    }
    yield from (f"- {label}: {_text(words)}" for label, words in facts.items() if words)


def _sites(sites: Sequence[str], texts: Sequence[tuple[str, str]], room: _Room) -> Iterator[str]:
    """Yield the lines that make or keep what leaks, with those around them where the source is known."""
    by_source: dict[tuple[str, str], list[int]] = {}
    for site in sites[: room.n_tried]:
        yield f"- {_code(site)}"
        found = _SITE.fullmatch(site)
        for name, text in texts if found else ():
            if found and name == found["place"] and _stands(found["source"], text, int(found["number"])):
                by_source.setdefault((name, text), []).append(int(found["number"]))
                break
    for (name, text), numbers in by_source.items():
        lines = text.splitlines()
        yield from ("", f"{_code(name)}:", "")
        shown = [n for n in range(1, len(lines) + 1) if any(abs(n - one) <= room.n_around for one in numbers)]
        yield from _fenced([_row(n, lines[n - 1], is_marked=n in numbers) for n in shown], "python")


def _stands(source: str, text: str, number: int) -> bool:
    """Return whether line *number* of *text* is how *source* begins: two cells may have one name."""
    line = "".join(text.splitlines()[number - 1 : number]).strip()
    return bool(line) and source.startswith(line.partition("#")[0][:_SOURCE_LIMIT].rstrip())


def _row(number: int, line: str, *, is_marked: bool) -> str:
    return f"{'>' if is_marked else ' '} {number:>4} {shorten(line, _LINE_LIMIT)}"


def _tried(cures: Sequence[Cure]) -> Iterator[str]:
    for cure in cures:
        yield f"- {cure.outcome.value}: {_text(cure.words)} ({_text(cure.evidence)})"
        for change in cure.changes:
            rows = [f"-{line}" for line in change.before.splitlines()]
            rows += [f"+{line}" for line in change.after.splitlines()]
            yield from (f"  {line}" for line in _fenced([f"@@ {change.where}", *rows], "diff"))


def _section(title: str, lines: Iterator[str] | Sequence[str]) -> Iterator[str]:
    told = list(lines)
    if told:
        yield from ("", f"## {title}", "", *told)


def _middle_out(lines: list[str], n_most: int) -> list[str]:
    """Return *lines*, of many the first and, for the suspect ones stand there, more of the last."""
    n_first = n_most // 3
    return lines if len(lines) <= n_most else [*lines[:n_first], "...", *lines[n_first + 1 - n_most :]]


def _fenced(lines: Sequence[str], language: str = "text") -> list[str]:
    return fenced("\n".join(lines), language)


def _code(text: str) -> str:
    return f"`{_text(text).replace('`', chr(39))}`"


def _text(text: str) -> str:
    """Return *text* in one line: what a name of the user's holds begins no heading, and no fence."""
    return shorten(text, 2 * _LINE_LIMIT + len(text))
