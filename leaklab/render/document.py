"""What a report says, as blocks: written once for each report by its ``document_of``, and shown by every writer.

`text_of` writes a document as plain text, `html_of` as HTML. Text lies in columns, HTML in tables and folded parts:
where the two say a thing in other words, the block has both.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from markupsafe import Markup

from leaklab.model import RootPath
from leaklab.model.comparison import ChangeRow
from leaklab.model.sentences import TreeLine
from leaklab.model.stacks import FrameNode
from leaklab.render.advice import DiffLine

_MOST_BARS = 60


class Typeface(enum.Enum):
    """How HTML sets words; text has them as they are."""

    PLAIN = "plain"
    CODE = "code"
    MARKED = "marked"  # a sentence in which code stands between backticks
    FAINT = "faint"
    BOLD = "bold"
    PILL = "pill"  # a word on its tone
    SOURCE = "source"  # code that keeps its blanks
    UNBROKEN = "unbroken"  # a figure that stays beside its unit


class Tone(enum.Enum):
    """What the colour of a block says."""

    BAD = "bad"
    DOUBTFUL = "doubtful"
    CALM = "calm"
    GOOD = "good"
    NONE = "none"


class Styled(NamedTuple):
    """Some words in one look; only a pill has a tone."""

    words: str
    look: Typeface = Typeface.PLAIN
    tone: Tone = Tone.NONE


Words: TypeAlias = str | Styled | tuple[str | Styled, ...]
"""A sentence, a name or a figure; of several parts where these have other looks."""


def code(words: str) -> Styled:
    """Return *words* as an expression, a line or a path."""
    return Styled(words, Typeface.CODE)


def bold(words: str) -> Styled:
    """Return *words* as what the eye should find first."""
    return Styled(words, Typeface.BOLD)


def faint(words: str) -> Styled:
    """Return *words* as what may be passed over."""
    return Styled(words, Typeface.FAINT)


def marked(words: str) -> Styled:
    """Return *words*, in which code stands between backticks."""
    return Styled(words, Typeface.MARKED)


def parts_of(words: Words) -> tuple[Styled, ...]:
    """Return the parts of *words*, each with its look."""
    parts = words if isinstance(words, tuple) and not isinstance(words, Styled) else (words,)
    return tuple(part if isinstance(part, Styled) else Styled(part) for part in parts)


def plain(words: Cell) -> str:
    """Return *words* without their looks; nothing for a block."""
    return "" if isinstance(words, DocumentBlock) else "".join(part.words for part in parts_of(words))


@dataclass(frozen=True, slots=True)
class DocumentBlock:
    """A part of a document. Every writer knows each of its subclasses, by name."""

    @property
    def kind(self) -> str:
        """The name of its class."""
        return type(self).__name__


Cell: TypeAlias = Words | DocumentBlock
"""What stands in a table: words, or a block, for which text has nothing."""


@dataclass(frozen=True, slots=True)
class Headline(DocumentBlock):
    """The answer, in a box.

    Attributes:
        words: One sentence.
        tone: What its colour says.
        below: What belongs to it: a line each.
        badge: A word before the sentence.
        is_large: Whether the sentence is set in large letters; with a badge it always is.
        blocks: What stands below that in HTML.
    """

    words: Words
    tone: Tone = Tone.CALM
    below: tuple[Words, ...] = ()
    badge: str = ""
    is_large: bool = False
    blocks: tuple[DocumentBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class Panel(DocumentBlock):
    """A part in a box: a sentence, and what stands below it.

    Attributes:
        words: The sentence.
        tone: What its colour says.
        lines: Further lines; text sets a dash before each.
        blocks: What stands below them.
        is_filled: Whether the box has a ground.
    """

    words: Words
    tone: Tone
    lines: tuple[Words, ...] = ()
    blocks: tuple[DocumentBlock, ...] = ()
    is_filled: bool = True


class RowLine(NamedTuple):
    """How some cells of a row stand in one line of text; a line of empty cells is left out.

    Attributes:
        form: A format string, ``{0:>9}  {1}``: a number for each cell.
        indent: Columns before the line.
        hang: Columns before what does not fit into the line.
    """

    form: str
    indent: int = 2
    hang: int = 4


@dataclass(frozen=True, slots=True)
class Table(DocumentBlock):
    """Rows of cells.

    Attributes:
        columns: Their names; one that begins with ">" is set flush right.
        rows: The cells of each row. A cell without a column, the last, stands below the table.
        lines: How a row stands in text.
        has_head: Whether text has the names of the columns as well.
        n_shown: How many rows are shown; None for all.
        place: Where the others are, ``report.tensors``; empty where text only says how many there are.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    lines: tuple[RowLine, ...] = ()
    has_head: bool = False
    n_shown: int | None = None
    place: str = ""

    @property
    def shown(self) -> tuple[tuple[Cell, ...], ...]:
        """The rows that are shown."""
        return self.rows[: self.n_shown]

    @property
    def n_more(self) -> int:
        """How many are not."""
        return len(self.rows) - len(self.shown)

    @property
    def below(self) -> tuple[Cell, ...]:
        """The cells without a column."""
        return tuple(cell for row in self.shown for cell in row[len(self.columns) :] if plain(cell))


