"""The explorer keeps no object of the user: not while it is open, and nothing at all once it is closed."""

from __future__ import annotations

import gc
import json
import sys
import types
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import samples
import torch
from ipywidgets.widgets import widget as ipywidgets_home
from notebook_shell import open_notebook
from user_objects import KINDS, build_object

from leaklab.explorer.session import Session
from leaklab.explorer.widget import ExplorerWidget
from leaklab.reports.check import LeakReport
from leaklab.runtime.autograd_graph import inputs_of, is_node_type, result_of

pytestmark = pytest.mark.untraced  # runs a whole check

LEAK = """
for kind in KINDS:
    kept[kind].append(build_object(kind, watched[kind]))
"""
N_FIRST = 2
"""So many objects of each kind stay when the others, which the explorers have looked at, are deleted."""


@dataclass
class Story:
    """What was alive when.

    Attributes:
        sent: What the pages got, by the number of the question.
        holders: The holders of the report's leaks.
        while_open: For each kind which of the deleted objects lived on while two explorers were open.
        at_the_end: For each kind what lived on after both were closed and the report and all variables deleted.
        widgets: Which widgets, sessions and lines to the page lived on after that.
        counts: Open widgets and all objects of the process, after some of fifty rounds of opening and closing.
    """

    sent: dict[str, list[dict]] = field(default_factory=dict)
    holders: tuple[str, ...] = ()
    while_open: dict[str, list] = field(default_factory=dict)
    at_the_end: dict[str, list] = field(default_factory=dict)
    widgets: list = field(default_factory=list)
    counts: list[tuple[int, int]] = field(default_factory=list)

    def answers(self, question):
        """Return the last answer to each time that *question* was asked."""
        return [said[-1] for name, said in self.sent.items() if name.startswith(f"{question} ")]


class Page:
    """The browser's side of one explorer: it sends what the buttons send."""

    def __init__(self, widget, story):
        self._line, self._story = widget.comm, story

    def ask(self, question, **values):
        """Send a question as the browser does and return the last answer."""
        number = f"{question} {len(self._story.sent)}"
        self._story.sent[number] = []
        content = {**values, "ask": question, "id": number}
        self._line.handle_msg({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})
        return self._story.sent[number][-1] if self._story.sent[number] else {}

    def agree(self, question, **values):
        """Ask, and once more where the explorer asks back."""
        assert "confirm" in self.ask(question, **values)
        return self.ask(question, **values, sure=True)

    def use_graph(self, target):
        """Look for the object of a row, open one of its holders, ignore it, take that back, forget it all."""
        nodes = self.ask("look", target=target, change="", key="")["graph"]["nodes"]
        keys = [node["key"] for node in nodes if node["role"] == "object"]
        for key in keys[-1:]:
            self.ask("look", target=target, change="open", key=key)
            hidden = self.ask("look", target=target, change="hide", key=key)["graph"]["hidden"]
            self.ask("look", target=target, change="show", key=hidden[0][0])
            self.ask("look", target=target, change="reset", key="")

    def use_memory(self):
        """Read the memory, and ask all that can be asked about what was found in it."""
        moment = self.ask("memory")["memory"]["moment"]
        found = self.ask("search", kind="", where="held_by('kept')")["found"]
        for number in found["numbers"]:
            target = f"object {moment} {number}"
            for question in ("inspect", "values"):
                self.ask(question, target=target)
        self.ask("put", target=target, name="weakly")
        self.ask("look", target=target, change="", key="")


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    told = Story()
    with open_notebook() as notebook, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExplorerWidget, "send", noting(told))
        notebook.run("%load_ext leaklab")
        tell(told, notebook, tmp_path_factory.mktemp("exported") / "report.json")
    return told


def noting(told):
    """Return a `send` that also notes what the page gets, which must be plain data."""
    send = ExplorerWidget.send

    def send_and_note(widget, content, buffers=None):
        told.sent[content["answer"]].append(json.loads(json.dumps(content)))
        send(widget, content, buffers)

    return send_and_note


def tell(told, notebook, file):
    watched = make_report(notebook)
    told.holders = tuple(leak.holder for leak in notebook.user["the_report"].leaks)
    notebook.run("import leaklab; on_report = leaklab.explore(the_report, again=lambda: before)")
    notebook.run("on_heap = leaklab.explore()")
    told.widgets = [part for name in ("on_report", "on_heap") for part in parts_of(notebook.user[name].widget)]
    on_report, on_heap = (Page(notebook.user[name].widget, told) for name in ("on_report", "on_heap"))
    on_heap.ask("look", target=0)
    with small_heap(notebook.user["kept"]):
        # The lists of weak references that the test watches by grow as well; they are gone from the notebook by now.
        for target in (target for target, holder in enumerate(told.holders) if holder.startswith("kept[")):
            on_report.ask("look", target=target, change="", key="")
            on_report.ask("explain", target=target)
            on_report.ask("autograd", target=target)
        on_report.use_graph(0)
        on_heap.use_graph(0)
        on_report.use_memory()
    delete_what_was_looked_at(notebook)
    told.while_open = {kind: alive(refs[2 * N_FIRST :]) for kind, refs in watched.items()}
    with small_heap(notebook.user["kept"]):
        on_report.ask("look", target=0)
        on_heap.ask("again")
        on_heap.use_graph(0)
        told.counts = open_and_close(notebook)
    use_buttons(on_report, file)
    on_report.ask("close")
    notebook.run("on_heap.close()")
    del on_report, on_heap
    notebook.run("del kept, the_report, before, on_report, on_heap")
    gc.collect()
    told.at_the_end = {kind: alive(refs) for kind, refs in watched.items()}
    told.widgets = alive(told.widgets)


