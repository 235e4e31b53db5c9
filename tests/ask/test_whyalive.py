"""Why an object is alive: paths whose expressions evaluate, counts that add up, cuts that free, and nothing kept."""

from __future__ import annotations

import collections
import ctypes
import functools
import gc
import pickle
import threading
import types
import warnings
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from leaklab import WhyAlive, whyalive
from leaklab.errors import ReportError
from leaklab.model import Status
from leaklab.model.alive import Hold


class Box:
    """Holds whatever it is given."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


class Slots:
    __slots__ = ("held",)


def places_of(tensor):
    """Variables that hold *tensor* in every usual way."""
    slots = Slots()
    slots.held = tensor
    table = np.empty(3, dtype=object)
    table[1] = tensor
    hooked, closed = nn.Linear(2, 2), [tensor]
    hooked.register_forward_hook(lambda module, args, output: closed)
    owner = nn.Module()
    owner.register_buffer("mean", tensor)
    box = Box(kept=tensor)
    rows, named, deep, queue = (
        [None, tensor],
        {"a b": tensor},
        Box(inner=[{"k": (1, tensor)}]),
        collections.deque([tensor]),
    )
    partial = functools.partial(print, tensor)
    return {
        "rows": rows, "named": named, "deep": deep, "queue": queue, "slots": slots, "table": table, "hooked": hooked,
        "owner": owner, "box": box, "call": partial, "direct": tensor,
    }  # fmt: skip


def holders_in(variables):
    """For each expression, written by hand, the object that refers to the tensor."""
    (hook,) = variables["hooked"]._forward_hooks.values()
    names = ("rows", "named", "queue", "slots", "table", "owner", "box")
    return {name: variables[name] for name in names} | {
        "deep.inner[0]['k']": variables["deep"].inner[0]["k"],
        "hooked._forward_hooks[0].__closure__[0].cell_contents": hook.__closure__[0].cell_contents,
        "globals()": variables,
    }


@pytest.fixture(scope="module")
def everywhere():
    """A tensor held in eleven ways, the answer for it, and the variables; shared by the tests below."""
    variables = places_of(torch.ones(50, 100))
    why = whyalive(variables["direct"], namespace=variables, max_paths=20)
    return types.SimpleNamespace(why=why, variables=variables)


def by_number(name):
    """The key of a hook depends on how many hooks there were before."""
    head, mark, tail = name.partition("_forward_hooks[")
    return f"{head}{mark}0]{tail.partition(']')[2]}" if mark else name


def test_each_independent_holder_has_a_path(everywhere):
    assert everywhere.why.hold is Hold.HELD
    assert len(everywhere.why.record.paths) == 11
    assert not everywhere.why.record.has_more_paths


def test_each_holder_evaluates_to_the_object_that_refers(everywhere):
    found = {
        by_number(holder): eval(holder, everywhere.variables)  # noqa: S307 - what the answer says is Python
        for holder in everywhere.why.holders
        if not holder.startswith("call")
    }
    wanted = holders_in(everywhere.variables)
    assert found.keys() == wanted.keys()
    for name, holder in wanted.items():
        assert found[name] is holder, name


def test_each_expression_evaluates_to_the_object_itself(everywhere):
    target = everywhere.variables["direct"]
    expressions = [path.expression for path in everywhere.why.record.paths]
    assert all(expressions)
    for expression in expressions:
        assert eval(expression, everywhere.variables) is target, expression  # noqa: S307


def test_holders_in_the_table_of_references_evaluate_too(everywhere):
    table = everywhere.why.references
    assert len(table) == 11
    assert table["count"].sum() == 11
    target = everywhere.variables["direct"]
    for holder, reference in zip(table["holder"], table["reference"], strict=True):
        if holder == "globals()":
            assert everywhere.variables[reference] is target
        elif reference.startswith((".", "[")):
            assert eval(f"{holder}{reference}", everywhere.variables) is target  # noqa: S307


def test_python_count_is_explained_to_the_last_reference(everywhere):
    assert everywhere.why.counts.python == 11
    assert everywhere.why.counts.n_unexplained == 0
    assert everywhere.why.counts.use_count == 1


def test_smallest_cut_has_one_reference_for_each_path_and_is_proved(everywhere):
    cut = everywhere.why.cut
    assert len(cut.references) == 11
    assert cut.is_exact
    assert cut.frees_object


def test_bytes_of_the_tensor_come_back_when_it_goes(everywhere):
    assert 20_000 <= everywhere.why.retained.exclusive_bytes < 21_000
    assert everywhere.why.retained.shared_bytes == 0


def test_statements_of_the_cut_free_the_object_when_they_are_run():
    tensor = torch.ones(7)
    variables = {"rows": [None, tensor, tensor], "box": Box(kept=tensor, again=tensor), "x": tensor, "y": tensor}
    variables["named"] = {"a b": tensor}
    variables["grid"] = np.empty(2, object)
    variables["grid"][1] = tensor
    ref = weakref.ref(tensor)
    del tensor
    why = whyalive(ref(), namespace=variables)
    assert all(reference.is_statement for reference in why.cut.references)
    for reference in why.cut.references:
        exec(reference.advice, variables)  # noqa: S102
    assert ref() is None


def test_answer_keeps_nothing_alive():
    thing = Box(tensor=torch.ones(3))
    box = [thing]
    ref = weakref.ref(thing)
    del thing
    why = whyalive(box[0])
    box.clear()
    assert ref() is None
    assert "one path" in why.reason


def test_local_variable_of_the_caller_is_a_holder_and_no_frame_of_leaklab_is():
    mine = Box()
    why = whyalive(mine)
    (path,) = why.record.paths
    name = "test_local_variable_of_the_caller_is_a_holder_and_no_frame_of_leaklab_is"
    assert path.path.root == f"running function {name}"
    assert path.path.steps[0].reference == f"local 'mine' of {name}()"
    assert "goes when that function returns" in path.remark
    assert why.counts.python == 1
    assert why.counts.n_unexplained == 0


def test_object_that_only_the_question_holds_is_said_to_be_free():
    why = whyalive(torch.ones(3))
    assert why.hold is Hold.NOTHING
    assert why.record.paths == ()
    assert why.cut is None
    assert why.counts.python == 0


def test_object_held_only_from_c_is_said_so_with_the_count():
    thing = Box()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    ref = weakref.ref(thing)
    del thing
    why = whyalive(ref())
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(ref()))
    assert why.hold is Hold.UNSEEN
    assert why.counts.python == why.counts.n_unexplained == 1
    assert "Python counts 1 reference;" in why.reason
    assert "no reference to it can be seen" in why.reason
    assert ref() is None


def test_use_count_of_a_leaf_is_explained_by_the_graph_that_saved_it_twice():
    x = torch.ones(4, requires_grad=True)
    loss = (x * x).sum()
    why = whyalive(x)
    # Python: the local variable, and torch's own for C++. C++: the Python object, saved twice, and the accumulator.
    assert why.counts.python == 2
    assert why.counts.n_unexplained == 0
    assert why.counts.use_count == 4
    assert why.counts.n_unexplained_cpp == 0
    assert {holder.node for holder in why.record.autograd} == {"MulBackward0", "AccumulateGrad"}
    name = "test_use_count_of_a_leaf_is_explained_by_the_graph_that_saved_it_twice"
    assert {holder.carrier for holder in why.record.autograd} == {f"local 'loss' of {name}()"}
    assert len(why.record.paths) == 2
    del loss


def test_count_that_stays_unexplained_is_said_aloud():
    future = torch.futures.Future()
    tensor = torch.ones(4)
    future.set_result(tensor)
    why = whyalive(tensor)
    assert why.counts.n_unexplained == 1
    assert "1 unexplained" in str(why)
    assert any("unexplained: 1 of" in note for note in why.notes)


def test_cycle_through_autograd_is_immortal_and_shown_edge_by_edge():
    def train():
        leaf = torch.ones(5, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of the cycle once in a process, whoever made the first
            (leaf**2).sum().backward(create_graph=True)
        return weakref.ref(leaf)

    ref = train()
    why = whyalive(ref())
    ref().grad = None
    gc.collect()
    assert ref() is None
    assert why.hold is Hold.IMMORTAL
    assert ".grad" in [step.reference for step in why.record.cycle.steps]
    assert why.record.cycle_cut.how == "tensor.grad = None"
    assert str(why).startswith("IMMORTAL  torch.Tensor (5,) float32 cpu")
    assert why.graph().dot.count("->") >= 4


def test_cycle_that_waits_for_a_collection_is_garbage_where_the_collector_is_off():
    def leave_a_cycle():
        thing = Box(held=Box())
        thing.me = thing
        return weakref.ref(thing.held)

    gc.disable()
    try:
        why = whyalive(leave_a_cycle()())
    finally:
        gc.enable()
    assert why.hold is Hold.GARBAGE
    assert why.record.cycle.steps[-1].reference == ".me"


def test_array_that_the_collector_does_not_know_is_found_in_dicts_and_tuples_it_does_not_know_either():
    variables = {"losses": {"train": np.ones(10)}}
    variables["nested"] = ((variables["losses"]["train"], 1),)
    why = whyalive(variables["losses"]["train"], namespace=variables)
    assert set(why.holders) == {"losses", "nested[0]"}
    assert why.counts.n_unexplained == 0


def test_local_variable_of_another_thread_is_a_holder():
    started, stop, refs = threading.Event(), threading.Event(), []

    def work():
        batch = torch.ones(10)
        refs.append(weakref.ref(batch))
        started.set()
        stop.wait(20)

    thread = threading.Thread(target=work, name="prefetch")
    thread.start()
    started.wait(20)
    why = whyalive(refs[0]())
    stop.set()
    thread.join()
    assert why.record.paths[0].path.root == "thread 'prefetch'"
    assert refs[0]() is None


def test_view_on_a_huge_storage_is_noted():
    variables = {"first": torch.ones(1_000_000)[:10]}
    why = whyalive(variables["first"], namespace=variables)
    (note,) = why.notes
    assert note.startswith("it is a view of 40 B, but keeps the whole storage of 3.81 MiB")


def test_fan_in_is_one_box_and_the_list_one_path():
    def records(shared):
        return [{"t": shared, "i": number} for number in range(2000)]

    variables = {"records": records(Box())}
    why = whyalive(variables["records"][0]["t"], namespace=variables)
    assert len(why.record.paths) == 1
    assert why.record.n_references == 2000
    (more,) = [one for one in why.record.fan_in if one.place == 0]
    assert (more.kind, more.count) == ("dict", 1999)
    assert "and 1,999 more dicts" in why.graph().dot
    assert [reference.advice for reference in why.cut.references] == ["del records"]


def test_steps_have_statuses_with_reasons():
    variables = {"model": nn.Sequential(nn.Linear(2, 2))}
    why = whyalive(variables["model"][0].weight, namespace=variables)
    (path,) = why.record.paths
    assert [(step.status, step.note) for step in path.path.steps] == [
        (Status.EXPECTED, "a variable of yours"),
        (Status.EXPECTED, "a part of a model that is kept on purpose"),
        (Status.UNKNOWN, "the object you asked about"),
    ]
    assert path.expression == "model[0].weight"


def test_result_that_the_notebook_remembers_is_named_with_its_release():
    thing = Box()
    variables = {"Out": {3: thing}, "_oh": {}}
    del thing
    why = whyalive(variables["Out"][3], namespace=variables)
    assert "%reset -f out" in why.record.paths[0].remark


def test_hostile_objects_on_the_path_run_no_code():
    class Hostile:
        def __getattribute__(self, name):
            raise RuntimeError(name)

        def __repr__(self):
            raise RuntimeError

        __len__ = __eq__ = __hash__ = __bool__ = __repr__

    target = Box()
    hostile = Hostile()
    object.__setattr__(hostile, "kept", target)
    variables = {"h": hostile}
    del hostile
    box = [target]
    del target
    why = whyalive(box.pop(), namespace=variables)
    assert "Hostile" in why.graph(style="objgraph").dot
    assert len(why.record.paths) == 1


SHARED = {"number": 3, "text": "abc", "none": None, "yes": True, "float": 1.5, "empty tuple": (), "built-in type": int}


@pytest.mark.parametrize("value", SHARED.values(), ids=SHARED.keys())
def test_value_that_all_code_shares_is_refused_in_one_sentence(value):
    with pytest.raises(TypeError, match="ask about the object that holds it") as caught:
        whyalive(value)
    assert "\n" not in str(caught.value)


def test_arguments_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="max_paths must be at least 1, not 0"):
        whyalive(Box(), max_paths=0)
    with pytest.raises(TypeError, match="max_paths must be a whole number, not str"):
        whyalive(Box(), max_paths="2")
    with pytest.raises(TypeError, match="namespace must be a dict of variables, not list"):
        whyalive(Box(), namespace=[])


def test_more_paths_than_asked_for_are_said():
    thing = Box()
    variables = {"a": [thing], "b": [thing], "c": [thing]}
    del thing
    why = whyalive(variables["a"][0], namespace=variables, max_paths=2)
    assert len(why.record.paths) == 2
    assert why.reason == "more than 2 independent paths lead to it"


def test_answer_makes_the_round_trip_through_json_and_pickle(everywhere, tmp_path):
    why = everywhere.why
    assert WhyAlive.from_json(why.to_json()) == why
    assert pickle.loads(pickle.dumps(why)) == why  # noqa: S301 - our own bytes
    why.save(tmp_path / "why.json")
    assert WhyAlive.from_json(tmp_path / "why.json") == why
    with pytest.raises(ReportError, match="whyalive"):
        WhyAlive.from_json('{"format": "leaklab check"}')


def test_answer_is_saved_by_suffix(everywhere, tmp_path):
    for suffix, mark in ((".html", "<!DOCTYPE html>"), (".dot", "digraph"), (".txt", "ALIVE"), (".svg", "<svg")):
        everywhere.why.save(tmp_path / f"why{suffix}")
        assert mark in (tmp_path / f"why{suffix}").read_text("utf-8")
    with pytest.raises(ReportError, match=r"must end in \.html or \.json"):
        everywhere.why.save(tmp_path / "why.csv")


def test_text_has_at_most_a_hundred_columns_and_the_repr_one_line(everywhere):
    assert max(map(len, str(everywhere.why).splitlines())) <= 100
    assert repr(everywhere.why) == ("<WhyAlive torch.Tensor (50, 100) float32 cpu: 11 independent paths lead to it>")


def test_page_has_both_drawings_and_asks_no_server(everywhere):
    page = everywhere.why.to_html()
    assert page.count("data:image/svg+xml;base64,") == 2
    assert "The same, drawn by objgraph" in page
    assert "http" not in page.replace("http-equiv", "")


def test_bundle_has_text_and_html(everywhere):
    bundle = everywhere.why._repr_mimebundle_()
    assert bundle["text/plain"].startswith("ALIVE")
    assert bundle["text/html"].startswith("<div")
    assert "<svg" not in bundle["text/html"]


def test_table_of_paths_has_a_row_for_each_step(everywhere):
    table = everywhere.why.paths
    assert len(table) == sum(len(path.path.steps) for path in everywhere.why.record.paths)
    assert table["is_cut"].sum() == 11


def test_two_places_in_one_object_are_two_paths_and_its_variable_is_the_wider_cut():
    trainer, thing = Box(), Box()
    trainer.history, trainer.cache = [thing], {"last": thing}
    trainer.other = Box()
    variables = {"trainer": trainer}
    del trainer, thing
    why = whyalive(variables["trainer"].history[0], namespace=variables)
    assert sorted(why.holders) == ["trainer.cache", "trainer.history"]
    assert sorted(one.advice for one in why.record.cut.references) == [
        "del trainer.cache['last']",
        "del trainer.history[0]",
    ]
    assert [one.advice for one in why.record.wider_cut.references] == ["del trainer"]
    assert why.record.wider_cut.n_freed > why.record.cut.n_freed


def test_the_best_path_alone_is_found_and_said_to_be_alone():
    variables = {"history": [{"loss": torch.ones(3)}]}
    why = whyalive(variables["history"][0]["loss"], namespace=variables, only_path=True)
    whole = whyalive(variables["history"][0]["loss"], namespace=variables)
    assert why.record.only_path
    assert why.holders == whole.holders[:1] == ("history[0]",)
    assert why.record.paths[0].path == whole.record.paths[0].path
    assert "The best path: history[0]['loss']" in str(why)
    assert "come back" not in str(why)
    assert "reference count" not in str(why)
    assert WhyAlive.from_json(why.to_json()).record == why.record


def test_where_no_root_reaches_the_object_everything_is_told_that_is_known():
    loop = Box()
    loop.loop = loop
    reference = weakref.ref(loop)
    del loop
    why = whyalive(reference(), namespace={}, only_path=True)
    assert why.hold is Hold.GARBAGE
    assert not why.record.only_path


@pytest.mark.untraced
@pytest.mark.parametrize("only_path", [False, True])
def test_variables_of_the_asking_function_are_not_kept_by_asking_twice(only_path):
    """The dict that the first question leaves on the frame, empty, was filled by the second for as long as it ran."""
    asked, other = Box(), Box()
    gone = weakref.ref(other)
    for _ in range(3):
        whyalive(asked, only_path=only_path)
    del other
    gc.collect()
    assert gone() is None
