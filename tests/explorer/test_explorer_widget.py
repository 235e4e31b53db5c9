"""The explorer without a page: what it sends, what it answers, and that closing it frees everything."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import types
import weakref
from dataclasses import replace

import pytest
import samples
from anywidget._util import enable_custom_widget_manager_once
from ipywidgets.widgets import widget as ipywidgets_home
from samples import history_leak, leaky_check

import leaklab
from leaklab.explorer.payload import MAX_LEAKS, advice_blocks, report_data, source_around
from leaklab.explorer.session import Session
from leaklab.explorer.widget import ExplorerWidget, explore, renderer, script, style
from leaklab.model import Outcome, RootPath, Status, Step
from leaklab.model.check import Way
from leaklab.reports.check import LeakReport
from leaklab.text import clip, clip_block

MEGABYTE = "<script>alert(1)</script>\"'&{}|\u202e\udc80" + "A" * 1_000_000


@pytest.fixture(autouse=True)
def no_widget_is_left_open():
    """A test that leaves a widget of its own in ipywidgets' table fails."""
    before = set(ipywidgets_home._instances)
    yield
    assert set(ipywidgets_home._instances) - before == set()


@pytest.fixture
def report():
    return LeakReport(samples.leaky_check())


def answers_of(widget, monkeypatch):
    """Return the list into which *widget* sends from now on."""
    sent = []
    monkeypatch.setattr(ExplorerWidget, "send", lambda _widget, content, buffers=None: sent.append((content, buffers)))
    return sent


def test_record_is_json_without_an_object_of_the_user(report):
    data = report_data(report.check, [])
    assert json.loads(json.dumps(data)) == data
    assert [item["holder"] for item in data["items"] if item["outcome"] == "leak"] == [
        leak.holder for leak in report.leaks
    ]


def test_hostile_texts_of_a_megabyte_are_cut_and_made_visible(report):
    step = Step(MEGABYTE, MEGABYTE, MEGABYTE, Status.LEAKED, MEGABYTE)
    leak = samples.replace(
        report.leaks[0], what=MEGABYTE, holder=MEGABYTE, advice=f"{MEGABYTE}\n    {MEGABYTE}", sites=(MEGABYTE,),
        path=RootPath(MEGABYTE, (step,)), reason=MEGABYTE, cause=MEGABYTE, fingerprint=MEGABYTE,
    )  # fmt: skip
    text = json.dumps(report_data(samples.replace(report.check, leaks=(leak,), notes=(MEGABYTE,)), []))
    assert len(text) < 150_000
    assert "\\u202e" not in text.replace("\\\\u202e", "")
    assert "\\udc80" not in text.replace("\\\\udc80", "")


def test_clip_keeps_the_beginning_and_the_end():
    assert clip("abcdefghij" * 10, 13) == "abcdef...ghij"
    assert clip_block("one\ntwo\u202e") == "one\ntwo\\u202e"


def test_advice_is_split_into_sentences_and_code():
    advice = (
        "Store the value.\n  before: history.append(loss)\n"
        "  after:  history.append(\n              loss.item()\n          )\nNot always."
    )
    assert [(block["code"], block["label"], block["text"]) for block in advice_blocks(advice)] == [
        (False, "", "Store the value."),
        (True, "before", "history.append(loss)"),
        (True, "after", "history.append(\n    loss.item()\n)"),
        (False, "", "Not always."),
    ]  # fmt: skip


def test_source_is_found_around_a_line_of_a_cell():
    cells = ["", "a = 1\nb = 2\nc = 3\nd = 4\ne = 5"]
    assert source_around("Cell In[1], line 4: d = 4  # keeps it", cells) == [
        (2, "b = 2", False), (3, "c = 3", False), (4, "d = 4", True), (5, "e = 5", False),
    ]  # fmt: skip
    assert source_around("this cell, line 1: x  # makes it", cells, "x\ny") == [(1, "x", True), (2, "y", False)]
    assert source_around("Cell In[9], line 1", cells) == []


def test_the_scripts_are_one_module_that_asks_no_server():
    assert script().count("export default") == 1
    assert "http" not in script().replace("http://www.w3.org/2000/svg", "")
    assert "innerHTML" not in script()
    assert "url(" not in style()
    assert b"export{" in renderer()
    assert b"sourceMappingURL" not in renderer()


def test_explore_shows_the_static_report_before_the_widget(notebook, report):
    notebook.user["report"] = report
    notebook.run("import leaklab")
    typed = notebook.run("explorer = leaklab.explore(report)")
    assert typed.error is None
    assert str(report)[:40] in typed.out
    notebook.run("explorer.close()")
    assert notebook.user["explorer"].is_closed


