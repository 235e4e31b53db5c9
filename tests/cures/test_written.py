"""What somebody writes, a unified diff or new source, becomes changes of the lines that it means, or one sentence."""

from __future__ import annotations

import difflib
from textwrap import indent

import pytest

import leaklab
from leaklab.cure.edits import MAGIC_LINE, edited
from leaklab.cure.source import Program
from leaklab.cure.written import WrittenProgram, written_changes

CELL = """\
for batch in batches:
    loss = step(batch)
    history.append(loss)
print(len(history))
"""
HELPERS = """\
class Trainer:
    def step(self, batch):
        self.seen.append(batch)
        return batch.sum()


@decorated
def step(batch):
    return trainer.step(batch)
"""


def program(*, function: str = "", cell: str = CELL, **others: str) -> WrittenProgram:
    texts = {"cell": cell, "helpers.py": HELPERS, **others}

    def place(filename: str, line: int) -> str:
        return f"this cell, line {line}" if filename == "cell" else f"{filename}:{line}"

    running = Program({}, texts.get, place, "cell", function)
    return WrittenProgram(running, tuple(texts))


def result(text: str, of: WrittenProgram) -> dict[str, str]:
    """Return the files that *text* changes, with their new texts."""
    changes = written_changes(text, of)
    names = dict.fromkeys(change.filename for change in changes)
    return {
        name: edited(of.program.source(name) or "", [one for one in changes if one.filename == name]) for name in names
    }


def diff(before: str, after: str, name: str = "this cell", context: int = 3) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="", n=context)
    return "\n".join(lines)


BETTER = CELL.replace("append(loss)", "append(loss.item())")
SHORT = """
--- a/other
+++ b/other
@@ -30,2 +30,2 @@
     loss = step(batch)
-    history.append(loss)
+    history.append(loss.item())
"""


@pytest.mark.parametrize(
    "text",
    [
        BETTER, f"\n\n{BETTER}\n", diff(CELL, BETTER), diff(CELL, BETTER, "a/nobody.py"), diff(CELL, BETTER, context=0),
        f"Here is the change:\n{diff(CELL, BETTER)}\n\n", SHORT, indent(SHORT, "    "),
        diff(f"{CELL}\n\n", f"{BETTER}\n\n"), diff(f"\n{CELL}", f"\n{BETTER}"),
    ],
)  # fmt: skip
def test_a_change_of_the_cell_is_read_however_it_is_written(text):
    assert result(text, program()) == {"cell": BETTER}


@pytest.mark.parametrize(
    "after",
    [
        f"first()\n{CELL}", f"{CELL}last()\n", CELL.replace("print(len(history))\n", ""), "pass\n",
        CELL.replace("    loss", "    a()\n\n    loss"), f"a()\n{CELL.replace('print', 'b()')}".replace("loss)", "1)"),
        CELL.replace("    loss = step(batch)\n", ""), CELL.replace("batches", "one").replace("step", "two"),
    ],
)  # fmt: skip
def test_every_line_may_come_go_or_differ(after):
    assert result(after, program())["cell"].rstrip() == after.rstrip()
    assert result(diff(CELL, after), program())["cell"].rstrip() == after.rstrip()


def test_the_line_of_the_magic_stays_where_it_is():
    cell = MAGIC_LINE + CELL
    running = program(cell=cell)
    with_magic = WrittenProgram(
        running.program, running.files, cell, lambda text: MAGIC_LINE + text.removeprefix(MAGIC_LINE)
    )
    shown, better = f"%%leakcheck -n 24\n{CELL}", f"%%leakcheck -n 24\n{BETTER}"
    for text in (BETTER, diff(CELL, BETTER), diff(shown, better), diff(cell, MAGIC_LINE + BETTER)):
        assert result(text, with_magic) == {"cell": MAGIC_LINE + BETTER}
    (change,) = written_changes(diff(CELL, BETTER), with_magic)
    assert change.where == "this cell, line 4"


def test_a_function_is_found_by_its_name_wherever_it_is():
    new = "@decorated\ndef step(batch):\n    return trainer.step(batch.detach())"
    changed = result(new, program())
    assert list(changed) == ["helpers.py"]
    assert changed["helpers.py"] == HELPERS.replace("trainer.step(batch)", "trainer.step(batch.detach())")


def test_a_class_may_get_another_method():
    new = HELPERS.partition("\n\n\n")[0].replace("self.seen.append(batch)\n", "pass\n") + "\n    def clear(self): ..."
    changed = result(new, program())["helpers.py"]
    assert "self.seen" not in changed
    assert "    def clear(self): ...\n\n\n@decorated\ndef step" in changed


def test_a_method_gets_the_indentation_of_the_old_one():
    helpers = HELPERS.partition("\n\n\n")[0]
    new = "def step(self, batch):\n    return batch.sum()"
    changed = result(new, program(**{"helpers.py": helpers}))
    assert changed == {"helpers.py": "class Trainer:\n    def step(self, batch):\n        return batch.sum()"}


def test_one_diff_may_change_several_files():
    both = diff(HELPERS, HELPERS.replace("seen.append", "seen.add"), "a/helpers.py") + "\n" + diff(CELL, BETTER)
    assert result(both, program()) == {"helpers.py": HELPERS.replace("seen.append", "seen.add"), "cell": BETTER}


def test_of_equal_lines_those_are_meant_that_are_named():
    of = program(**{"In [7]": CELL})
    assert list(result(diff(CELL, BETTER, "In [7]"), of)) == ["In [7]"]
    assert list(result(diff(CELL, BETTER), of)) == ["cell"]
    twice = program(cell="a()\nb()\na()\n")
    assert result("@@ -3 +3 @@\n-a()\n+c()", twice) == {"cell": "a()\nb()\nc()\n"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the change is empty"),
        (CELL, "leaves the program as it is"),
        (CELL.replace("step(batch)", "step(batch)  # as ever"), "leaves the program as it is"),
        ("# nothing", "leaves no statement"),
        ("for x in", "not valid Python: invalid syntax in line 1"),
        (diff(CELL, CELL.replace("batches:", "batches")), "not valid Python: expected ':'"),
        ("def other():\n    pass", "no function or class `other`"),
        (SHORT.replace("step(batch)", "go(batch)"), "this cell, at @@ -30,2 +30,2 @@: it has no line `loss = go"),
        (SHORT.replace("-    history", "     print(len(history))\n-    history"), "its lines are not together"),
        (SHORT.replace("a/other", "a/helpers.py").replace("b/other", "b/helpers.py"), "does not fit helpers.py"),
    ],
)  # fmt: skip
def test_what_is_no_change_of_the_program_is_said_in_one_sentence(text, message):
    with pytest.raises(leaklab.ChangeError) as raised:
        written_changes(text, program())
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_body_of_a_function_is_no_source_of_one():
    with pytest.raises(leaklab.ChangeError, match="that of a function or a class"):
        written_changes("history.append(1)", program(function="train"))


def test_a_definition_that_is_there_twice_has_to_be_named_by_a_diff():
    with pytest.raises(leaklab.ChangeError, match="2 definitions called `step`"):
        written_changes("def step(): pass", program(**{"helpers.py": f"{HELPERS}\n{HELPERS}"}))


def test_where_no_source_is_known_nothing_can_be_changed():
    unknown = Program({}, lambda _name: None, lambda name, _line: name, "cell")
    with pytest.raises(leaklab.ChangeError, match="source of the checked code is not known"):
        written_changes("pass", WrittenProgram(unknown))