def make_report(notebook):
    """Check a cell that leaks objects of all kinds; return weak references to them, and to what they lead to."""
    watched = {kind: [] for kind in KINDS}
    kept = {kind: [] for kind in KINDS}
    notebook.user.update(KINDS=KINDS, build_object=build_object, watched=watched, kept=kept)
    notebook.user["before"] = LeakReport(samples.leaky_check())
    assert notebook.check(LEAK, "-n 5 --no-sites").leaked
    del notebook.user["watched"]
    return watched


def parts_of(widget):
    session = widget._session
    return [weakref.ref(part) for part in (widget, widget.layout, widget.comm, session, session.source, session._looks)]


def alive(references):
    """Return the kinds of what is still alive."""
    return [type(reference()).__name__ for reference in references if reference() is not None]


@contextmanager
def small_heap(kept):
    """Let looks see a heap of what *kept* leads to: to read and to collect all of the process takes a second each."""
    worlds = frozenset(id(vars(module)) for module in list(sys.modules.values()) if type(module) is types.ModuleType)

    def heap_objects(*, frozen_too):
        found, pending = {}, [kept]
        while pending:
            thing = pending.pop()
            if id(thing) in found or not gc.is_tracked(thing) or id(thing) in worlds or is_of_a_library(thing):
                continue
            found[id(thing)] = thing
            pending += [*gc.get_referents(thing), *graph_behind(thing)]
        return list(found.values())

    gc.freeze()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("leaklab.measure.checkpoint.heap_objects", heap_objects)
            patch.setattr("leaklab.measure.checkpoint.user_has_frozen", lambda: False)
            yield
    finally:
        gc.unfreeze()


def graph_behind(thing):
    """Return the autograd nodes that *thing* refers to, which the collector does not report."""
    if is_node_type(type(thing)):
        return [node for node, _ in inputs_of(thing) if node is not None]
    made = result_of(thing) if isinstance(thing, torch.Tensor) else None
    return [made[0]] if made else []


def is_of_a_library(thing):
    return type(thing) in (types.ModuleType, types.FrameType) or (type(thing) is type and thing.__name__ != "Made")


def delete_what_was_looked_at(notebook):
    for things in notebook.user["kept"].values():
        del things[N_FIRST:]
    gc.collect()


def open_and_close(notebook):
    """Return how many widgets and how many objects there are after each ten of fifty rounds."""
    check = notebook.user["the_report"].check
    report, counts = LeakReport(samples.replace(check, leaks=check.leaks[:1], bounded=())), []
    for number in range(50):
        session = Session(report, notebook.shell, notebook.user)
        widget = ExplorerWidget(session)
        if number % 5 == 0:
            session.answer("look", {"target": 0})
        widget.close()
        del widget, session
        if number % 10 == 9:
            gc.collect()
            counts.append((len(ipywidgets_home._instances), len(gc.get_objects())))
    return counts


def use_buttons(page, file):
    """Press what is not about one row."""
    page.ask("renderer")
    page.ask("draw", dot="digraph { a -> b }")
    page.ask("compare", **{"with": "before"})
    page.ask("export", path=str(file))
    page.agree("export", path=str(file))
    page.ask("release", sure=True)
    page.agree("again")
    page.ask("look", target=0)


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_dies_with_its_variable_while_the_explorers_that_showed_it_are_open(story, kind):
    assert story.while_open[kind] == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_dies_when_explorer_report_and_variables_are_gone(story, kind):
    assert story.at_the_end[kind] == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_report_that_was_explored_has_a_leak_of_each_kind(story, kind):
    assert any(f"kept[{kind!r}]" in holder for holder in story.holders), story.holders


def test_all_widgets_sessions_and_lines_to_the_page_are_gone_after_the_close(story):
    assert story.widgets == []


def test_fifty_rounds_of_opening_looking_and_closing_leave_a_flat_count(story):
    assert len(set(story.counts)) == 1, story.counts


def test_every_look_and_every_explanation_was_answered(story):
    *looks, after_the_other_report = story.answers("look")
    assert [answer for answer in looks if "graph" not in answer] == []
    assert after_the_other_report["error"] == "trainer.history[3] is gone (NameError)"
    assert [answer for answer in story.answers("explain") if "explanation" not in answer] == []
    assert len(story.answers("inspect")) > len(KINDS)
    assert [answer for answer in story.answers("inspect") if "inspected" not in answer] == []
    assert sum("values" in answer for answer in story.answers("values")) > len(KINDS)
    behind = story.answers("autograd")
    assert sum("autograd" in answer for answer in behind) == 5  # tensors with a graph
    assert {answer["error"][:15] for answer in behind if "error" in answer} == {"nothing to show"}


def test_the_other_buttons_did_what_they_say(story):
    said = {name: story.answers(name) for name in ("renderer", "draw", "compare", "export", "release", "again")}
    assert {name: [*sorted(answer)][-1] for name, (*_, answer) in said.items()} == {
        "renderer": "answer", "draw": "svg", "compare": "comparison", "export": "message", "release": "message",
        "again": "comparison",
    }  # fmt: skip


def test_a_closed_widget_that_is_kept_keeps_neither_report_nor_variables():
    variables = {"held": Holder()}
    widget = ExplorerWidget(Session(LeakReport(samples.leaky_check()), None, variables))
    there = weakref.ref(variables["held"])
    widget.close()
    del variables
    gc.collect()
    assert there() is None
    assert widget._session.report is None


class Holder:
    """A thing of the user."""