def test_explore_refuses_what_is_no_report():
    with pytest.raises(TypeError, match="takes the report of a check, or nothing for the living heap, not str"):
        explore("report.json")
    with pytest.raises(TypeError, match="namespace must be a dict of variables, not list"):
        explore(namespace=[])
    with pytest.raises(TypeError, match="again must be a function that returns a new report, not int"):
        explore(again=3)


def test_closing_frees_all_widgets_and_the_report(report, capsys):
    explorer = explore(report, namespace={})
    watched = [weakref.ref(explorer.widget), weakref.ref(explorer.widget.layout), weakref.ref(explorer.widget._session)]
    explorer.close()
    explorer.close()
    gc.collect()
    assert [ref() for ref in watched] == [None, None, None]
    assert repr(explorer) == "<Explorer of a check: leak, closed>"


def test_fifty_rounds_of_opening_and_closing_leave_a_flat_count(report, capsys):
    counts = []
    for _ in range(50):
        session = Session(report, None, {})
        ExplorerWidget(session).close()
        counts.append(len(ipywidgets_home._instances))
        del session
    gc.collect()
    alive = sum(type(thing) is Session or type(thing).__name__ == "ExplorerWidget" for thing in gc.get_objects())
    assert len(set(counts)) == 1
    assert alive == 0


def test_page_is_answered_and_wrong_questions_get_a_sentence(report, monkeypatch):
    widget = ExplorerWidget(Session(report, None, {}))
    sent = answers_of(widget, monkeypatch)
    widget._received({"ask": "compare", "id": 1}, [])
    widget._received({"ask": "nonsense", "id": 2}, [])
    widget._received({"ask": "renderer", "id": 3}, [])
    widget._received("no question", [])
    widget.close()
    assert [content for content, _ in sent] == [
        {"answer": 1, "accepted": True},
        {
            "answer": 1,
            "error": "there is no other check to compare with: store one in a variable (%%leakcheck -v before), "
            "or run again",
        },
        {"answer": 2, "accepted": True},
        {"answer": 2, "error": "there is no answer to 'nonsense'"},
        {"answer": 3},
    ]
    assert sent[-1][1] == [renderer()]


def test_a_question_from_another_thread_is_not_answered_there(report, monkeypatch):
    asked_in = []
    monkeypatch.setattr(Session, "answer", lambda *_: asked_in.append(threading.current_thread()) or {})
    widget = ExplorerWidget(Session(report, None, {}))
    sent = answers_of(widget, monkeypatch)
    thread = threading.Thread(target=widget._received, args=({"ask": "again", "id": 1}, []))
    thread.start()
    thread.join()
    widget.close()
    assert asked_in == []
    assert sent == [({"answer": 1, "error": "busy: a cell is running; ask again when it has ended"}, None)]


def test_a_question_from_another_thread_is_answered_by_the_loop_of_the_notebook(report, monkeypatch):
    asked_in = []
    monkeypatch.setattr(Session, "answer", lambda *_: asked_in.append(threading.current_thread()) or {})

    async def cell():
        widget = ExplorerWidget(Session(report, None, {}))
        await asyncio.to_thread(widget._received, {"ask": "again", "id": 1}, [])
        for _ in range(100):
            if asked_in:
                break
            await asyncio.sleep(0.01)
        widget.close()

    asyncio.run(cell())
    assert asked_in == [threading.main_thread()]


def test_a_second_question_while_one_is_answered_gets_busy(report, monkeypatch):
    widget = ExplorerWidget(Session(report, None, {}))
    sent = answers_of(widget, monkeypatch)
    monkeypatch.setattr(Session, "answer", lambda *_: widget._received({"ask": "explain", "id": 2}, []) or {})
    widget._received({"ask": "again", "id": 1}, [])
    widget.close()
    assert {"answer": 2, "error": "busy: the explorer is still at work on the question before this one"} in [
        content for content, _ in sent
    ]


def test_explore_is_public():
    assert leaklab.explore is explore
    assert "explore" in leaklab.__all__


LINE, OTHER = "Cell In[1], line 1: store.keep()", "Cell In[1], line 2: other.keep()"


def leak_at(attribute, site=LINE, **facts):
    steps = (
        Step("store", "Store", "", Status.EXPECTED), Step(attribute, "list", "", Status.EXPECTED),
        Step("[3]", "torch.Tensor", "", Status.LEAKED),
    )  # fmt: skip
    holder = f"store{attribute}"
    path = RootPath("notebook variable", steps)
    facts = {"what": "torch.Tensor (8,)", "bytes_per_run": 100.0, "count_per_run": 1.0, **facts}
    return replace(history_leak(), path=path, holder=holder, fingerprint=holder, sites=(site,), **facts)


def data_of(*leaks):
    data = report_data(replace(leaky_check(), leaks=leaks), [])
    assert json.loads(json.dumps(data)) == data
    return data


