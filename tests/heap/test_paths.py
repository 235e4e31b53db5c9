"""Paths from a root to an object: one line to read, expressions to run, texts to fingerprint."""

from __future__ import annotations

import contextvars
import ctypes
import functools
import gc
import sys
import threading
import types

import pytest
import torch

from leaklab.heap.paths import Described, describe_path, fingerprint, stable_text, summary_of
from leaklab.model import Status

EXPECTED, LEAKED, UNKNOWN = Status.EXPECTED, Status.LEAKED, Status.UNKNOWN


class Trainer:
    __module__ = "__main__"

    def __init__(self):
        self.epoch_outputs = [{"loss": torch.ones(64, 128)} for _ in range(4)]

    def fit(self):
        return self.epoch_outputs


def describe(*objects, root="notebook variable", expression="", statuses=None, notes=()) -> Described:
    return describe_path(objects, root, expression, statuses or [UNKNOWN] * len(objects), notes)


def evaluate(expression, namespace):
    return eval(expression, dict(namespace))  # noqa: S307 - what leaklab itself has written


def assert_evaluates(described, objects, namespace):
    """Each expression must give the object of its step."""
    assert described.expressions[-1] is not None
    for expression, position in zip(described.expressions, described.positions, strict=True):
        assert evaluate(expression, namespace) is objects[position]


def test_a_list_of_dicts_in_an_attribute():
    trainer = Trainer()
    outputs = trainer.epoch_outputs
    objects = [{"trainer": trainer}, trainer, outputs, outputs[3], outputs[3]["loss"]]
    described = describe(*objects)
    assert str(described.path) == (
        "notebook variable: trainer (Trainer) -> .epoch_outputs (list 4 entries) -> [3] (dict 1 entry)"
        " -> ['loss'] (torch.Tensor (64, 128) float32 cpu)"
    )
    assert described.expressions == (
        "trainer",
        "trainer.epoch_outputs",
        "trainer.epoch_outputs[3]",
        "trainer.epoch_outputs[3]['loss']",
    )
    assert described.stable == ("trainer", ".epoch_outputs", "[*]", "['loss']")
    assert described.positions == (1, 2, 3, 4)
    assert_evaluates(described, objects, objects[0])


def test_an_instance_and_its_dict_are_one_step():
    trainer = Trainer()
    objects = [{"trainer": trainer}, trainer, vars(trainer), trainer.epoch_outputs]
    described = describe(*objects)
    assert str(described.path) == "notebook variable: trainer (Trainer) -> .epoch_outputs (list 4 entries)"
    assert described.positions == (1, 3)
    assert_evaluates(described, objects, objects[0])


def test_a_path_may_end_at_the_dict_of_an_instance():
    trainer = Trainer()
    objects = [{"trainer": trainer}, trainer, vars(trainer)]
    described = describe(*objects)
    assert described.expressions == ("trainer", "trainer.__dict__")
    assert_evaluates(described, objects, objects[0])


def test_a_class_and_its_namespace_are_one_step():
    kind = type("Registry", (), {"__module__": "__main__", "instances": [1]})
    namespace = next(each for each in gc.get_referents(kind) if type(each) is dict)
    objects = [{"Registry": kind}, kind, namespace, kind.instances]
    described = describe(*objects)
    assert str(described.path) == "notebook variable: Registry (type Registry) -> .instances (list 1 entry)"
    assert_evaluates(described, objects, objects[0])


def test_an_entry_of_a_class_that_binds_is_read_from_its_namespace():
    maker = classmethod(len)
    kind = type("Registry", (), {"maker": maker})
    namespace = next(each for each in gc.get_referents(kind) if type(each) is dict)
    objects = [{"Registry": kind}, kind, namespace, maker]
    described = describe(*objects)
    assert described.expressions[-1] == "Registry.__dict__['maker']"
    assert_evaluates(described, objects, objects[0])


