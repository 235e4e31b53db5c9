"""What no root reaches is told apart: immortal cycles, proved or probable, garbage, and what something unseen holds."""

from __future__ import annotations

import pytest
from apart import apart
from cycle_heaps import REACHED, clean_heap, collected_heap, waiting_heap
from cycle_shapes import COLLECTED, IMMORTAL

from leaklab.model.paths import CycleCertainty

ASSUMED = {
    # the hooks of a tensor whose Python object is gone: nobody tells which node owns them
    "hook_of_an_intermediate_result_sees_a_later_one",
    "hook_of_many_gradients_sees_their_sum",
    "hook_of_a_result_that_is_changed_in_place",
}
CUTS = {
    "hook_of_a_result_sees_the_result": ("._backward_hooks[", "handle.remove()"),
    "hook_of_a_node_sees_its_result": ("hook <lambda> in the post_hooks of the node", "handle.remove()"),
    "prehook_of_a_node_sees_its_result": ("hook <lambda> in the pre_hooks of the node", "handle.remove()"),
    "post_accumulate_hook_sees_its_parameter": ("._post_accumulate_grad_hooks[", "handle.remove()"),
    "second_order_backward": (".grad", "tensor.grad = None"),
    "pack_hook_returns_the_tensor_it_got": ("saved for backward as 'result'", "return value.detach()"),
    "leaf_has_its_result_as_attribute": (".result", "del obj.result"),
    "ctx_keeps_a_later_result": (".later", "del obj.later"),
    "unpack_hook_sees_the_output": ("[0]", "items[0] = None"),
    "array_of_objects_and_tensor_hold_each_other": (".array", "del obj.array"),
}


@pytest.fixture(scope="module")
def collected():
    return apart(collected_heap)


@pytest.fixture(scope="module")
def waiting():
    return apart(waiting_heap)


@pytest.fixture(scope="module")
def clean():
    return apart(clean_heap)


def test_the_truth_about_each_program_is_what_a_collection_leaves(collected):
    alive, _found, notes = collected
    assert alive == set(IMMORTAL)
    assert notes == ()


@pytest.mark.parametrize("name", IMMORTAL)
def test_an_immortal_cycle_is_found_and_proved_where_it_can_be(collected, name):
    _alive, found, _notes = collected
    assert found[name].certainty is (CycleCertainty.PROBABLE if name in ASSUMED else CycleCertainty.PROVED)
    assert found[name].crosses_hidden
    assert len(found[name].path.steps) >= 3
    assert found[name].path.steps[-1].note.endswith("the first object again: the cycle is closed")
    assert found[name].path.steps[0].kind == found[name].path.steps[-1].kind


@pytest.mark.parametrize("name", IMMORTAL)
def test_every_immortal_cycle_says_where_it_is_cut(collected, name):
    _alive, found, _notes = collected
    cut = found[name].cut
    assert cut is not None
    assert cut.how
    assert cut.words
    if name in CUTS:
        reference, how = CUTS[name]
        assert cut.reference.startswith(reference)
        assert cut.how == how


def test_the_line_of_a_closure_is_in_the_cycle(collected):
    _alive, found, _notes = collected
    steps = found["hook_of_a_node_sees_its_result"].path.steps
    line = IMMORTAL["hook_of_a_node_sees_its_result"].__code__.co_firstlineno + 3
    (note,) = [step.note for step in steps if step.kind == "function"]
    assert note.startswith("<lambda> at ")
    assert note.endswith(f"cycle_shapes.py, line {line}")


def test_what_is_only_assumed_is_said(collected):
    _alive, found, _notes = collected
    notes = [step.note for name in ASSUMED for step in found[name].path.steps if "tensor_pre_hooks" in step.reference]
    assert len(notes) == len(ASSUMED)
    assert all("owner cannot be read" in note for note in notes)


def test_what_waits_for_a_collection_is_garbage(waiting):
    alive, found, alive_afterwards = waiting
    assert alive == set(COLLECTED)
    assert {name: orphans.certainty for name, orphans in found.items()} == dict.fromkeys(
        COLLECTED, CycleCertainty.GARBAGE
    )
    assert not any(orphans.crosses_hidden for orphans in found.values())
    assert alive_afterwards == set()


def test_what_has_a_reason_to_live_is_reached_or_held_by_something_unseen(clean):
    alive, found = clean
    assert alive == {*REACHED, "tensor hook", "ring", "graph"}
    assert {name: orphans.certainty for name, orphans in found.items()} == {
        "tensor hook": CycleCertainty.UNSEEN,
        "ring": CycleCertainty.UNSEEN,
        "graph": CycleCertainty.UNSEEN,
    }


def test_what_something_unseen_holds_is_said_to_be_so(clean):
    _alive, found = clean
    assert str(found["ring"].path) == "held by something that is not seen from Python"
    assert found["ring"].cut is None
    assert not found["ring"].crosses_hidden