def test_leaks_of_one_line_and_one_cause_are_one_row_that_counts_them():
    data = data_of(leak_at(".a"), leak_at(".other", OTHER), *(leak_at(f".kept_{i:02}") for i in range(40)))
    (group,) = data["groups"]
    assert (group["words"], group["places"]) == ("41 leaks", [0, *range(2, 42)])
    assert group["row"] == {
        "outcome": "leak", "what": "torch.Tensor (8,)", "holder": LINE, "count_per_run": 41.0,
        "bytes_per_run": 4100.0, "retained": None, "cause": history_leak().cause,
    }  # fmt: skip
    assert [0, "all 41 places through `store`"] in group["paths"]
    assert [1, "40 of 41 through `.kept_#`"] in group["paths"]


def test_what_is_not_proved_is_not_counted_as_leaks():
    verdict = replace(leaky_check().verdict, outcome=Outcome.INCONCLUSIVE)
    (group,) = report_data(replace(leaky_check(), verdict=verdict, leaks=(leak_at(".a"), leak_at(".b"))), [])["groups"]
    assert (group["words"], group["row"]["outcome"]) == ("2 places", "inconclusive")


def test_a_line_with_two_causes_and_leaks_without_a_line_are_not_folded():
    assert data_of(leak_at(".a"), leak_at(".b", cause="hook"))["groups"] == []
    assert data_of(leak_at(".a"), leak_at(".b", OTHER))["groups"] == []
    unknown = [replace(leak_at(name), sites=()) for name in (".a", ".b")]
    assert data_of(*unknown)["groups"] == []


def test_counts_of_different_units_are_not_added():
    (group,) = data_of(leak_at(".a"), leak_at(".b", unit="entries", what="entries of a dict"))["groups"]
    assert group["row"]["count_per_run"] is None
    assert group["row"]["what"] == "torch.Tensor (8,) and 1 kind more"


def test_a_group_counts_also_the_leaks_that_the_list_has_no_room_for():
    data = data_of(*(leak_at(f".kept_{i}") for i in range(MAX_LEAKS + 50)))
    (group,) = data["groups"]
    assert (len(data["items"]), len(group["places"])) == (MAX_LEAKS, MAX_LEAKS)
    assert group["words"] == f"{MAX_LEAKS + 50} leaks"
    assert group["row"]["count_per_run"] == MAX_LEAKS + 50


def test_paths_to_what_a_leak_keeps_are_merged_with_their_counts():
    ways = (Way(("[i]", "['loss']"), "torch.Tensor", 23), Way(("[i]", "['final']"), "torch.Tensor", 1))
    (item, plain) = data_of(leak_at(".a", ways=ways, kept=(2,) * 13), leak_at(".b", OTHER))["items"][:2]
    assert item["ways"] == [
        [0, "all 24 objects through `[i]`"],
        [1, "23 of 24 through `['loss']` (torch.Tensor)"],
        [1, "1 of 24 through `['final']` (torch.Tensor)"],
    ]
    assert plain["ways"] == []
    assert "all paths" not in dict(item["facts"])


def test_texts_of_groups_and_paths_are_cut_and_made_visible():
    bad = "<img>\u202e" + "A" * 100_000
    ways = (Way((bad, bad), bad, 3), Way((bad,), bad, 3))
    data = data_of(*(leak_at(name, bad, ways=ways, what=bad) for name in (".a", ".b")))
    text = json.dumps([data["groups"], data["items"][0]["ways"]])
    assert "\\u202e" not in text.replace("\\\\u202e", "")
    assert len(text) < 5_000


COLAB_PAGE = "https://example.invalid/manager.min.js"


def test_in_colab_the_explorer_asks_for_the_manager_of_foreign_widgets(report, monkeypatch):
    """As Colab documents it: nothing but `google.colab.output` tells that a kernel is one of Colab's."""
    asked = []
    colab = types.ModuleType("google.colab.output")
    colab.enable_custom_widget_manager = lambda: asked.append(True)
    colab._widgets = types.SimpleNamespace(_installed_url=COLAB_PAGE)
    monkeypatch.setitem(sys.modules, "google.colab.output", colab)
    enable_custom_widget_manager_once.cache_clear()
    widget = ExplorerWidget(Session(report, None, {}))
    try:
        data, metadata = widget._repr_mimebundle_()
        assert asked == [True]
        assert (
            metadata["application/vnd.jupyter.widget-view+json"]["colab"]["custom_widget_manager"]["url"] == COLAB_PAGE
        )
        assert data["text/plain"] == repr(widget)  # what is read where no widget is drawn
    finally:
        widget.close()
        enable_custom_widget_manager_once.cache_clear()