@pytest.mark.parametrize("start", ["module", "dict"])
def test_a_variable_of_a_module_is_its_first_step(start):
    cache = ctypes._pointer_type_cache
    objects = [ctypes, vars(ctypes), cache] if start == "module" else [vars(ctypes), cache]
    expression = "ctypes" if start == "module" else "ctypes.__dict__"
    described = describe(*objects, root="module 'ctypes'", expression=expression)
    assert described.path.steps[0].reference == "ctypes._pointer_type_cache"
    assert described.expressions == ("ctypes._pointer_type_cache",)
    assert described.stable == ("ctypes._pointer_type_cache",)
    assert_evaluates(described, objects, {"ctypes": ctypes})


def test_a_module_on_the_way_gives_a_dotted_name():
    module = types.ModuleType("settings")
    module.cache = {"a": [1]}
    objects = [{"settings": module}, module, vars(module), module.cache, module.cache["a"]]
    described = describe(*objects)
    assert described.expressions == ("settings", "settings.cache", "settings.cache['a']")
    assert_evaluates(described, objects, objects[0])


def test_parameters_of_modules_are_written_as_torch_users_do():
    model = torch.nn.ModuleDict({"a b": torch.nn.Sequential(torch.nn.Linear(2, 3))})
    inner, linear = model["a b"], model["a b"][0]
    objects = [{"model": model}, model, model._modules, inner, inner._modules, linear, linear._parameters, linear.bias]
    described = describe(*objects)
    assert described.expressions == ("model", "model['a b']", "model['a b'][0]", "model['a b'][0].bias")
    assert described.positions == (1, 3, 5, 7)
    assert_evaluates(described, objects, objects[0])


def test_a_module_with_its_dict_and_table_folds_to_one_reference():
    linear = torch.nn.Linear(2, 3)
    objects = [{"linear": linear}, linear, vars(linear), linear._parameters, linear.weight]
    described = describe(*objects)
    assert str(described.path) == (
        "notebook variable: linear (torch.nn.modules.linear.Linear)"
        " -> .weight (torch.nn.parameter.Parameter (3, 2) float32 cpu)"
    )
    assert_evaluates(described, objects, objects[0])


def test_hooks_of_a_module_stay_a_step():
    linear = torch.nn.Linear(2, 3)
    handle = linear.register_forward_hook(print)
    objects = [{"linear": linear}, linear, linear._forward_hooks, print]
    described = describe(*objects)
    assert described.expressions[:2] == ("linear", "linear._forward_hooks")
    assert described.expressions[2] == f"linear._forward_hooks[{handle.id}]"
    assert described.stable == ("linear", "._forward_hooks", "[*]")
    assert_evaluates(described, objects, objects[0])


def closure():
    mask = [1]
    other = [2]
    return lambda: (mask, other)


def test_a_closure_variable_is_one_step():
    hook = closure()
    cells = hook.__closure__
    objects = [{"hook": hook}, hook, cells, cells[0], cells[0].cell_contents]
    described = describe(*objects)
    assert str(described.path) == (
        "notebook variable: hook (function) -> closure variable 'mask' of <lambda> (list 1 entry)"
    )
    assert described.expressions == ("hook", "hook.__closure__[0].cell_contents")
    assert_evaluates(described, objects, objects[0])


def test_a_path_may_end_at_a_cell():
    hook = closure()
    objects = [{"hook": hook}, hook, hook.__closure__, hook.__closure__[1]]
    described = describe(*objects)
    assert described.path.steps[-1].reference == "closure variable 'other' of <lambda>"
    assert_evaluates(described, objects, objects[0])


def test_default_values_are_named_by_their_parameter():
    def collect(item, seen=[1], *, extra={}):  # noqa: B006
        return item, seen, extra

    positional = [{"collect": collect}, collect, collect.__defaults__, collect.__defaults__[0]]
    described = describe(*positional)
    assert described.path.steps[-1].reference == "default of 'seen' of collect()"
    assert_evaluates(described, positional, positional[0])
    keyword = [{"collect": collect}, collect, collect.__kwdefaults__, collect.__kwdefaults__["extra"]]
    described = describe(*keyword)
    assert described.path.steps[-1].reference == "default of 'extra' of collect()"
    assert_evaluates(described, keyword, keyword[0])


