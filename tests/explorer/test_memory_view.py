"""What the explorer tells of the memory: its icicle, a search over all objects, one object, and where it is gone."""

from __future__ import annotations

import gc
import json
import weakref

import numpy as np
import pytest
import samples
import torch

import leaklab
from leaklab.ask.alive import GoneError
from leaklab.errors import LeaklabError
from leaklab.explorer.session import Session
from leaklab.reports.check import LeakReport
from leaklab.runtime.containers import value_lines


class Trainer:
    """Fails whoever runs code of the user."""

    def __repr__(self):
        raise AssertionError

    __eq__ = __hash__ = __getattr__ = __repr__


def world():
    trainer = Trainer()
    trainer.history = [torch.full((300,), 7.0, requires_grad=True).sum()]
    weight = torch.full((500, 20), 2.0)
    return {"trainer": trainer, "weight": weight, "table": np.arange(3000.0), "also": {"weight": weight}, "mine": [1]}


ROOTS = []
"""What the stand-in for the heap begins at: to read all of it takes a second each time."""


def small_heap(*, frozen_too):
    found, todo = {}, list(ROOTS)
    while todo:
        thing = todo.pop()
        if id(thing) not in found and type(thing) in (dict, list, Trainer, torch.Tensor):
            found[id(thing)] = thing
            todo += gc.get_referents(thing)
    return list(found.values())


@pytest.fixture(autouse=True)
def a_small_heap(monkeypatch):
    monkeypatch.setattr("leaklab.measure.checkpoint.heap_objects", small_heap)
    yield
    ROOTS.clear()


def opened(variables, check=None):
    ROOTS.append(variables)
    session = Session(LeakReport(check or samples.leaky_check()), None, variables)
    session.answer("memory", {})
    return session


@pytest.fixture
def session():
    session = opened(world())
    yield session
    session.close()


def found(session, where, kind=""):
    return session.answer("search", {"kind": kind, "where": where})["found"]


def target(session, where, kind=""):
    moment = session.answer("memory", {})["memory"]["moment"]
    return f"object {moment} {found(session, where, kind)['numbers'][0]}"


def every(row):
    yield row
    for child in row[-1]:
        yield from every(child)


def facts(session, where, kind=""):
    inspected = session.answer("inspect", {"target": target(session, where, kind)})["inspected"]
    return inspected, dict(inspected["facts"])


def test_the_icicle_names_what_the_users_variables_keep(session):
    memory = session.answer("memory", {})["memory"]
    assert json.loads(json.dumps(memory)) == memory
    [[device, root]] = memory["devices"]
    names = {row[1]: row for row in every(root)}
    assert device == "host"
    assert names["table"][3] == "array"
    assert names["weight"][4] >= 40_000
    assert root[8][0][0] == "your variables"


def test_all_objects_are_searched_in_the_language_of_find(session):
    answer = found(session, "shape == (500, 20) and held_by('weight')", "Tensor")
    [row] = answer["table"]["rows"]
    assert row[2:5] == ["weight", "torch.Tensor", "(500, 20) float32 cpu"]
    assert answer["title"].startswith("1 of ")
    with pytest.raises(leaklab.QueryError, match="did you mean"):
        found(session, "shpe == (3,)")


def test_one_object_is_described_with_its_holders(session):
    inspected, told = facts(session, "shape == (500, 20)", "Tensor")
    assert (told["expression"], told["dtype"], told["device"]) == ("weight", "float32", "cpu")
    assert (told["requires_grad"], told["graph"]) == ("False", "none")
    assert "39.1 KiB with the memory of the tensor" in told["its own size"]
    assert told["comes back if it goes"].startswith("39.")
    references = {row[0]: row[1] for row in inspected["holders"]["rows"]}
    assert references["['weight']"] in ("also", "globals()")
    assert inspected["n_holders"] == 2
    loss = facts(session, "ndim == 0 and held_by('trainer')", "Tensor")[1]
    assert loss["expression"] == "trainer.history[0]"
    assert loss["graph"] == "SumBackward0"


def test_what_the_report_says_of_a_holder_is_told_with_what_lies_in_it():
    check = samples.leaky_check()
    leaks = (samples.replace(check.leaks[0], holder="trainer.history", sites=("Cell In[2], line 3: keep(x)",)),)
    session = opened(world(), samples.replace(check, leaks=leaks))
    told = facts(session, "ndim == 0 and held_by('trainer')", "Tensor")[1]
    assert told["in the report"].startswith("it lies in trainer.history: `trainer.history` grows by")
    assert told["made or kept by"] == "Cell In[2], line 3: keep(x)"
    assert "in the report" not in facts(session, "shape == (500, 20)", "Tensor")[1]
    session.close()