@dataclass(frozen=True, slots=True)
class Changes(DocumentBlock):
    """What there was before and is after: two bars for each row, all of one scale.

    Attributes:
        rows: The rows.
        has_fates: Whether it is said what became of each.
        is_verdict: Whether what is new is a fault, and red: what is new in a heap is none.
    """

    rows: tuple[ChangeRow, ...]
    has_fates: bool = True
    is_verdict: bool = False


@dataclass(frozen=True, slots=True)
class Chapter(DocumentBlock):
    """Blocks under a title; nothing where they say nothing.

    Attributes:
        title: The title.
        blocks: What stands below it.
        is_open: Whether HTML shows it unfolded; None where it shows neither title nor fold.
        legend: What text says behind the title, of its bars of characters.
        share: How much of a whole it is, as a part of 1: HTML draws a bar before the title; None for no bar.
        part: ``evidence`` of an answer, or the ``figures`` of all: on paper the former stands before the latter.
    """

    title: Words
    blocks: tuple[DocumentBlock, ...]
    is_open: bool | None = True
    legend: str = ""
    share: float | None = None
    part: str = ""


@dataclass(frozen=True, slots=True)
class Bullet(DocumentBlock):
    """One of several findings: what it is, and what belongs to it."""

    words: Words
    blocks: tuple[DocumentBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class Points(DocumentBlock):
    """Sentences as a list, a dash before each in text."""

    items: tuple[Words, ...]


class Fact(NamedTuple):
    """A label, and the lines beside it."""

    label: str
    lines: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class FactTable(DocumentBlock):
    """Labels with what stands beside them."""

    facts: tuple[Fact, ...]
    width: int = 0


@dataclass(frozen=True, slots=True)
class PathSteps(DocumentBlock):
    """A path, root first, the suspect references marked: lines in text, in HTML drawn as boxes that hang on each other.

    Attributes:
        path: The path.
        cut_at: Positions of the references to cut, which HTML marks.
        label: What stands before it in text.
        width: Columns of the label.
    """

    path: RootPath
    cut_at: Collection[int] = ()
    label: str = ""
    width: int = 0


@dataclass(frozen=True, slots=True)
class Tree(DocumentBlock):
    """Merged paths, an edge on each line. Text has nothing, as for all blocks that follow to `Drawn`."""

    lines: tuple[TreeLine, ...]


@dataclass(frozen=True, slots=True)
class Bars(DocumentBlock):
    """A bar for each run, as high as what is still alive of it."""

    numbers: tuple[int, ...]
    tone: Tone

    @property
    def is_shown(self) -> bool:
        """Whether there is one to see, and not more than can be told apart."""
        return max(self.numbers, default=0) > 0 and len(self.numbers) <= _MOST_BARS


@dataclass(frozen=True, slots=True)
class ShareBar(DocumentBlock):
    """How much of a whole is known, and how much more is an estimate or a limit, as parts of 1."""

    known: float
    guessed: float


@dataclass(frozen=True, slots=True)
class TwoBars(DocumentBlock):
    """How much there was before and is after, as parts of the most."""

    before: float
    after: float
    tone: Tone


@dataclass(frozen=True, slots=True)
class Flame(DocumentBlock):
    """A flame graph, outermost frames at the top. Text has nothing."""

    tree: FrameNode


@dataclass(frozen=True, slots=True)
class Foldout(DocumentBlock):
    """Words in a table that unfold to lines."""

    words: Words
    lines: tuple[Words, ...]


@dataclass(frozen=True, slots=True)
class Outline(DocumentBlock):
    """A tree that folds: words, and whether what is below them is unfolded, None where nothing is; no words end it."""

    lines: tuple[tuple[Words | None, bool | None], ...]


@dataclass(frozen=True, slots=True)
class CellToCopy(DocumentBlock):
    """A whole cell under a title that copies it.

    Attributes:
        cell: The cell, every character as it is, escaped.
        handler: JavaScript of the title, escaped; empty for none.
        title: What it copies.
    """

    cell: Markup
    handler: str
    title: str = "Copy the changed cell"


@dataclass(frozen=True, slots=True)
class NextCell(DocumentBlock):
    """What to run next. Text has nothing.

    Attributes:
        command: The text of a cell.
        has_button: Whether a click puts it into a new cell, where the notebook knows how.
    """

    command: str
    has_button: bool = True


@dataclass(frozen=True, slots=True)
class Prose(DocumentBlock):
    """Sentences, and code that is indented; the lines are kept."""

    words: str


@dataclass(frozen=True, slots=True)
class Remark(DocumentBlock):
    """A line of its own: a note, a call of a stack, what was left out.

    Attributes:
        words: The line.
        in_text: The same, where text says it in other words.
        indent: Columns before it in text.
        hang: So many more before what does not fit into the line.
    """

    words: Words
    in_text: str | None = None
    indent: int = 0
    hang: int = 2


@dataclass(frozen=True, slots=True)
class Lines(DocumentBlock):
    """Lines as they are, in the font of code."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diff(DocumentBlock):
    """The lines that go and those that come, what is different in them marked."""

    lines: tuple[DiffLine, ...]


@dataclass(frozen=True, slots=True)
class Image(DocumentBlock):
    """A picture, as an ``<svg>`` or as a PNG; *alt* says what it shows."""

    image: str | bytes
    alt: str


@dataclass(frozen=True, slots=True)
class Drawn(DocumentBlock):
    """What takes time, and is made when HTML is shown: blocks, or a report that is HTML itself. Text has nothing."""

    make: Callable[[], Markup | Iterable[DocumentBlock]]


@dataclass(frozen=True, slots=True)
class Gap(DocumentBlock):
    """An empty line of text."""


@dataclass(frozen=True, slots=True)
class Either(DocumentBlock):
    """What text and HTML draw in other ways, or have at other places."""

    text: tuple[DocumentBlock, ...] = ()
    html: tuple[DocumentBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report.

    Attributes:
        blocks: Its parts, from the answer to the notes.
    """

    blocks: tuple[DocumentBlock, ...]


def environment_of(pairs: Sequence[tuple[str, str]], before: str = "") -> tuple[DocumentBlock, ...]:
    """Return names with their versions, *before* them what else was looked at: the last line of a report."""
    words = before + ", ".join(f"{name} {version}" for name, version in pairs)
    return (Gap(), Remark(faint(words), hang=0)) if words else ()


def notes_of(notes: Sequence[str], indent: int = 0) -> tuple[Remark, ...]:
    """Return each of *notes* as a line."""
    return tuple(Remark(faint(note), f"note: {note}", indent) for note in notes)
