"""Each cause is recognised by its own evidence, and not by evidence that only looks like it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from samples import history_leak

from leaklab.explain.cycles.cycles import CYCLE_ROOT, UNSEEN_ROOT
from leaklab.explain.idioms import IDIOMS, find_cause
from leaklab.explain.idioms.advice import with_effect, with_line
from leaklab.explain.leaks.evidence import Evidence, Facts
from leaklab.explain.leaks.ownership import Owner
from leaklab.heap.names.reference import Reference
from leaklab.heap.roles import Role
from leaklab.model import RootPath, Status, Step
from leaklab.render.words import CAUSES, SECOND_CAUSES


def steps_of(text):
    """Make steps of ``history list, [3] torch.Tensor!``: reference and kind, ``!`` for a leaked one."""
    steps = []
    for part in filter(None, text.split(", ")):
        reference, _, kind = part.rstrip("!").rpartition(" ")
        steps.append(Step(reference, kind, "", Status.LEAKED if part.endswith("!") else Status.EXPECTED))
    return tuple(steps)


def reference(text, kind):
    return Reference(text, text, text, kind)


INDEX, KEY = reference("[3]", "index"), reference("['a']", "key")
ATTRIBUTE = reference(".last", "attribute")


def evidence(steps="", *, root="notebook variable", holder="history", crossing=None, **changes):
    values = {
        "holder_kind": "list", "entry_kinds": frozenset(), "kinds": frozenset(), "what": "list", "unit": "objects",
        "has_tensors": False, "has_graph": False,
    }  # fmt: skip
    return Evidence(path=RootPath(root, steps_of(steps)), holder=holder, crossing=crossing, **(values | changes))


TENSORS = {"has_tensors": True, "kinds": frozenset({"torch.Tensor"})}
PLAIN = "history list, [3] torch.Tensor!"

CASES = {
    "notebook-history": evidence("Out dict, [7] torch.Tensor!", is_history=True, crossing=KEY, **TENSORS),
    "immortal-cycle": evidence(
        " Node!, .grad torch.Tensor!", root=CYCLE_ROOT, in_cycle=True, cycle_is_hidden=True, **TENSORS
    ),
    "deepcopy-kept": evidence(
        "copies list, [3] Metric!", holder="copies", crossing=INDEX, facts=Facts(original="metric"), **TENSORS
    ),
    "cycle-garbage": evidence(" Node!, .me Node!", root=CYCLE_ROOT, in_cycle=True, gc_is_off=True),
    "native": evidence(root=UNSEEN_ROOT),
    "traceback-kept": evidence("errors list, [3] ValueError!, .__traceback__ traceback!", crossing=INDEX),
    "hook-left": evidence(
        "model Net, ._forward_hooks collections.OrderedDict, [3] function!",
        holder="model._forward_hooks", holder_kind="collections.OrderedDict", crossing=KEY,
        entry_kinds=frozenset({"function"}),
    ),
    "autograd-ctx": evidence(
        "saved list, [3] MyFunctionBackward!", crossing=INDEX, entry_kinds=frozenset({"MyFunctionBackward"})
    ),
    "thread-or-worker-kept": evidence("local 'x' of work() list!", root="thread 'prefetch'"),
    "optimizer-state": evidence(
        "opt torch.optim.sgd.SGD, .param_groups list, [3] dict!", holder="opt.param_groups", crossing=INDEX, **TENSORS
    ),
    "run-switch": evidence(
        "runs list, [3] Trainer!", holder="runs", crossing=INDEX, has_optimizer=True, **TENSORS
    ),
    "descriptor-left": evidence("", unit="file descriptors", kinds=frozenset({"pipe"})),
    "callback-registry": evidence(
        "bus Bus, .listeners list, [3] method!", crossing=INDEX, entry_kinds=frozenset({"method"}),
        kinds=frozenset({"method"}),
    ),
    "closure-kept": evidence(
        "remember function, closure variable 'kept' of remember list, [3] list!", crossing=INDEX
    ),
    "graph-kept": evidence(PLAIN, crossing=INDEX, has_graph=True, **TENSORS),
    "global-cache": evidence("cache dict, ['a'] list!", holder="cache", holder_kind="dict", crossing=KEY),
    "container-growth": evidence("history list, [3] Record!", crossing=INDEX, kinds=frozenset({"Record"})),
    "tensor-kept": evidence(PLAIN, crossing=INDEX, **TENSORS),
}  # fmt: skip


def test_every_cause_has_a_case():
    assert set(CASES) == {idiom.slug for idiom in IDIOMS}


@pytest.mark.parametrize("slug", CASES)
def test_the_cause_is_recognised_by_its_evidence(slug):
    cause = find_cause(CASES[slug])
    assert cause.slug == slug
    assert len(cause.advice) > 40


NEAR_MISSES = {
    "results of an lru_cache in a closure": (
        evidence(
            "Net type, .anchors function, closure variable 'cached' of wrapper() functools._lru_cache_wrapper, "
            "cached result torch.Tensor!",
            holder="Net.anchors.__closure__[0].cell_contents",
            crossing=reference("cached result", "element"),
            **TENSORS,
        ),
        "global-cache",
    ),
    "records that a log handler keeps, which are not called": (
        evidence("handler logging.handlers.MemoryHandler, .buffer list, [3] logging.LogRecord!", crossing=INDEX),
        "container-growth",
    ),
    "handlers added to a logger in every run": (
        evidence("log logging.Logger, .handlers list, [3] Recent!", crossing=INDEX, entry_kinds=frozenset({"Recent"})),
        "callback-registry",
    ),
    "a loader without workers in a trainer of each run": (
        evidence(
            "runs list, [3] Trainer!",
            holder="runs",
            crossing=INDEX,
            has_optimizer=True,
            has_tensors=True,
            kinds=frozenset({"torch.utils.data.dataloader.DataLoader", "torch.nn.parameter.Parameter"}),
        ),
        "run-switch",
    ),
    "optimizers made again for the same parameters": (
        evidence(
            "optimizers list, [3] torch.optim.adam.Adam!",
            crossing=INDEX,
            has_optimizer=True,
            entry_kinds=frozenset({"torch.optim.adam.Adam"}),
            **TENSORS,
        ),
        "optimizer-state",
    ),
    "items of a queue that nobody takes": (
        evidence("box queue.Queue, .queue collections.deque, [3] torch.Tensor!", crossing=INDEX, **TENSORS),
        "thread-or-worker-kept",
    ),
    "a hook on a model that each run leaves": (
        evidence("nets list, [3] Net!, ._forward_hooks collections.OrderedDict!", crossing=INDEX, **TENSORS),
        "tensor-kept",
    ),
    "a collection of which only some entries can be called": (
        evidence("jobs list, [3] function!", crossing=INDEX, entry_kinds=frozenset({"function", "Job"})),
        "container-growth",
    ),
    "a user's list that is called Out in an object": (
        evidence("box Box, .Out list, [3] torch.Tensor!", crossing=INDEX, **TENSORS),
        "tensor-kept",
    ),
    "a cycle of Python alone where the collector runs": (
        evidence(" Node!, .me Node!", root=CYCLE_ROOT, in_cycle=True),
        "native",
    ),
    "an exception without a traceback": (evidence("errors list, [3] ValueError!", crossing=INDEX), "container-growth"),
    "an attribute that is called webhooks": (
        evidence("site Site, .webhooks list, [3] Record!", crossing=INDEX),
        "container-growth",
    ),
    "a node of torch, which is no ctx": (
        evidence(
            "saved list, [3] AddBackward0!", crossing=INDEX, entry_kinds=frozenset({"torch.autograd.AddBackward0"})
        ),
        "container-growth",
    ),
    "a thread that only looks on": (
        evidence("threads list, [3] Record!", holder="threads", crossing=INDEX),
        "container-growth",
    ),
    "the state of something that is no optimizer": (
        evidence(
            "game Game, .state dict, ['a'] torch.Tensor!",
            holder="game.state",
            holder_kind="dict",
            crossing=KEY,
            **TENSORS,
        ),
        "tensor-kept",
    ),
    "an optimizer alone": (
        evidence("runs list, [3] torch.optim.sgd.SGD!", crossing=INDEX, has_optimizer=True),
        "container-growth",
    ),
    "an object that keeps functions": (
        evidence("history list, [3] Record!", crossing=INDEX, kinds=frozenset({"function"})),
        "container-growth",
    ),
    "a function that is on no path": (
        evidence("history list, [3] torch.Tensor!", crossing=INDEX, **TENSORS),
        "tensor-kept",
    ),
    "a module that is left in sys.modules": (
        evidence("sys.modules['plugin_7'] module!", root="module 'plugin_7'", holder="sys.modules"),
        "global-cache",
    ),
    "a signal handler that keeps the one before it": (
        evidence(
            "signal.getsignal(10) method, .__self__ Chain, .previous method!",
            root="signal handler",
            holder="signal.getsignal(10).__self__",
            holder_kind="Chain",
            crossing=reference(".previous", "attribute"),
        ),
        "callback-registry",
    ),
    "what a pickler has pickled": (
        evidence(
            "pickler _pickle.Pickler, reference inside _pickle.Pickler Row!",
            holder="pickler",
            holder_kind="_pickle.Pickler",
            crossing=reference("reference inside _pickle.Pickler", "words"),
        ),
        "container-growth",
    ),
    "a list of queues, from which nobody takes anything": (
        evidence("hub Hub, .queues list, [3] queue.Queue!", holder="hub.queues", crossing=INDEX),
        "container-growth",
    ),
    "a graph that nothing Python refers to": (evidence(root=UNSEEN_ROOT, has_graph=True), "native"),
    "a dict deep inside an object": (
        evidence(
            "trainer Trainer, .logs Logs, .steps dict, ['a'] Record!",
            holder="trainer.logs.steps",
            holder_kind="dict",
            crossing=KEY,
        ),
        "container-growth",
    ),
    "functions that a partial calls with, not those it calls": (
        evidence(
            "transform functools.partial, .args[1] functools.partial!, .args[0] torch.Tensor!",
            holder="transform.args",
            holder_kind="tuple",
            crossing=INDEX,
            entry_kinds=frozenset({"functools.partial"}),
            **TENSORS,
        ),
        "closure-kept",
    ),
    "callbacks in a list that a partial calls with": (
        evidence(
            "emit functools.partial, .args[0] list, [3] method!",
            holder="emit.args[0]",
            crossing=INDEX,
            entry_kinds=frozenset({"method"}),
        ),
        "callback-registry",
    ),
    "values that hold their weak keys": (
        evidence(
            "owners weakref.WeakKeyDictionary, .data dict, [<weakref.ReferenceType>] dict!, ['batch'] Batch!",
            holder="owners.data",
            holder_kind="dict",
            crossing=KEY,
            **TENSORS,
        ),
        "global-cache",
    ),
    "a dict called data in an object of the user's": (
        evidence(
            "trainer Trainer, .data dict, ['a'] torch.Tensor!",
            holder="trainer.data",
            holder_kind="dict",
            crossing=KEY,
            **TENSORS,
        ),
        "tensor-kept",
    ),
    "an attribute that links objects": (
        evidence("root Node, .last Node!", holder="root", crossing=ATTRIBUTE),
        "unknown",
    ),
}


@pytest.mark.parametrize(("near", "expected"), NEAR_MISSES.values(), ids=NEAR_MISSES.keys())
def test_evidence_that_only_looks_alike_has_another_cause(near, expected):
    assert find_cause(near).slug == expected


def test_a_graph_that_grows_in_place_is_kept_by_its_tensor():
    cause = find_cause(evidence("total torch.Tensor, .grad_fn AddBackward0!", holder="total", unit="graph nodes"))
    assert cause.slug == "graph-kept"
    assert "`total` carries its whole history" in cause.advice


def test_the_place_to_cut_is_the_attribute_that_crosses():
    links = evidence("root Node, .last torch.Tensor!", holder="root", crossing=ATTRIBUTE, **TENSORS)
    assert links.place == "root.last"
    assert "`root.last = None`" in find_cause(links).advice


def test_the_steps_above_end_at_the_first_that_leaks():
    found = evidence("a Node, .b list, [3] Node!, .c Node!")
    assert [step.reference for step in found.steps_above] == ["a", ".b", "[3]"]


def test_where_nothing_leaks_all_steps_are_above():
    assert len(evidence("a Node, .b list").steps_above) == 2


def advice_of(found):
    return find_cause(found).advice


def test_the_advice_on_weak_keys_is_about_the_values():
    near, _slug = NEAR_MISSES["values that hold their weak keys"]
    assert "An entry of `owners` goes with its key, but a value that refers to its own key" in find_cause(near).advice


def test_no_advice_shows_code_that_was_not_tried():
    assert not any("\n    " in advice_of(case) for case in CASES.values())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_no_advice_has_a_placeholder(case):
    said = advice_of(case)
    assert not re.search(r"\b(key|value|obj\.method|NAME|original_step|new|x)\b(?=[)\]`])", said)
    assert "_global_" not in said
    assert said[0].isupper() or said[0] == "`"


def test_the_line_that_was_found_is_named_behind_the_first_sentences():
    assert with_line("Do this.\nNot always.", "this cell, line 3") == (
        "Do this. The line that keeps it: this cell, line 3.\nNot always."
    )
    assert with_line("Do this.", "train.py:4", "makes it") == "Do this. The line that makes it: train.py:4."
    assert with_line("", "this cell, line 3") == ""


def test_a_carried_state_is_cut_off_before_the_next_run_computes_with_it():
    path = "state dict, ['past'] torch.Tensor, .grad_fn MulBackward0!, saved for backward as 'self' torch.Tensor!"
    hidden = reference(".grad_fn", "hidden")
    carried = evidence(path, holder="model.past", crossing=hidden, has_graph=True, **TENSORS)
    assert "`model.past = model.past.detach()`, before the next run" in advice_of(carried)


def test_tasks_that_have_ended_are_told_from_those_that_wait():
    path, set_of = "tasks set, element _asyncio.Task, {} torch.Tensor!", {"holder": "tasks", "holder_kind": "set"}
    crossing = reference("element", "element")
    ended = evidence(path.format("._result"), crossing=crossing, **set_of, **TENSORS)
    assert find_cause(ended).slug == "container-growth"
    assert "tasks that have ended" in advice_of(ended)
    assert "task.add_done_callback(tasks.discard)" in advice_of(ended)
    waiting = evidence(path.format("._coro coroutine, local 'x' of work()"), crossing=crossing, **set_of, **TENSORS)
    assert find_cause(waiting).slug == "closure-kept"
    assert "tasks that have not ended" in advice_of(waiting)
    assert "stream" not in advice_of(waiting) + advice_of(ended)


@pytest.mark.parametrize(
    ("holder", "change"),
    [
        ("hidden[1]", "hidden = tuple(state.detach() for state in hidden)"),
        ("model.state.h", "model.state = model.state._make(state.detach() for state in model.state)"),
    ],
)
def test_an_item_of_a_tuple_is_cut_off_with_the_whole_tuple(holder, change):
    path = "hidden tuple, [1] torch.Tensor, .grad_fn MulBackward0!, saved for backward as 'self' torch.Tensor!"
    carried = evidence(path, holder=holder, crossing=reference(".grad_fn", "hidden"), has_graph=True, **TENSORS)
    assert f"`{change}`, before" in advice_of(replace(carried, facts=Facts(is_in_tuple=True)))


def test_no_number_is_taken_for_tensors_that_are_no_numbers():
    kept = evidence(PLAIN, crossing=INDEX, what="torch.Tensor (3,) float32 cpu", **TENSORS)
    assert ".item()" not in advice_of(kept)
    assert "`.item()`" in advice_of(replace(kept, facts=Facts(is_scalar=True)))


def test_a_container_is_cleared_only_by_a_method_that_it_has():
    kept = evidence(PLAIN, crossing=INDEX, what="torch.Tensor (3,) float32 cpu", **TENSORS)
    assert "history.clear()" in advice_of(replace(kept, holder_kind="list"))
    assert ".clear()" not in advice_of(replace(kept, holder_kind="numpy.ndarray"))
    tables = [replace(kept, holder_kind="dict", holder=f"net.{name}") for name in ("layers", "_modules", "_buffers")]
    assert [".clear()" in advice_of(one) for one in tables] == [True, False, False]


def test_a_layer_for_each_user_is_a_part_of_the_model_and_no_run():
    kept = evidence(
        "net Net, .heads ModuleDict, ._modules dict, ['a'] Linear!",
        holder="net.heads._modules", holder_kind="dict", crossing=KEY, has_models=True, **TENSORS,
    )  # fmt: skip
    assert find_cause(kept).slug != "run-switch"
    assert find_cause(replace(kept, holder="models")).slug == "run-switch"


def test_a_graph_that_grows_is_cut_by_a_call_that_no_shape_refuses():
    grown = evidence("past torch.Tensor, .grad_fn AddBackward0!", holder="past", unit="graph nodes")
    assert "`past = past.detach()`" in advice_of(grown)


@pytest.mark.parametrize(("is_scalar", "call"), [(True, "number instead: `.item()`"), (False, "`.detach()`")])
def test_a_number_is_taken_out_of_one_element_only(is_scalar, call):
    kept = evidence(PLAIN, crossing=INDEX, has_graph=True, facts=Facts(is_scalar=is_scalar), **TENSORS)
    assert call in advice_of(kept)


@pytest.mark.parametrize(
    ("path", "call"),
    [
        ("net Net, ._forward_pre_hooks collections.OrderedDict, [3] function!", "net.register_forward_pre_hook"),
        ("net Net, ._backward_hooks collections.OrderedDict, [3] function!", "net.register_full_backward_hook"),
        ("net torch.Tensor, ._backward_hooks dict, [3] function!", "net.register_hook"),
        (
            "net torch.optim.adam.Adam, ._optimizer_step_post_hooks dict, [3] method!",
            "net.register_step_post_hook",
        ),
        (
            "torch.nn.modules.module._global_forward_hooks dict, [3] method!",
            "torch.nn.modules.module.register_module_forward_hook",
        ),
    ],
)
def test_the_advice_on_a_hook_names_the_call_that_registered_it(path, call):
    store = path.partition(", [")[0].split(", ")[-1].split()[0]
    holder = f"net{store}" if store.startswith(".") else store
    hooked = evidence(path, holder=holder, crossing=KEY, entry_kinds=frozenset({"function"}))
    assert find_cause(hooked).slug == "hook-left"
    assert f"Keep the handle that `{call}` returns" in advice_of(hooked)


def test_workers_of_other_processes_are_counted_in_the_advice():
    loaders = evidence(
        "loaders list, [3] Loader!", crossing=INDEX, holder="loaders",
        facts=Facts(roles=(frozenset(), frozenset({Role.WORKERS})), children=lambda: [1024**2] * 3),
    )  # fmt: skip
    assert find_cause(loaders).slug == "thread-or-worker-kept"
    assert "3 child processes are alive with 3.00 MiB of resident memory" in advice_of(loaders)


def test_state_of_parameters_that_are_gone_is_counted():
    state = evidence(
        "opt torch.optim.sgd.SGD, .state collections.defaultdict, [<Parameter>] dict!", holder="opt.state",
        crossing=KEY, facts=Facts(gone_parameters=14),
    )  # fmt: skip
    assert find_cause(state).slug == "optimizer-state"
    assert "state of 14 parameters that no group contains" in advice_of(state)


def test_a_container_that_grows_tells_what_an_entry_costs():
    grown = evidence(
        "rows list", holder="rows", unit="entries", what="list entries: dict", facts=Facts(bytes_per_entry=360)
    )
    assert "(list entries: dict, 360 B for each entry)" in advice_of(grown)


def test_runs_that_get_slower_are_told_where_the_cause_can_slow_them():
    leak = replace(history_leak(), advice="Do it.")
    assert with_effect([leak]) == [leak]
    (told,) = with_effect([leak], slower=1.62)
    assert told.advice.splitlines()[1] == (
        "The runs get slower as it grows: the last ones took 1.6 times as long as the first ones."
    )
    native = replace(leak, cause="native")
    assert with_effect([native], slower=2.0) == [native]


@pytest.mark.parametrize(
    "called",
    [
        {"cause": "hook-left", "holder": "net._forward_hooks"},
        {"cause": "unknown", "holder": "net.forward"},
        {"cause": "graph-kept", "unit": "graph nodes"},
    ],
    ids=["a hook", "a wrapped method", "a longer graph"],
)
def test_that_runs_get_slower_is_told_of_what_they_call_and_not_of_what_is_only_kept_beside_it(called):
    kept = replace(history_leak(), advice="Keep numbers.", bytes_per_run=1e6)
    piling = replace(history_leak(), advice="Remove it.", bytes_per_run=200.0, fingerprint="other", **called)
    beside, blamed = with_effect([kept, piling], slower=4.0, n_runs=150)
    assert beside == kept
    assert blamed.advice.splitlines()[1] == (
        "The runs get slower as it grows: the last ones took 4.0 times as long as the first ones, and each run adds "
        "3 % of the first runs' time."
    )


@pytest.mark.parametrize(
    ("found", "slug", "word"),
    [
        (
            evidence(
                "loop EventLoop, ._scheduled list, [3] asyncio.events.TimerHandle!", holder="loop._scheduled",
                crossing=INDEX, entry_kinds=frozenset({"asyncio.events.TimerHandle"}), **TENSORS
            ),
            "thread-or-worker-kept", "timers",
        ),
        (
            evidence(
                "local _thread._local, ['scratch'] torch.Tensor!", holder="a dict in local", holder_kind="dict",
                crossing=KEY, **TENSORS
            ),
            "thread-or-worker-kept", "threading.local",
        ),
        (
            evidence(
                "models list, [3] torch.nn.modules.linear.Linear!", holder="models", crossing=INDEX, has_models=True,
                **TENSORS
            ),
            "run-switch", "keeps the model of every run",
        ),
    ],
    ids=["timers", "locals of threads", "models"],
)  # fmt: skip
def test_what_is_kept_is_called_what_it_is(found, slug, word):
    cause = find_cause(found)
    assert cause.slug == slug
    assert word in cause.advice


@pytest.mark.parametrize(
    ("root", "holder", "facts", "is_of_a_library"),
    [
        ("notebook variable", "_masks", Facts(), False),
        ("module 'helpers'", "helpers._masks", Facts(is_users_module=True), False),
        ("module 'torch._x'", "torch._x._masks", Facts(), True),
        ("module 'zoo_library'", "zoo_library.masks", Facts(), True),
    ],
)
def test_a_table_in_a_module_of_the_users_is_the_users(root, holder, facts, is_of_a_library):
    found = evidence(
        f"{holder} dict, [<torch.device>] torch.Tensor!", root=root, holder=holder, holder_kind="dict",
        crossing=KEY, facts=facts, **TENSORS,
    )  # fmt: skip
    cause = find_cause(found)
    assert cause.slug == "global-cache"
    assert ("keeps for itself" in cause.advice) is is_of_a_library
    assert (f"`{holder}.clear()`" in cause.advice) is not is_of_a_library


def test_the_variables_of_the_notebook_are_never_cleared():
    runs = evidence(
        "model_7 torch.nn.modules.linear.Linear!", holder="globals()", holder_kind="dict", crossing=KEY,
        has_models=True, **TENSORS,
    )  # fmt: skip
    assert "clear()" not in advice_of(runs)
    assert "the newest is `model_7`" in advice_of(runs)


def owned(*owners, **changes):
    values = {"holder": "store._table", "holder_kind": "dict", "crossing": KEY} | changes
    return evidence("store Store, ._table dict, ['a'] Record!", facts=Facts(owners=owners), **values)


def test_a_private_table_of_the_users_own_class_may_be_emptied():
    own = owned(Owner("store", "Store"), Owner("store._table", "dict", is_plain=True))
    assert "`store._table.clear()`" in advice_of(own)


def test_a_librarys_table_is_never_written_to_but_released_by_what_it_has():
    library = Owner("store", "lib.Store", is_library=True, releases=("close", "remove_all"))
    said = advice_of(owned(library, Owner("store._table", "dict", is_plain=True)))
    assert "store._table.clear()" not in said
    assert "`store.close()` or `store.remove_all()` may release it" in said
    entry = Owner("", "lib.ui.Slider", is_library=True, releases=("close",))
    said = advice_of(owned(replace(library, releases=()), Owner("store._table", "dict", is_plain=True), entry))
    assert "`close()` of each Slider may take it out again" in said


def test_a_variable_of_a_function_is_called_by_its_name():
    kept = evidence(
        "solve function, closure variable 'kept' of step() list, [3] torch.Tensor!",
        holder="solve.__closure__[0].cell_contents", crossing=INDEX, **TENSORS,
    )  # fmt: skip
    assert advice_of(kept).startswith("The variable `kept` of `step()` gets more entries in every run.")


@pytest.mark.parametrize(
    ("found", "also"),
    [
        (CASES["graph-kept"], ()),
        (replace(CASES["global-cache"], has_graph=True), ("global-cache",)),
        (replace(CASES["hook-left"], has_graph=True), ("graph-kept",)),
        (
            evidence(
                "net Net, ._forward_hooks dict, [3] function!, closure variable 'seen' of hook() list!",
                holder="net._forward_hooks", crossing=KEY,
            ),
            ("closure-kept",),
        ),
        (
            evidence(
                "net torch.nn.modules.linear.Linear, .mask_7 torch.Tensor!", holder="net._buffers",
                crossing=reference(".mask_7", "attribute"), **TENSORS
            ),
            ("module-tables",),
        ),
    ],
    ids=["one alone", "a cache of graphs", "a hook that keeps a graph", "a hook with a closure", "buffers of a module"],
)  # fmt: skip
def test_what_else_is_so_stands_beside_the_cause(found, also):
    assert find_cause(found).also == also


def test_every_second_cause_has_a_meaning():
    found = {slug for case in CASES.values() for slug in find_cause(case).also}
    assert found <= {*CAUSES, *SECOND_CAUSES}


def test_a_memo_is_emptied_by_the_picklers_own_call():
    memo = reference("reference inside _pickle.Pickler", "words")
    steps = "pickler _pickle.Pickler, reference inside _pickle.Pickler Row!"
    assert "`pickler.clear_memo()`" in find_cause(evidence(steps, holder="pickler", crossing=memo)).advice


def test_nothing_is_said_of_methods_that_the_holder_may_not_have():
    above = "hub Hub, .queues list, [3] queue.Queue!"
    assert ".get()" not in find_cause(evidence(above, holder="hub.queues", crossing=INDEX)).advice
    store = evidence("store PredictionStore, ['a'] Row!", holder="store", holder_kind="PredictionStore", crossing=KEY)
    assert "store.pop(" not in find_cause(store).advice


def test_what_an_exception_has_itself_is_kept_with_its_frames():
    of_path = (frozenset(), frozenset({Role.EXCEPTION}), frozenset({Role.TENSOR}))
    kept = evidence(
        "errors list, [3] BadBatch!, .batch torch.Tensor!", holder="errors", crossing=INDEX, has_tensors=True,
        has_graph=True, kinds=frozenset({"torch.Tensor", "traceback", "frame"}), facts=Facts(roles=of_path),
    )  # fmt: skip
    assert find_cause(kept).slug == "traceback-kept"
    assert "`error.with_traceback(None)`" in find_cause(kept).advice
    without = replace(kept, kinds=frozenset({"torch.Tensor"}))
    assert find_cause(without).slug == "graph-kept"


def test_a_context_variable_that_is_not_reset_and_an_iterator_that_nobody_reads():
    steps = "contextvars.copy_context() hamt, value of context variable 'current' Span, .parent Span!"
    parent = Reference(".parent", ".parent", ".parent", "attribute")
    spans = evidence(steps, root="context variable", holder="current.get()", crossing=parent)
    assert "`reset(token)`" in find_cause(spans).advice
    assert "the context variable 'current'" in find_cause(spans).advice
    stream = evidence("monitor itertools._tee, iterated object itertools._tee_dataobject!", holder="a tee")
    assert "`monitor` is one of the iterators of `itertools.tee(...)`" in find_cause(stream).advice