def test_a_bound_method_keeps_its_object_as_a_step():
    trainer = Trainer()
    method = trainer.fit
    objects = [{"callback": method}, method, trainer, trainer.epoch_outputs]
    described = describe(*objects)
    assert described.expressions == ("callback", "callback.__self__", "callback.__self__.epoch_outputs")
    assert_evaluates(described, objects, objects[0])


def test_arguments_of_a_partial_fold():
    call = functools.partial(print, [1], end=[2])
    objects = [{"call": call}, call, call.args, call.args[0]]
    described = describe(*objects)
    assert described.path.steps[-1].reference == ".args[0]"
    assert_evaluates(described, objects, objects[0])


def test_a_local_of_a_generator_is_one_step_through_its_frame_or_not():
    def produce():
        batch, shared = [1], [2]
        yield lambda: shared
        del batch

    stream = produce()
    next(stream)
    local = stream.gi_frame.f_locals
    objects = [{"stream": stream}, stream, stream.gi_frame, local["batch"]]
    described = describe(*objects)
    assert described.path.steps[-1].reference == "local 'batch' of produce()"
    assert described.expressions[-1] == "stream.gi_frame.f_locals['batch']"
    assert_evaluates(described, objects, objects[0])
    direct = [{"stream": stream}, stream, local["batch"]]
    assert describe(*direct).expressions == described.expressions


def test_a_variable_that_a_generator_shares_is_read_through_its_cell():
    def produce():
        shared = [2]
        inner = lambda: shared  # noqa: E731
        yield inner

    stream = produce()
    inner = next(stream)
    (cell,) = inner.__closure__
    objects = [{"stream": stream}, stream, cell, cell.cell_contents]
    described = describe(*objects)
    assert described.path.steps[-1].reference == "local 'shared' of produce()"
    assert_evaluates(described, objects, objects[0])


def test_the_graph_behind_a_loss():
    weight = torch.ones(2, requires_grad=True)
    loss = (weight.exp() * 3).sum()
    multiply = loss.grad_fn.next_functions[0][0]
    exponent = multiply.next_functions[0][0]
    saved = exponent._raw_saved_result.data
    objects = [{"losses": [loss]}, [loss], loss, loss.grad_fn, multiply, exponent, saved]
    objects[1] = objects[0]["losses"]
    described = describe(*objects)
    assert str(described.path) == (
        "notebook variable: losses (list 1 entry) -> [0] (torch.Tensor () float32 cpu) -> .grad_fn (SumBackward0)"
        " -> .next_functions[0][0] (MulBackward0) -> .next_functions[0][0] (ExpBackward0)"
        " -> saved for backward as 'result' (torch.Tensor (2,) float32 cpu)"
    )
    assert_evaluates(described, objects, objects[0])


def test_a_value_of_a_context_variable_is_one_step():
    variable = contextvars.ContextVar("request")
    context = contextvars.Context()
    value = [1]
    context.run(variable.set, value)
    (mapping,) = gc.get_referents(context)
    (node,) = gc.get_referents(mapping)
    described = describe({"context": context}, context, mapping, node, value)
    assert str(described.path) == (
        "notebook variable: context (_contextvars.Context) -> value of context variable 'request' (list 1 entry)"
    )
    assert described.expressions == ("context", None)


def test_a_cached_result_is_one_step():
    @functools.cache
    def compute(argument):
        return [argument]

    result = compute(1)
    (cache,) = (each for each in gc.get_referents(compute) if type(each) is dict and each is not vars(compute))
    described = describe({"compute": compute}, compute, cache, result)
    assert [step.reference for step in described.path.steps] == ["compute", "cached result"]


def test_after_a_reference_without_python_no_expression_follows():
    element = (1, [2].append)
    seen = {element}
    described = describe({"seen": seen}, seen, element, element[1])
    assert [step.reference for step in described.path.steps] == ["seen", "element", "[1]"]
    assert described.expressions == ("seen", None, None)


