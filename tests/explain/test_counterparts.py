"""What undoes what is one table, for advice and for changes; every change has its place among the idioms."""

from __future__ import annotations

import pytest

from leaklab.explain.counterparts import lets_go, takes_one_out, takes_result, undoing, undoing_function
from leaklab.explain.idioms import CHANGES, IDIOMS


@pytest.mark.parametrize(("call", "undoes"), [
    ("register", ["unregister", "deregister"]), ("mpl_connect", ["mpl_disconnect"]), ("on", ["off"]),
    ("on_step", ["off_step"]), ("addHandler", ["removeHandler"]), ("push_scope", ["pop_scope"]), ("append", []),
    ("add_done_callback", ["remove_done_callback", "delete_done_callback", "discard_done_callback"]),
    ("register_hook", ["unregister_hook", "remove_hook", "deregister_hook"]),
])  # fmt: skip
def test_a_registration_is_undone_by_its_counterpart(call, undoes):
    assert list(undoing(call)) == undoes


def test_a_function_is_undone_by_a_function_of_its_module():
    names = {"register_parametrization", "remove_parametrizations", "weight_norm", "remove_weight_norm", "is_pruned"}
    assert list(undoing_function("register_parametrization", names)) == ["remove_parametrizations"]
    assert list(undoing_function("weight_norm", names)) == ["remove_weight_norm"]
    assert not list(undoing_function("is_pruned", names))


def test_what_a_context_variable_was_is_brought_back_by_its_token():
    assert takes_result("_contextvars.ContextVar", "set") == "reset"
    assert not takes_result("dict", "set")


def test_an_entry_leaves_a_plain_container_by_the_method_that_this_has():
    assert takes_one_out("set") == takes_one_out("set", "add") == "discard"
    assert takes_one_out("collections.deque", "append") == "remove"
    assert not takes_one_out("list", "insert")
    assert not takes_one_out("dict")


def test_a_module_is_not_told_to_let_go_by_what_only_an_object_has():
    assert lets_go("clear_cache")
    assert lets_go("clear_cache", of_module=True)
    assert lets_go("pop")
    assert not lets_go("pop", of_module=True)
    assert not lets_go("clearance")


def test_every_change_of_an_idiom_has_its_place_in_the_order_and_none_is_nobodys():
    of_idioms = {change for idiom in IDIOMS for change in idiom.changes}
    assert of_idioms == set(CHANGES)
    assert len(CHANGES) == len(set(CHANGES))
