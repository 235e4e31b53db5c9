"""What the explorer answers about living objects: paths, further holders, ignored holders, and what is gone."""

import gc
import sys
import types
import weakref

import pytest
import samples
import torch

from leaklab.ask.alive import GoneError, at_address, evaluate, expressions_of, look_at, modules_of
from leaklab.explorer.in_notebook import find_cell, held_by_notebook, let_go
from leaklab.explorer.session import Session
from leaklab.model import RootPath, Status, Step
from leaklab.reports.check import LeakReport


class Trainer:
    pass


def make_variables():
    trainer = Trainer()
    trainer.history = [torch.ones(4), torch.ones(5)]
    return {"trainer": trainer, "also": {"copy": trainer.history}}


def path_of(*references):
    return RootPath("notebook variable", tuple(Step(text, "thing", "", Status.UNKNOWN) for text in references))


def session_on(variables, *references):
    check = samples.leaky_check()
    leak = samples.replace(check.leaks[0], path=path_of(*references))
    return Session(LeakReport(samples.replace(check, leaks=(leak,), bounded=())), None, variables)


def labels(graph):
    """Return every reference of a graph as words."""
    kinds = {node["key"]: node["kind"].rpartition(".")[2] for node in graph["nodes"]}
    return {f"{kinds[link['holder']]} {link['reference']} {kinds[link['held']]}" for link in graph["links"]}


def small_heap(variables):
    """Return a stand-in for the list of the heap: what *variables* leads to, modules and classes left out."""

    def heap_objects(*, frozen_too):
        found, todo = {}, [variables]
        while todo:
            thing = todo.pop()
            if id(thing) not in found and type(thing) in (dict, list, Trainer, torch.Tensor):
                found[id(thing)] = thing
                todo += gc.get_referents(thing)
        return list(found.values())

    return heap_objects


@pytest.fixture(scope="module")
def story():
    """One session through a whole story; on a small heap, for each look at the whole of it takes a second."""
    variables = make_variables()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leaklab.measure.checkpoint.heap_objects", small_heap(variables))
        return tell(variables)


def tell(variables):
    watched = weakref.ref(variables["trainer"].history[1])
    session = session_on(variables, "trainer", ".history", "[1]")
    graphs = {}

    def look(name, change, key=""):
        graphs[name] = session.answer("look", {"target": 0, "change": change, "key": key})["graph"]
        return {node["kind"].rpartition(".")[2]: node["key"] for node in graphs[name]["nodes"]}

    keys = look("opened", "open", "box 2")
    look("ignored", "hide", keys["Trainer"])
    look("all ignored", "hide", keys["list"])
    look("reset", "reset")
    graphs["explained"] = session.answer("explain", {"target": 0})
    variables["trainer"].history.clear()
    gc.collect()
    graphs["is freed"] = watched() is None
    look("gone", "")
    del variables["also"], variables["trainer"]
    with pytest.raises(GoneError) as error:
        session.answer("look", {"target": 0})
    graphs["error"] = str(error.value)
    return graphs


def test_an_opened_node_shows_its_other_holder(story):
    assert labels(story["opened"]) >= {"Trainer .history list", "dict ['copy'] list", "list [1] Tensor"}


def test_without_an_ignored_holder_the_other_path_is_left(story):
    assert labels(story["ignored"]) == {"notebook variable also dict", "dict ['copy'] list", "list [1] Tensor"}
    assert story["ignored"]["notes"][0] == "without what is ignored, one independent path leads to it"
    assert [words for _, words in story["ignored"]["hidden"]] == ["trainer"]


def test_without_any_holder_no_path_is_left_and_this_is_said(story):
    assert story["all ignored"]["links"] == []
    assert "Nothing else holds this object" in story["all ignored"]["notes"][0]
    assert story["reset"]["hidden"] == []


def test_the_fewest_references_to_cut_are_told_as_code(story):
    assert [one["code"] for one in story["explained"]["explanation"]["cut"]] == [True]
    assert "path leads to it" in story["explained"]["explanation"]["title"]