def test_what_this_thread_has_in_a_thread_local_is_its_attribute():
    local, scratch, tables = threading.local(), [[1]], []
    local.scratch = scratch

    def look():
        local.scratch = [2]
        (table,) = (one for one in gc.get_referents(local) if type(one) is dict)
        tables.extend([table, dict(table)])

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    table, entries = tables
    of_this, of_other = entries.values()
    described = describe({"local": local}, local, table, of_this, scratch, scratch[0])
    assert described.expressions == ("local", None, "local.__dict__", "local.scratch", "local.scratch[0]")
    of_another = describe({"local": local}, local, {**entries}, of_other, of_other["scratch"])
    assert of_another.expressions == ("local", None, None, None)


def test_a_reference_that_is_gone_is_said_to_be_inside():
    described = describe({"a": [1]}, [2], [3])
    assert [step.reference for step in described.path.steps] == ["reference inside dict", "reference inside list"]
    assert described.expressions == (None, None)


def test_a_local_of_a_running_frame_begins_a_path_without_expression():
    batch = {"images": [1]}
    frame = sys._getframe()
    described = describe(frame, batch, batch["images"], root="thread 'prefetch'", expression=None)
    name = "local 'batch' of test_a_local_of_a_running_frame_begins_a_path_without_expression()"
    assert str(described.path) == (f"thread 'prefetch': {name} (dict 1 entry) -> ['images'] (list 1 entry)")
    assert described.expressions == (None, None)


class Task:
    pass


def test_a_person_calls_an_object_by_its_python():
    trainer = Trainer()
    described = describe({"trainer": trainer}, trainer, trainer.epoch_outputs)
    assert (described.name, described.code) == ("trainer.epoch_outputs",) * 2


def test_what_a_local_leads_to_is_called_as_in_its_function_and_the_function_is_said():
    trainer = Trainer()
    described = describe(sys._getframe(), trainer, trainer.epoch_outputs, root="running function fit", expression=None)
    here = "test_what_a_local_leads_to_is_called_as_in_its_function_and_the_function_is_said()"
    assert (described.name, described.code) == (f"trainer.epoch_outputs in {here}", "trainer.epoch_outputs")


def test_what_python_cannot_name_is_called_by_its_type_and_the_last_name_above():
    task = Task()
    tasks = {task}
    described = describe({"tasks": tasks}, tasks, task)
    assert (described.name, described.code) == ("a Task in tasks", "")


def test_what_a_local_holds_without_a_name_is_called_by_its_type_and_the_local():
    task = Task()
    tasks = {task}
    described = describe(sys._getframe(), tasks, task, root="running function fit", expression=None)
    here = "test_what_a_local_holds_without_a_name_is_called_by_its_type_and_the_local()"
    assert (described.name, described.code) == (f"a Task in tasks in {here}", "")


def test_inside_of_a_graph_the_tensor_is_called_that_carries_it():
    loss = (torch.ones(3, requires_grad=True) * 2).exp()
    node = loss.grad_fn.next_functions[0][0]
    described = describe({"loss": loss}, loss, loss.grad_fn, node)
    assert described.expressions[-1] == "loss.grad_fn.next_functions[0][0]"
    assert (described.name, described.code) == ("the graph of loss", "loss")


def test_where_nothing_on_the_path_has_a_name_the_root_is_said():
    described = describe([1], [[1]], root="context variable", expression=None)
    assert described.name == "a list in context variable"


def test_a_cycle_begins_with_its_first_object():
    cycle = [1]
    cycle.append(cycle)
    described = describe(cycle, cycle, root="garbage cycle", expression=None)
    assert [step.reference for step in described.path.steps] == ["", "[1]"]
    assert described.expressions == (None, None)
    assert described.stable == ("list", "[*]")


