"""Survivors are grouped by the one reference, or the many alike, that keep them."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
import types

import pytest
import torch
from explain_builders import N_RUNS, Link, Node, real_view_of, vertex_of, view_of

from leaklab.explain.leaks.groups import group_survivors


def survivors(n_runs=N_RUNS, n_each=1):
    """One list of fresh objects for each run."""
    return [[Node(number=number) for _ in range(n_each)] for number in range(n_runs)]


def flat(runs):
    return [thing for born in runs for thing in born]


def groups_of(variables, runs, **options):
    """Group, and say of each place: holder as Python, crossing, kept per run, fingerprint."""
    with view_of(variables, runs, **options) as view:
        groups, orphans = group_survivors(view)
        return [
            (
                view.describe(group.holder).expressions[-1] if group.holder >= 0 else None,
                group.crossing.text,
                group.kept(view, options.get("n_runs") or len(runs)),
                group.fingerprint,
            )
            for group in groups
        ], len(orphans)


def test_survivors_in_one_list_are_one_place_and_the_newest_is_no_leak():
    runs = survivors()
    (place,), n_orphans = groups_of({"history": flat(runs)}, runs)
    assert place[:3] == ("history", "[3]", (1, 1, 1, 1, 0))
    assert n_orphans == 0


def test_what_only_a_survivor_keeps_belongs_to_its_place():
    runs = [[Node(inner=[]), []] for _ in range(N_RUNS)]
    for node, inner in runs:
        node.inner = inner
    (place,), _ = groups_of({"history": [node for node, _ in runs]}, runs)
    assert place[:3] == ("history", "[3]", (2, 2, 2, 2, 0))


@pytest.mark.parametrize("n_runs", [3, 4, 5, 12])
def test_the_many_keys_of_a_dict_are_one_place(n_runs):
    runs = survivors(n_runs)
    (place,), _ = groups_of({"cache": dict(enumerate(flat(runs)))}, runs)
    assert place[:2] == ("cache", f"[{n_runs - 2}]")


def test_keys_that_say_different_things_are_two_places():
    runs = [[Node(), Node()] for _ in range(2)]
    places, _ = groups_of({"state": {"loss": runs[0][0], "accuracy": runs[0][1]}}, runs)
    assert {place[:2] for place in places} == {("state", "['loss']"), ("state", "['accuracy']")}


def test_made_up_keys_are_one_place():
    runs = survivors(8)
    (place,), _ = groups_of({"cache": dict(zip("qwertyui", flat(runs), strict=True))}, runs)
    assert place[2] == (1, 1, 1, 1, 1, 1, 1, 0)


def test_numbered_keys_have_one_fingerprint_however_many_they_are():
    prints = set()
    for n_runs in (3, 5, 20):
        runs = survivors(n_runs)
        places, _ = groups_of({"cache": {f"step{i}": thing for i, thing in enumerate(flat(runs))}}, runs)
        prints |= {place[3] for place in places}
    assert len(prints) == 1


def test_list_positions_do_not_change_the_fingerprint():
    prints = set()
    for n_before in (0, 7):
        runs = survivors()
        (place,), _ = groups_of({"history": [*range(n_before), *flat(runs)]}, runs)
        prints.add(place[3])
    assert len(prints) == 1


def test_attributes_stay_apart_however_many_they_are():
    runs = [[Node() for _ in range(6)], [Node()]]
    holder = Node(**dict(zip(("a", "b", "c", "d", "e", "f"), runs[0], strict=True)))
    places, _ = groups_of({"model": holder}, runs)
    assert {place[:2] for place in places} == {("model", f".{name}") for name in "abcdef"}


def test_an_instance_has_the_same_fingerprint_whether_somebody_has_looked_at_its_dict_or_not():
    prints = set()
    for looks in (False, True):
        runs = survivors(2)
        holder = Node.__new__(Node)
        holder.kept = runs[0][0]
        if looks:
            assert holder.__dict__
        (place,), _ = groups_of({"model": holder}, runs)
        assert place[:2] == ("model", ".kept")
        prints.add(place[3])
    assert len(prints) == 1


def test_two_lists_are_two_places():
    runs = survivors(n_each=2)
    variables = {"a": [one for one, _ in runs], "b": [other for _, other in runs]}
    places, _ = groups_of(variables, runs)
    assert {(place[0], place[2]) for place in places} == {("a", (1, 1, 1, 1, 0)), ("b", (1, 1, 1, 1, 0))}


def test_what_hangs_on_a_chain_of_survivors_is_one_place():
    root = Link()
    last, runs = root, []
    for _ in range(N_RUNS):
        last.parent = Link()
        last = last.parent
        runs.append([last])
    (place,), _ = groups_of({"root": root}, runs)
    assert place[:3] == ("root", ".parent", (1, 1, 1, 1, 0))


def test_a_chain_that_begins_at_the_newest_object_hangs_on_its_reference():
    last, runs = Link(), []
    for _ in range(N_RUNS):
        last = Link(last)
        runs.append([last])
    (place,), _ = groups_of({"last": last}, runs)
    assert place[:3] == ("last", ".parent", (1, 1, 1, 1, 0))


def test_a_variable_may_be_the_survivor_itself():
    runs = survivors()
    (place,), _ = groups_of({"kept": runs[1][0]}, runs, more=[])
    assert place[:3] == (None, "kept", (0, 1, 0, 0, 0))


def test_different_variables_are_different_places():
    runs = [[Node() for _ in range(6)], [Node()]]
    places, _ = groups_of(dict(zip(("a", "b", "c", "d", "e", "f"), runs[0], strict=True)), runs)
    assert {place[1] for place in places} == set("abcdef")


def test_numbered_variables_are_one_place():
    runs = survivors(12)
    (place,), _ = groups_of({f"result{i}": thing for i, thing in enumerate(flat(runs))}, runs)
    assert place[2] == (1,) * 11 + (0,)


def test_survivors_that_nothing_reaches_are_handed_back_as_orphans():
    places, n_orphans = groups_of({}, survivors())
    assert (places, n_orphans) == ([], 4)


def test_nodes_of_one_graph_are_one_place():
    total = torch.zeros(3, requires_grad=True)
    variables = {"total": torch.zeros(3, requires_grad=True)}
    runs = []
    for _ in range(N_RUNS):
        term = torch.ones(3)
        total = total + term * term
        runs.append([term])
        del term
    variables["total"] = total
    del total
    with view_of(variables, runs) as view:
        groups, _ = group_survivors(view)
        in_graph = [group for group in groups if view.in_graph[group.entries[0]]]
        assert len(in_graph) <= 1
        assert len(groups) == len(in_graph)


def test_a_path_into_a_graph_leaves_what_is_expected_at_its_first_node():
    weight = torch.ones(3, requires_grad=True)
    runs = [[torch.ones(3)] for _ in range(N_RUNS)]
    for born in runs:
        weight = weight * born[0]
    variables = {"weight": weight}
    del weight, born
    (place,), _ = groups_of(variables, runs)
    assert place[:3] == ("weight", ".grad_fn", (1, 1, 1, 1, 0))


def held_by_threads(names, runs):
    """Start one thread a name; each keeps one list of survivors in a local variable."""
    leave = threading.Event()
    ready = threading.Barrier(len(names) + 1)

    def work(kept):
        ready.wait(10)
        leave.wait(10)
        return kept

    threads = [threading.Thread(target=work, args=(born,), name=name) for name, born in zip(names, runs, strict=True)]
    for thread in threads:
        thread.start()
    ready.wait(10)
    return threads, leave


def test_threads_of_one_name_are_one_place():
    runs = survivors(4)
    names = ["Thread-7 (work)", "Thread-8 (work)", "Thread-9 (work)", "Thread-12 (work)"]
    threads, leave = held_by_threads(names, runs)
    try:
        with real_view_of({}, runs) as view:
            groups, _ = group_survivors(view)
            found = {view.starts[view.tree.root_of[group.entries[0]]].words for group in groups}
            assert len(groups) == 1
            assert found <= {f"thread {name!r}" for name in names}
    finally:
        leave.set()
        for thread in threads:
            thread.join()


FINGERPRINTS = """
import sys
sys.path.insert(0, {folder!r})
from explain_builders import Node, view_of
from leaklab.explain.leaks.groups import group_survivors
padding = [object() for _ in range({padding})]
def check():
    runs = [[Node()] for _ in range(5)]
    holder = Node(history=list(range({padding})) + [born[0] for born in runs])
    with view_of({{"trainer": holder}}, runs) as view:
        print(*[group.fingerprint for group in group_survivors(view)[0]])