def test_what_is_gone_is_said_and_its_holder_shown(story):
    assert story["is freed"]
    assert story["gone"]["notes"][0] == "trainer.history[1] is gone (IndexError)"
    assert [node["kind"] for node in story["gone"]["nodes"] if node["role"] == "asked"] == ["list"]
    assert story["error"] == "trainer.history[1] is gone (NameError)"


def test_expressions_end_where_python_has_none_or_autograd_begins():
    assert expressions_of(path_of("trainer", ".history", "[3]", ".grad_fn", "._saved_self")) == [
        "trainer", "trainer.history", "trainer.history[3]",
    ]  # fmt: skip
    assert expressions_of(path_of("local 'x' of fill()", ".a")) == []
    assert expressions_of(path_of("x", "['a b']", "in a C object")) == ["x", "x['a b']"]


def test_what_a_module_holds_is_found_though_the_notebook_has_not_imported_it():
    held = Trainer()
    sys.modules["leaklab_test.registry"] = module = types.ModuleType("leaklab_test.registry")
    sys.modules["leaklab_test"] = package = types.ModuleType("leaklab_test")
    package.registry, module.kept = module, [held]
    path = RootPath("module 'leaklab_test.registry'", path_of("leaklab_test.registry", ".kept", "[0]").steps)
    try:
        for variables in ({}, {"leaklab_test": "a text of the user"}):
            assert evaluate(expressions_of(path)[-1], variables, modules_of(path))[0] is held
    finally:
        del sys.modules["leaklab_test.registry"], sys.modules["leaklab_test"]
    with pytest.raises(GoneError, match="is gone"):
        evaluate(expressions_of(path)[-1], {}, modules_of(path))


def test_a_path_from_a_variable_needs_no_module():
    assert modules_of(path_of("sys", ".modules")) == {}


def test_a_value_that_all_code_shares_is_nothing_to_look_at():
    with pytest.raises(GoneError, match="a value of type int may be shared"):
        evaluate("1 + 1", {})


def test_an_object_is_found_by_its_address_only_while_it_is_of_its_type():
    kept = Trainer()
    assert at_address(id(kept), "test_explorer_live.Trainer")[0] is kept
    with pytest.raises(GoneError, match="that dict is gone"):
        at_address(id(kept), "dict")


def test_an_object_that_nothing_leads_to_has_no_path():
    graph = look_at([Trainer()], {}, asked="it")
    assert [node.role for node in graph.nodes] == ["asked"]
    assert graph.n_paths == 0


def test_the_notebook_lets_go_of_outputs_and_errors(notebook):
    notebook.run("import weakref, torch")
    notebook.run("shown = torch.ones(7); there = weakref.ref(shown); shown")
    notebook.run("def fail():\n    big = [there() for _ in range(2)]\n    raise ValueError(big and 'no')\nfail()")
    notebook.run("del shown")
    gc.collect()
    assert notebook.user["there"]() is not None
    words = held_by_notebook(notebook.shell)
    assert "1 x torch.Tensor" in words[0]
    assert "ValueError" in words[1]
    assert let_go(notebook.shell) == words
    gc.collect()
    assert notebook.user["there"]() is None
    assert held_by_notebook(notebook.shell) == []
    notebook.run("1 + 1")
    notebook.run("again = _")
    assert notebook.user["again"] == 2


def test_leaklabs_own_outputs_are_no_reason_to_clear_anything(notebook):
    notebook.run("import leaklab")
    notebook.run("leaklab.whyalive(leaklab)")
    assert held_by_notebook(notebook.shell) == []
    notebook.run("3 + 4")
    assert "1 value (1 x int)" in held_by_notebook(notebook.shell)[0]
    let_go(notebook.shell)
    assert [type(value).__name__ for value in notebook.user["_oh"].values()] == ["WhyAlive"]


def test_the_latest_cell_of_the_same_name_is_found_to_run_again(notebook):
    notebook.run("%%leakcheck --no-such-option --name x\npass")
    notebook.forget_error()
    assert find_cell(notebook.shell, "x") is None
    notebook.shell.history_manager.input_hist_raw += ["%%leakcheck --name x -n 6\na = 1", "%%leakcheck\nb = 2"]
    found = find_cell(notebook.shell, "x")
    assert (found.line, found.body) == ("--name x -n 6", "a = 1")
    assert find_cell(notebook.shell, "").body == "b = 2"
