"""A document: every writer knows every block, and no text of a user's is markup."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from leaklab.model import RootPath, Status, Step
from leaklab.model.comparison import ChangeRow, Fate
from leaklab.model.sentences import TreeLine
from leaklab.model.stacks import frame_tree
from leaklab.render.advice import DiffLine
from leaklab.render.document import (
    Bars,
    Bullet,
    CellToCopy,
    Changes,
    Chapter,
    Diff,
    Document,
    DocumentBlock,
    Drawn,
    Either,
    Fact,
    FactTable,
    Flame,
    Foldout,
    Gap,
    Headline,
    Image,
    Lines,
    NextCell,
    Outline,
    Panel,
    PathSteps,
    Points,
    Prose,
    Remark,
    RowLine,
    ShareBar,
    Styled,
    Table,
    Tone,
    Tree,
    TwoBars,
    Typeface,
    code,
    notes_of,
)
from leaklab.render.writers import html_of, text_of

SIGN = "<i>"
ONE_OF_EACH = (
    Bullet(SIGN, (Remark(SIGN),)),
    Changes((ChangeRow(SIGN, Fate.NEW, 0.0, 1.0, SIGN),)),
    Chapter(SIGN, (Remark(SIGN),)),
    Diff((DiffLine("+", SIGN),)),
    Either((Remark(SIGN),), (Remark(SIGN),)),
    FactTable((Fact(SIGN, (SIGN,)),), 9),
    Headline(SIGN, below=(code(SIGN),), badge=SIGN),
    Lines((SIGN,)),
    PathSteps(RootPath(SIGN, (Step(SIGN, SIGN, SIGN, Status.LEAKED),)), (0,), SIGN, 9),
    Panel(SIGN, Tone.GOOD, (SIGN,), (Remark(SIGN),)),
    Points((SIGN,)),
    Prose(SIGN),
    Remark((*(Styled(SIGN, look) for look in Typeface), SIGN)),
    Table((SIGN,), ((SIGN, SIGN),), (RowLine("{0}"), RowLine("{1}")), has_head=True),
)
IN_HTML_ALONE = (
    Bars((0, 1), Tone.BAD),
    CellToCopy(Markup("x = 1"), ""),
    Foldout(SIGN, (SIGN,)),
    Flame(frame_tree([([SIGN], 1, 1)], SIGN)),
    Image("", ""),
    NextCell(SIGN),
    Outline(((SIGN, None),)),
    ShareBar(0.5, 0.1),
    Tree((TreeLine(0, SIGN),)),
    TwoBars(0.2, 0.5, Tone.BAD),
)
SILENT = (Gap(), Drawn(lambda: Markup("")), Drawn(lambda: (Gap(),)))


def test_the_samples_are_of_every_kind():
    kinds = {block.kind for block in (*ONE_OF_EACH, *IN_HTML_ALONE, *SILENT)}
    assert kinds == {kind.__name__ for kind in DocumentBlock.__subclasses__()}


@pytest.mark.parametrize("block", ONE_OF_EACH, ids=lambda block: block.kind)
def test_every_writer_knows_the_block_and_escapes_its_words(block):
    assert SIGN in text_of(Document((block,)))
    markup = html_of(Document((block,)))
    assert "&lt;i&gt;" in markup
    assert SIGN not in markup


def test_a_picture_is_in_html_alone_with_the_words_for_those_who_cannot_see_it():
    for image in ("<svg></svg>", b"a picture"):
        document = Document((Image(image, SIGN),))
        assert text_of(document).strip() == ""
        assert 'alt="&lt;i&gt;"' in html_of(document)


@pytest.mark.parametrize("block", IN_HTML_ALONE, ids=lambda block: block.kind)
def test_some_blocks_are_in_html_alone(block):
    assert text_of(Document((block,))).strip() == ""
    assert html_of(Document((block,))) != html_of(Document(()))
    assert SIGN not in html_of(Document((block,)))


@pytest.mark.parametrize("block", SILENT, ids=lambda block: block.kind)
def test_a_block_that_says_nothing_is_written_as_well(block):
    assert text_of(Document((block,))).strip() == ""
    assert html_of(Document((block,))) == html_of(Document(()))


def test_a_row_stands_in_text_as_its_lines_say_and_an_empty_line_is_left_out():
    rows = (("1.00 KiB", code("x"), "list"), ("2 B", code("y"), ""))
    table = Table((">size", "holder"), rows, (RowLine("{0:>9}  {1}"), RowLine("{2}", 13, 13)), has_head=True)
    assert text_of(Document((table,))) == "       size  holder\n   1.00 KiB  x\n             list\n        2 B  y\n"


def test_a_chapter_without_blocks_has_no_title():
    chapters = Document((Chapter("empty", ()), Chapter("full", notes_of(["this is so"]))))
    assert text_of(chapters) == "\nfull\nnote: this is so\n"
    assert "empty" not in html_of(chapters)
