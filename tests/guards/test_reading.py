"""A page is read for what it says and does, not for how it is laid out."""

from __future__ import annotations

import pytest
from making import reading

PAGE = '<div style="a"><b>2 leaks</b> in <code>x</code><div><a href="#one">see</a></div></div><pre>if a:\n    b\n</pre>'


@pytest.mark.parametrize(
    "again",
    [
        PAGE.replace("div", "section"),
        PAGE.replace("<b>2 leaks</b> in", "<p>2 leaks</p>\n<p>in</p>"),
        PAGE.replace(' style="a"', ' class="b"'),
        PAGE.replace("2 leaks", "2\n  leaks").replace("see", "s&#101;e"),
    ],
)
def test_another_layout_reads_the_same(again):
    assert again != PAGE
    assert reading(again) == reading(PAGE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2 leaks", "3 leaks"),
        ("<b>2 leaks</b> in", "in <b>2 leaks</b>"),
        ("leaks</b> in", "leaks</b>in"),
        ("#one", "#two"),
        ("<code>", '<code title="a hint">'),
        ("<code>", '<code onclick="go()">'),
        ("x</code>", "<script>x</script></code>"),
        ("    b", "  b"),
    ],
)
def test_other_words_links_hints_scripts_and_code_read_otherwise(old, new):
    assert reading(PAGE.replace(old, new)) != reading(PAGE)
