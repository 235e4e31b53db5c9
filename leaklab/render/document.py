"""What a report says, as blocks: written once for each report by its ``document_of``, and shown by every writer.

`text_of` writes a document as plain text, `html_of` as HTML. Text lies in columns, HTML in tables and folded parts:
where the two say a thing in other words, the block has both.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from leaklab.model.before_after import ChangeRow


class Look(enum.Enum):
    """How HTML sets words; text has them as they are."""

    PLAIN = "plain"
    CODE = "code"
    MARKED = "marked"  # a sentence in which code stands between backticks
    FAINT = "faint"
    BOLD = "bold"


class Tone(enum.Enum):
    """What the colour of a block says."""

    BAD = "bad"
    DOUBTFUL = "doubtful"
    CALM = "calm"
    GOOD = "good"


class Styled(NamedTuple):
    """Some words in one look."""

    words: str
    look: Look = Look.PLAIN


Words: TypeAlias = str | Styled | tuple[str | Styled, ...]
"""A sentence, a name or a figure; of several parts where these have other looks."""


def code(words: str) -> Styled:
    """Return *words* as an expression, a line or a path."""
    return Styled(words, Look.CODE)


def bold(words: str) -> Styled:
    """Return *words* as what the eye should find first."""
    return Styled(words, Look.BOLD)


def faint(words: str) -> Styled:
    """Return *words* as what may be passed over."""
    return Styled(words, Look.FAINT)


def parts_of(words: Words) -> tuple[Styled, ...]:
    """Return the parts of *words*, each with its look."""
    parts = words if isinstance(words, tuple) and not isinstance(words, Styled) else (words,)
    return tuple(part if isinstance(part, Styled) else Styled(part) for part in parts)


def plain(words: Words) -> str:
    """Return *words* without their looks."""
    return "".join(part.words for part in parts_of(words))


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a document. Every writer knows each of its subclasses, by name."""

    @property
    def kind(self) -> str:
        """The name of its class."""
        return type(self).__name__


@dataclass(frozen=True, slots=True)
class Headline(Block):
    """The answer, in a box.

    Attributes:
        words: One sentence.
        tone: What its colour says.
        below: What belongs to it: a line each.
    """

    words: str
    tone: Tone = Tone.CALM
    below: tuple[Words, ...] = ()


@dataclass(frozen=True, slots=True)
class Panel(Block):
    """A part in a box: a sentence, and lines below it.

    Attributes:
        words: The sentence.
        tone: What its colour says.
        lines: Further lines; text sets a dash before each.
    """

    words: Words
    tone: Tone
    lines: tuple[Words, ...] = ()


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
class Table(Block):
    """Rows of cells.

    Attributes:
        columns: Their names; one that begins with ">" is set flush right.
        rows: The cells of each row. A cell without a column, the last, stands below the table.
        lines: How a row stands in text.
        has_head: Whether text has the names of the columns as well.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Words, ...], ...]
    lines: tuple[RowLine, ...]
    has_head: bool = False

    @property
    def below(self) -> tuple[Words, ...]:
        """The cells without a column."""
        return tuple(cell for row in self.rows for cell in row[len(self.columns) :] if plain(cell))


@dataclass(frozen=True, slots=True)
class Changes(Block):
    """What there was before and is after: two bars for each row, all of one scale.

    Attributes:
        rows: The rows.
        has_fates: Whether it is said what became of each.
    """

    rows: tuple[ChangeRow, ...]
    has_fates: bool = True


@dataclass(frozen=True, slots=True)
class Part(Block):
    """Blocks under a title; nothing where there are no blocks.

    Attributes:
        title: The title.
        blocks: What stands below it.
        is_open: Whether HTML shows it unfolded; None where it shows neither title nor fold.
        legend: What text says behind the title, of its bars of characters.
    """

    title: str
    blocks: tuple[Block, ...]
    is_open: bool | None = True
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Item(Block):
    """One of several findings: what it is, and what belongs to it.

    Attributes:
        words: What it is.
        blocks: What belongs to it.
    """

    words: Words
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Advice(Block):
    """Sentences, and code that is indented; the lines are kept."""

    words: str


@dataclass(frozen=True, slots=True)
class Line(Block):
    """A line of its own: a note, a call of a stack, what was left out.

    Attributes:
        words: The line.
        in_text: The same, where text says it in other words.
        indent: Columns before it in text.
        hang: So many more before what does not fit into the line.
    """

    words: Words
    in_text: str = ""
    indent: int = 0
    hang: int = 2


@dataclass(frozen=True, slots=True)
class Notes(Block):
    """What the reader should know, one sentence each, as a list that HTML shows under a title."""

    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gap(Block):
    """An empty line of text."""


@dataclass(frozen=True, slots=True)
class Either(Block):
    """What text and HTML draw in other ways.

    Attributes:
        text: Lines as they are.
        html: Blocks.
    """

    text: tuple[str, ...] = ()
    html: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report.

    Attributes:
        blocks: Its parts, from the answer to the notes.
    """

    blocks: tuple[Block, ...]


def notes_of(notes: Sequence[str], indent: int = 0) -> tuple[Line, ...]:
    """Return each of *notes* as a line."""
    return tuple(Line(faint(note), f"note: {note}", indent) for note in notes)