def test_values_are_told_when_asked_for_and_run_no_code_of_the_user(session):
    def values(where, kind):
        return session.answer("values", {"target": target(session, where, kind)})["values"]

    assert values("shape == (500, 20)", "Tensor")[::40] == ["2.0", "and 9,960 more"]
    assert values("shape == (3000,)", "numpy.ndarray")[:2] == ["0.0", "1.0"]
    assert value_lines([Trainer(), 3, "x" * 500, {1}])[:2] == [f"<{__name__}.Trainer>", "3"]
    assert value_lines({"a": torch.ones(2)}) == ["'a': <torch.Tensor> (2,) float32 cpu"]
    assert value_lines(torch.ones(3).to_sparse())[0].startswith("torch cannot read")

    class Mine(torch.Tensor):
        pass

    assert "would run code of that class" in value_lines(torch.ones(2).as_subclass(Mine))[0]


def test_a_variable_gets_a_weak_reference(session):
    where = {"target": target(session, "shape == (500, 20)", "Tensor")}
    assert "mine" in session.answer("put", {**where, "name": "mine"})["confirm"]
    session.answer("put", {**where, "name": "mine", "sure": True})
    variables = session._namespace
    assert variables["mine"]() is variables["weight"]
    with pytest.raises(LeaklabError, match="is not a name for a variable"):
        session.answer("put", {**where, "name": "a b"})
    lists = {"target": target(session, "held_by('trainer')", "list"), "name": "other"}
    with pytest.raises(LeaklabError, match="no weak reference to a list"):
        session.answer("put", lists)


def test_an_object_is_looked_at_and_explained_by_its_number(session):
    where = {"target": target(session, "ndim == 0 and held_by('trainer')", "Tensor")}
    graph = session.answer("look", {**where, "change": "", "key": ""})["graph"]
    assert {"trainer", "trainer.history"} <= {node["expression"] for node in graph["nodes"]}
    assert "trainer.history[0]" in session.answer("explain", where)["explanation"]["title"]


def test_a_node_that_only_the_autograd_graph_holds_is_found_again(monkeypatch):
    weight = torch.ones(3, requires_grad=True)
    variables = {"mine": {"loss": [(weight * 2).sum()]}}
    nodes = [node for node, _ in variables["mine"]["loss"][0].grad_fn.next_functions]
    nodes += [node for node, _ in nodes[0].next_functions if node is not None]
    monkeypatch.setattr(
        "leaklab.measure.checkpoint.heap_objects", lambda *, frozen_too: small_heap(frozen_too=frozen_too) + nodes
    )
    session = opened(variables)
    where = {"target": target(session, "", "AccumulateGrad")}
    roles = [node["role"] for node in session.answer("look", where)["graph"]["nodes"]]
    assert "object" in roles
    variables["mine"]["loss"].clear()
    del nodes[:], weight
    with pytest.raises(GoneError, match="that AccumulateGrad is gone"):
        session.answer("look", where)
    session.close()


def test_it_is_written_as_a_page_and_as_a_file(session, tmp_path):
    session.answer("export_heap", {"path": str(tmp_path / "memory.html")})
    page = (tmp_path / "memory.html").read_text("utf-8")
    assert "(500, 20) float32 cpu" in page
    assert "data-leaklab" in page
    session.answer("export_heap", {"path": str(tmp_path / "memory.heap")})
    assert leaklab.load(tmp_path / "memory.heap").find("Tensor", "shape == (500, 20)").n_found == 1
    assert "replaces" in session.answer("export_heap", {"path": str(tmp_path / "memory.heap")})["confirm"]
    with pytest.raises(LeaklabError, match="must end in"):
        session.answer("export_heap", {"path": "memory.json"})


def test_nothing_is_kept_alive_and_what_is_gone_is_said():
    variables = {"mine": {"loss": [torch.zeros(77, 3)]}}
    session = opened(variables)
    where = {"target": target(session, "shape == (77, 3)", "Tensor")}
    session.answer("inspect", where)
    session.answer("values", where)
    watched = weakref.ref(variables["mine"]["loss"][0])
    variables["mine"]["loss"].clear()
    gc.collect()
    assert watched() is None
    with pytest.raises(GoneError, match="is gone, or other objects hold it now"):
        session.answer("values", where)
    session.answer("memory", {"again": True})
    with pytest.raises(LeaklabError, match="read again since"):
        session.answer("inspect", where)
    session.close()


def test_a_private_check_tells_no_shapes_and_no_values():
    check = samples.leaky_check()
    private = samples.replace(check, settings=samples.replace(check.settings, summaries=False))
    session = opened(world(), private)
    memory = session.answer("memory", {})["memory"]
    assert "(500, 20)" not in json.dumps(memory)
    where = {"target": target(session, "bytes > 10 KiB and held_by('weight')", "Tensor")}
    with pytest.raises(LeaklabError, match="hides the data"):
        session.answer("values", where)
    session.close()
