"""The statement that fills a holder is found in the user's sources, if it is the only one."""

from __future__ import annotations

import linecache

import pytest

from leaklab.heap.source_lines import find_line


@pytest.fixture
def cell():
    """Put text where IPython puts a cell's, as cell 7."""
    names = []

    def add(text, number=7):
        name = f"<ipython-input-{number}-{len(names):012x}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        names.append(name)

    yield add
    for name in names:
        linecache.cache.pop(name, None)


@pytest.mark.parametrize(
    ("text", "holder", "statement"),
    [
        ("zq_history.append(loss)", "zq_history", "zq_history.append(loss)"),
        ("self.zq_log.append(f(x))", "trainer.zq_log", "self.zq_log.append(f(x))"),
        ("zq_cache[key] = value", "zq_cache", "zq_cache[key] = value"),
        ("zq_total += loss * 2", "zq_total", "zq_total += loss * 2"),
        ("zq_runs[name]['loss'].append(x)", "zq_runs['a']['loss']", "zq_runs[name]['loss'].append(x)"),
        ("zq_seen.extend(\n    rows\n)", "zq_seen", "zq_seen.extend( rows )"),
    ],
)
def test_the_line_that_adds_is_found(cell, text, holder, statement):
    cell(f"# a comment\n\nfor step in range(3):\n    {text}\n" if "\n" not in text else f"\n\n\n{text}\n")
    line = find_line(holder)
    assert (line.place, line.text) == ("Cell In[7], line 4", statement)


@pytest.mark.parametrize(
    "text", ["zq_b.remove(x)", "zq_b = []", "print(zq_b)", "zq_b.append(", "other.append(zq_b)", ""]
)
def test_a_line_that_adds_nothing_is_not_named(cell, text):
    cell(text)
    assert find_line("zq_b") is None


def test_two_different_lines_are_none(cell):
    cell("zq_c.append(a)\nzq_c.append(b)")
    assert find_line("zq_c") is None


def test_the_same_line_in_two_cells_is_one_line_of_the_newest(cell):
    cell("zq_d.append(a)", 3)
    cell("\nzq_d.append(a)", 9)
    assert find_line("zq_d").place == "Cell In[9], line 2"


@pytest.mark.parametrize("holder", ["", "globals()", "[3]"])
def test_a_holder_without_a_name_has_no_line(holder):
    assert find_line(holder) is None