check()
"""


def test_the_fingerprint_is_the_same_in_another_process(request):
    folder = str(request.path.parents[1])
    prints = {
        subprocess.run(
            [sys.executable, "-c", FINGERPRINTS.format(folder=folder, padding=padding)],
            capture_output=True, check=True, text=True, timeout=120,
        ).stdout
        for padding in (0, 1000)
    }  # fmt: skip
    assert len(prints) == 1
    assert len(prints.pop().strip()) == 12


class Registry:
    kept = []


def remember(thing, kept=[]):  # noqa: B006 - the mutable default is the point
    kept.append(thing)


def make_closure():
    kept = []

    def remember(thing):
        kept.append(thing)

    return remember, kept


def with_list(things):
    return {"history": things}, "history"


def with_attribute(things):
    return {"trainer": Node(history=things)}, "trainer.history"


def with_dict(things):
    return {"cache": dict(enumerate(things))}, "cache"


def with_hooks(things):
    module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    for thing in things:
        module[0]._forward_hooks[id(thing)] = thing
    return {"model": module}, "model[0]._forward_hooks"


def with_closure(things):
    function, kept = make_closure()
    kept.extend(things)
    return {"remember": function}, "remember.__closure__[0].cell_contents"


def with_default(things):
    function = types.FunctionType(remember.__code__, {}, "remember", ([*things],))
    return {"remember": function}, "remember.__defaults__[0]"


def with_nested(things):
    return {"state": {"runs": [{"tensors": things}]}}, "state['runs'][0]['tensors']"


def with_set(things):
    return {"seen": set(things)}, "seen"


def with_instance(things):
    return {"model": Node(**{f"part{i}": thing for i, thing in enumerate(things)})}, "model"


@pytest.mark.parametrize(
    "make",
    [
        with_list, with_attribute, with_dict, with_hooks, with_closure, with_default, with_nested, with_set,
        with_instance,
    ],
)  # fmt: skip
def test_the_holders_expression_evaluates_to_the_object_that_holds_the_survivors(make):
    runs = survivors()
    variables, expected = make(flat(runs))
    with view_of(variables, runs) as view:
        (group,), _ = group_survivors(view)
        described = view.describe(group.holder)
        assert described.expressions[-1] == expected
        assert eval(expected, dict(variables)) is view.objects[group.holder]  # noqa: S307 - written above


def test_a_class_is_the_holder_of_what_is_in_a_list_of_its_own():
    runs = survivors()
    kind = type("Registry", (), {"kept": flat(runs)})
    variables = {"Registry": kind}
    with real_view_of(variables, runs) as view:
        (group,), _ = group_survivors(view)
        assert view.describe(group.holder).expressions[-1] == "Registry.kept"
        assert view.objects[group.holder] is kind.kept


def test_a_list_in_a_module_is_named_by_the_module():
    runs = survivors()
    module = types.ModuleType("leaky_module")
    module.kept = flat(runs)
    sys.modules["leaky_module"] = module
    try:
        with real_view_of({}, runs) as view:
            (group,), _ = group_survivors(view)
            described = view.describe(group.holder)
            assert described.expressions[-1] == "leaky_module.kept"
            assert described.path.root == "module 'leaky_module'"
    finally:
        del sys.modules["leaky_module"]


def test_an_lru_cache_is_named_with_its_function():
    runs = survivors()
    things = flat(runs)

    @functools.cache
    def look_up(number):
        return things[number]

    for number in range(N_RUNS):
        look_up(number)
    things = None
    with real_view_of({"look_up": look_up}, runs) as view:
        (group,), _ = group_survivors(view)
        assert view.describe(group.holder).expressions[-1] == "look_up"
        assert group.crossing.text == "cached result"
        assert group.kept(view, N_RUNS) == (1, 1, 1, 1, 0)


def test_the_crossing_is_that_of_the_newest_survivor():
    runs = survivors()
    order = [runs[number][0] for number in (0, 3, 1, 2, 4)]
    (place,), _ = groups_of({"history": order}, runs)
    assert place[1] == "[1]"


def test_the_newest_run_is_no_leak_wherever_it_is():
    runs = survivors()
    places, n_orphans = groups_of({"newest": runs[-1]}, [[], [], [], [], runs[-1]])
    assert (places, n_orphans) == ([], 0)
    assert vertex_of is not None