def test_a_root_with_an_expression_is_a_step_of_its_own():
    hook = types.SimpleNamespace(result=[1])
    objects = [hook, vars(hook), hook.result]
    described = describe(*objects, root="IPython", expression="get_ipython().displayhook")
    assert described.expressions == ("get_ipython().displayhook", "get_ipython().displayhook.result")
    assert_evaluates(described, objects, {"get_ipython": lambda: types.SimpleNamespace(displayhook=hook)})


def test_a_variable_that_is_no_name_has_no_python():
    value = [1]
    described = describe({"not a name": value}, value)
    assert described.path.steps[0].reference == "['not a name']"
    assert described.expressions == (None,)


def test_numbers_that_ipython_counts_are_not_stable():
    value = [1]
    assert describe({"_12": value}, value).stable == ("_*",)
    assert describe({"Out": {12: value}}, {12: value}).stable[-1] == "reference inside dict"
    outputs = {12: value}
    assert describe({"Out": outputs}, outputs, value).stable == ("Out", "[*]")


def test_a_public_variable_is_preferred_to_ipythons():
    value = [1]
    assert describe({"_": value, "_12": value, "loss": value}, value).expressions == ("loss",)


def test_what_a_folded_object_is_known_for_goes_to_its_step():
    trainer = Trainer()
    objects = [{"trainer": trainer}, trainer, vars(trainer), trainer.epoch_outputs]
    leaked = describe(*objects, statuses=[EXPECTED, EXPECTED, LEAKED, UNKNOWN], notes=["", "", "made in run 3", ""])
    assert [step.status for step in leaked.path.steps] == [EXPECTED, LEAKED]
    assert [step.note for step in leaked.path.steps] == ["", "made in run 3"]
    known = describe(
        *objects, statuses=[EXPECTED, EXPECTED, LEAKED, EXPECTED], notes=["", "", "made in run 3", "yours"]
    )
    assert [step.status for step in known.path.steps] == [EXPECTED, EXPECTED]
    assert known.path.steps[-1].note == "yours"
    unknown = describe(*objects, statuses=[LEAKED, EXPECTED, EXPECTED, UNKNOWN])
    assert unknown.path.steps[-1].status is UNKNOWN


def test_summaries_can_be_left_out():
    value = [1]
    described = describe_path([{"values": value}, value], "notebook variable", "", [UNKNOWN, UNKNOWN], summaries=False)
    assert str(described.path) == "notebook variable: values (list)"


def test_a_fingerprint_is_twelve_digits_and_depends_on_order_and_borders():
    assert fingerprint(["trainer", ".history", "[*]"]) == "fa53fe284e7e"
    assert fingerprint(["a", "bc"]) != fingerprint(["ab", "c"])
    assert fingerprint(["a", "b"]) != fingerprint(["b", "a"])


@pytest.mark.parametrize(
    ("today", "tomorrow"),
    [
        ("<function f at 0x7f12ab>", "<function f at 0x55aa01>"),
        ("Cell In[7], line 3", "Cell In[12], line 3"),
        ("<ipython-input-7-ab12cd>", "<ipython-input-9-99>"),
        ("/tmp/ipykernel_4711/123.py", "/tmp/ipykernel_815/99.py"),  # noqa: S108 - only a text
        ("_12", "_7"),
        ("_i12", "_i7"),
        ("Out[3]", "Out[4]"),
        ("thread 'Thread-12 (fill)'", "thread 'Thread-3 (fill)'"),
    ],
)
def test_running_numbers_and_addresses_are_not_part_of_a_fingerprint(today, tomorrow):
    assert fingerprint([today]) == fingerprint([tomorrow])


@pytest.mark.parametrize("text", [".layer12", "x1", "['top5']", "local 'h2' of fill()"])
def test_numbers_in_names_stay(text):
    assert stable_text(text) == text


def keep_going(step):
    return step


def test_what_is_bound_or_partial_tells_which_function_it_calls():
    box = types.MethodType(keep_going, 3)
    assert summary_of(functools.partial(functools.partial(keep_going, 1), 2)) == "of keep_going()"
    assert summary_of(box) == "of keep_going()"
    assert summary_of([1, 2]) == "2 entries"
