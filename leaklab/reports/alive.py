"""Why one object is alive: what is said of it, its drawing, and what the user holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from leaklab.model.alive import (
    ALIVE_SCHEMA_VERSION,
    AlivePath,
    AutogradHolder,
    CountItem,
    Counts,
    Cut,
    CutReference,
    DirectReference,
    Hold,
    Retained,
    WhyAliveRecord,
)
from leaklab.render.base import Forms, FrameProperty, Report
from leaklab.render.document import (
    Chapter,
    Document,
    DocumentBlock,
    Drawn,
    Either,
    Fact,
    FactTable,
    Gap,
    Headline,
    Image,
    Lines,
    Panel,
    PathSteps,
    Points,
    Remark,
    Table,
    Tone,
    Words,
    bold,
    code,
    environment_of,
    faint,
)
from leaklab.render.drawing import Picture, draw_svg
from leaklab.render.writers import text_of
from leaklab.reports.back_graph import graph_of_alive, objgraph_dot
from leaklab.reports.graphs import LEAKLAB, OBJGRAPH, back_graph_dot, check_style
from leaklab.reports.tables import path_table, reference_table
from leaklab.text import SHOWN_LIMIT, clipped, format_bytes, shorten, unit_words, wrap

_HEADLINES = {
    Hold.HELD: ("ALIVE", Tone.CALM),
    Hold.GARBAGE: ("GARBAGE", Tone.DOUBTFUL),
    Hold.IMMORTAL: ("IMMORTAL", Tone.BAD),
    Hold.PROBABLE: ("IMMORTAL?", Tone.BAD),
    Hold.UNSEEN: ("UNSEEN", Tone.DOUBTFUL),
    Hold.NOTHING: ("FREE", Tone.GOOD),
}
_LABEL_WIDTH = 11
_N_REFERENCES, _N_HTML_REFERENCES = 8, 20
_N_OPEN_STEPS = 7  # a longer path is folded
_TITLE_LIMIT, _CODE_LIMIT, _NAME_LIMIT, _WHAT_LIMIT = 300, 400, 60, 72
_DRAWING_SECONDS = 6.0
_MAX_SVG_CHARACTERS = 120_000  # some 60 boxes; more would swell the notebook
_ALT_LIMIT, _GRAPH_ALT_LIMIT = 900, 2_000


def document_of(alive: WhyAliveRecord, *, is_page: bool = False) -> Document:
    """Return why an object is alive: the answer, what to cut, the best path; HTML folds the rest below these."""
    alive = clipped(alive, SHOWN_LIMIT)
    paths = tuple(_path(alive, number, is_open=True) for number in range(len(alive.paths)))
    cut, cycle = tuple(_cut(alive)), tuple(_cycle(alive))
    looked_at = f"{alive.n_heap:,} objects looked at; " if alive.n_heap else ""
    environment = environment_of(alive.environment, looked_at)
    figures = () if alive.only_path else (_figures(alive),)
    lengths = [len(one.path.steps) for one in alive.paths]
    told = next((number for number, n_steps in enumerate(lengths) if n_steps > 1), 0)  # a variable says it by its name
    is_open = bool(lengths) and lengths[told] <= _N_OPEN_STEPS
    best, others = (paths[told : told + 1], (*paths[:told], *paths[told + 1 :])) if is_open else ((), paths)
    pictures = (Drawn(partial(_pictures, alive, is_page=is_page)),) if len(paths) > 1 else ()
    evidence = (*pictures, *others, *figures, _references(alive), *environment)
    notes = Chapter("Notes", (Points(alive.notes),))
    return Document(
        (
            _answer(alive),
            Either(
                (*paths, *cycle, *cut, *figures, _references(alive), notes, *environment),
                (*cut, *cycle, *best, notes, Chapter("Evidence", evidence, is_open=False)),
            ),
        )
    )


def _answer(alive: WhyAliveRecord) -> Either:
    (word, tone), title = _HEADLINES[alive.hold], code(shorten(title_words(alive), _TITLE_LIMIT))
    retained = () if alive.only_path else (retained_words(alive),)
    return Either(
        (Headline(title, badge=word), Remark(alive.reason, indent=len(word) + 2, hang=0)),
        (Headline(title, tone, (alive.reason, *retained), badge=word),),
    )


def _path(alive: WhyAliveRecord, number: int, *, is_open: bool) -> Chapter:
    path = alive.paths[number]
    held = Fact("held by", (code(shorten(holder_words(path), _TITLE_LIMIT)),))
    known = (Fact("known", (path.remark,)),) if path.remark else ()
    steps = PathSteps(path.path, path.cut_at, "path", _LABEL_WIDTH)
    in_text = (FactTable((held,), _LABEL_WIDTH), steps, FactTable(known, _LABEL_WIDTH))
    title = shorten(path_title(alive, number), _TITLE_LIMIT)
    return Chapter(title, (Either(in_text, (FactTable((held, *known)), steps)),), is_open)


def _cycle(alive: WhyAliveRecord) -> Iterator[DocumentBlock]:
    cycle, best = alive.cycle, alive.cycle_cut
    if cycle is not None:
        steps = (PathSteps(cycle, width=_LABEL_WIDTH),), (PathSteps(cycle),)
        yield Chapter("The cycle that keeps it", (Either(*steps),))
    if best is not None:
        facts = FactTable((Fact("to cut", (shorten(best.how, _CODE_LIMIT), best.words)),), _LABEL_WIDTH)
        yield Either((facts,), (Panel(bold("To cut it"), Tone.GOOD, (code(best.how), faint(best.words))),))


def _cut(alive: WhyAliveRecord) -> Iterator[Either]:
    cut, wider = alive.cut, alive.wider_cut
    if cut is None:
        return
    title = cut_title(cut, is_least=wider is None)
    rest = () if wider is None else (Remark(faint(wider_words(wider)), indent=2),)
    items = Points(tuple(map(_cut_words, cut.references)))
    yield Either(
        (Gap(), Remark(f"To let it go: {title}"), *_cut_remarks(cut), *rest),
        (Panel(bold("To let it go"), Tone.GOOD, (title,), (items, *rest)),),
    )


def _cut_words(reference: CutReference) -> Words:
    if reference.is_statement:
        return code(reference.advice)
    return (reference.advice, " ", faint(f"{reference.holder} {reference.reference}"))


def _cut_remarks(cut: Cut) -> Iterator[Remark]:
    are_statements = all(reference.is_statement for reference in cut.references)
    for reference in cut.references:
        advice = shorten(reference.advice, _CODE_LIMIT)
        yield Remark(advice, indent=4) if are_statements else Remark(f"- {advice}", indent=2, hang=4)
        if not reference.is_statement:
            yield Remark(f"({reference.holder}  {reference.reference})", indent=4)


def _pictures(alive: WhyAliveRecord, *, is_page: bool) -> Iterator[DocumentBlock]:
    """Yield leaklab's own drawing, and on a page objgraph's; the paths as text where nothing can draw them."""
    graph = graph_of_alive(alive)
    svg = draw_svg(back_graph_dot(graph).source, seconds=_DRAWING_SECONDS)
    if svg is None or (len(svg) > _MAX_SVG_CHARACTERS and not is_page):
        yield Chapter("Paths as text", (Lines(tuple(paths_text(alive).splitlines())),), is_open=False)
        return
    alt = shorten("; ".join(str(one.path) for one in alive.paths) or alive.reason, _ALT_LIMIT)
    yield Chapter("Back-references", (Image(svg, f"Graph of all paths: {alt}"),))
    classic = draw_svg(objgraph_dot(graph), seconds=_DRAWING_SECONDS) if is_page else None
    if classic is not None:
        yield Chapter("The same, drawn by objgraph", (Image(classic, f"Drawn by objgraph: {alt}"),))


def _figures(alive: WhyAliveRecord) -> Either:
    counts = counts_words(alive)
    in_text = (Fact(label, (f"{'reference' if label == 'Python' else 'use'} count {text}",)) for label, text in counts)
    in_html = (Fact(f"{label} count", (text,)) for label, text in counts)
    autograd = (Fact("autograd", tuple(map(autograd_words, alive.autograd))),) if alive.autograd else ()
    return Either(
        (Gap(), FactTable((Fact("frees", (retained_words(alive),)), *in_text), _LABEL_WIDTH)),
        (FactTable((*in_html, *autograd)),),
    )


def _references(alive: WhyAliveRecord) -> Either:
    """Return who refers to the object; in text also which operations saved it."""
    rows, place = alive.references, ".references"
    title = f"Direct references ({alive.n_references:,})"
    shown = [shorten(reference_words(row), _TITLE_LIMIT) for row in rows[:_N_REFERENCES]]
    if len(rows) > _N_REFERENCES:
        shown.append(f"{len(rows) - _N_REFERENCES:,} more are in {place}")
    savers = tuple(shorten(autograd_words(holder), _TITLE_LIMIT) for holder in alive.autograd[:_N_REFERENCES])
    in_text = (Chapter(title, (Points(tuple(shown)),)), Chapter("Autograd", (Points(savers),)))
    cells = tuple(
        (*(code(shorten(text, _TITLE_LIMIT)) for text in (row.holder, row.reference)), row.kind, f"{row.count:,}",
         "C++" if row.from_cpp else "Python")
        for row in rows
    )  # fmt: skip
    table = Table(("holder", "reference", "type", ">count", "side"), cells, n_shown=_N_HTML_REFERENCES, place=place)
    return Either(() if alive.only_path else in_text, (Chapter(title, (table,) if rows else ()),))


def title_words(alive: WhyAliveRecord) -> str:
    """Return what was asked about, and what it is."""
    return f"{alive.asked}: {alive.what}" if alive.asked else alive.what


def path_title(alive: WhyAliveRecord, number: int) -> str:
    """Return the heading of path *number*, from 0."""
    path = alive.paths[number]
    many = f"{len(alive.paths)}{' shown' if alive.has_more_paths else ''}"
    name = f": {path.expression}" if path.expression else ""
    if alive.only_path:
        return f"The best path{name}"
    return f"Path {number + 1} of {many}{name}"


def holder_words(path: AlivePath) -> str:
    """Return the expression for what holds the object on *path*, or why there is none."""
    return path.holder or "no Python expression leads to what holds it"


def retained_words(alive: WhyAliveRecord) -> str:
    """Return what comes back if the object goes."""
    size = alive.retained
    least = "at least " if size.is_lower_bound else ""
    words = (
        f"{least}{format_bytes(size.exclusive_bytes)} in {unit_words(size.n_objects, 'objects')} come back if it goes"
    )
    if size.shared_bytes:
        words += f"; another {format_bytes(size.shared_bytes)} stay, because other objects use them too"
    return words


def wider_words(cut: Cut) -> str:
    """Return the smaller cut in one line, with what else it takes."""
    statements = "; ".join(reference.advice for reference in cut.references)
    return f"or let go of the whole variable: {statements}  (frees {_freed_words(cut)})"


def cut_title(cut: Cut, *, is_least: bool = True) -> str:
    """Return what the cut frees, and how far that is proved; *is_least* unless fewer would take a variable."""
    if not cut.references:
        return f"no set of references to cut is known: {cut.obstacle or 'nothing reaches it'}"
    n_references = len(cut.references)
    which = "this reference" if n_references == 1 else f"these {n_references} references"
    freed = _freed_words(cut)
    if not cut.frees_object:
        return f"cutting {which} frees {freed}, but not the object itself"
    proof = "no fewer would do" if cut.is_exact else "fewer may be enough"
    if not is_least:
        proof = "the fewest that leave your variables in place"
    return f"cutting {which} frees {freed} ({proof})"


def _freed_words(cut: Cut) -> str:
    least = "at least " if cut.is_lower_bound else ""
    return f"{unit_words(cut.n_freed, 'objects')}, {least}{format_bytes(cut.freed_bytes)}"


def count_words(total: int, items: tuple[CountItem, ...], n_unexplained: int) -> str:
    """Return ``3 = 2 list + 1 unexplained``."""
    parts = [f"{item.count} {shorten(item.words, _NAME_LIMIT)}" for item in items if item.count]
    if n_unexplained > 0:
        parts.append(f"{n_unexplained} unexplained")
    return f"{total} = {' + '.join(parts)}" if parts else str(total)


def counts_words(alive: WhyAliveRecord) -> list[tuple[str, str]]:
    """Return label and explanation of each reference count; what the question itself held is left out."""
    counts = alive.counts
    rows = [("Python", count_words(counts.python, counts.python_items, counts.n_unexplained))]
    if counts.use_count is not None:
        rows.append(("C++", count_words(counts.use_count, counts.cpp_items, counts.n_unexplained_cpp)))
    return rows


def autograd_words(holder: AutogradHolder) -> str:
    """Return which node holds the object as what, and whose graph that is."""
    carrier = f", in the graph of {holder.carrier}" if holder.carrier else ", in a graph whose tensor was not found"
    kind = f" ({holder.carrier_kind})" if holder.carrier_kind else ""
    return f"{holder.node} {holder.role}{carrier}{kind}"


def reference_words(reference: DirectReference) -> str:
    """Return who refers to the object, and how often where it is more than once."""
    times = f" ({reference.count} times)" if reference.count > 1 else ""
    side = " [C++]" if reference.from_cpp else ""
    return f"{reference.holder}  {reference.reference}{times}{side}"


def paths_text(alive: WhyAliveRecord) -> str:
    """Return the paths, and the cycle that keeps the object where there is one, as lines."""
    alive = clipped(alive, SHOWN_LIMIT)
    paths = (_path(alive, number, is_open=True) for number in range(len(alive.paths)))
    return text_of(Document((*paths, *_cycle(alive)))).strip("\n") or "\n".join(wrap(alive.reason))


@dataclass(frozen=True, slots=True, repr=False)
class BackReferenceGraph(Picture):
    """All paths to one object, merged where they meet.

    Attributes:
        alive: The record.
        style: ``leaklab``, or ``objgraph`` for the classic picture.
    """

    alive: WhyAliveRecord
    style: str = LEAKLAB

    def __post_init__(self) -> None:
        """Refuse a style that does not exist."""
        check_style(self.style)

    @property
    def dot(self) -> str:
        """The graph as DOT text."""
        graph = graph_of_alive(self.alive)
        return objgraph_dot(graph) if self.style == OBJGRAPH else str(back_graph_dot(graph).source)

    @property
    def alt(self) -> str:
        """The paths, one after the other."""
        return shorten("; ".join(str(one.path) for one in self.alive.paths) or self.alive.reason, _GRAPH_ALT_LIMIT)

    def _text(self) -> str:
        return paths_text(self.alive)

    def __repr__(self) -> str:
        return f"<BackReferenceGraph of {len(self.alive.paths)} paths; str() shows them>"


_FORMS = Forms(
    kind=WhyAliveRecord,
    format="leaklab whyalive",
    schema=ALIVE_SCHEMA_VERSION,
    document=document_of,
    title=lambda alive: f"Why is it alive: {title_words(alive)}",
    more={
        ".svg": lambda alive: BackReferenceGraph(alive).svg_file(),
        ".dot": lambda alive: BackReferenceGraph(alive).dot,
    },
)
WHYALIVE_SUFFIXES: Final = _FORMS.suffixes
"""What `WhyAlive.save` can write."""


@dataclass(frozen=True, slots=True, repr=False)
class WhyAlive(Report[WhyAliveRecord]):
    """The answer to one question.

    It holds the record and nothing else, so it can be pickled and keeps nothing of the user's alive; tables and graphs
    are made anew each time they are asked for.

    Attributes:
        record: Everything that was found out.
    """

    _forms: ClassVar = _FORMS
    record: WhyAliveRecord

    paths = FrameProperty(path_table)
    """The paths, one row for each step."""
    references = FrameProperty(reference_table)
    """The direct references to the object, one row for each."""

    @property
    def hold(self) -> Hold:
        """What keeps the object alive."""
        return self.record.hold

    @property
    def reason(self) -> str:
        """One sentence that says so."""
        return self.record.reason

    @property
    def holders(self) -> tuple[str, ...]:
        """For each path the expression for what refers to the object; empty where Python has none."""
        return tuple(path.holder for path in self.record.paths)

    @property
    def cut(self) -> Cut | None:
        """The fewest references to let go of, with the proof; None where no root reaches the object."""
        return self.record.cut

    @property
    def counts(self) -> Counts:
        """The reference counts, explained."""
        return self.record.counts

    @property
    def retained(self) -> Retained:
        """What comes back if the object goes."""
        return self.record.retained

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats and observations."""
        return self.record.notes

    def graph(self, style: str = LEAKLAB) -> BackReferenceGraph:
        """Return all paths as one graph, drawn by leaklab or, with ``style="objgraph"``, by objgraph.

        Raises:
            ValueError: for any other style.
        """
        return BackReferenceGraph(self.record, style)

    def __repr__(self) -> str:
        return f"<WhyAlive {shorten(self.record.what, _WHAT_LIMIT)}: {shorten(self.reason, _WHAT_LIMIT)}>"
