"""The collector's switches are put back, and said to have been."""

from __future__ import annotations

import gc
from contextlib import contextmanager

import pytest

from leaklab.runtime.gc_control import GcState, collect_quietly, gc_paused, user_has_frozen


@contextmanager
def put_back():
    state = gc.isenabled(), gc.get_threshold(), gc.get_debug(), list(gc.callbacks)
    try:
        yield
    finally:
        (gc.enable if state[0] else gc.disable)()
        gc.set_threshold(*state[1])
        gc.set_debug(state[2])
        gc.callbacks[:] = state[3]


def listener(phase: str, info: dict[str, int]) -> None:
    """Does nothing."""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(gc.disable, "on again", id="off"),
        pytest.param(lambda: gc.set_threshold(17, 3, 4), "thresholds (", id="thresholds"),
        pytest.param(lambda: gc.set_debug(gc.DEBUG_SAVEALL), "debug flags 0", id="debug"),
        pytest.param(lambda: gc.callbacks.append(listener), " callbacks", id="callbacks"),
        pytest.param(gc.callbacks.clear, "1 callbacks", id="no callbacks"),
    ],
)
def test_what_changed_is_put_back_and_named(change, words):
    with put_back():
        gc.callbacks[:] = gc.callbacks[:] if words != "1 callbacks" else [listener]
        state = GcState.now()
        change()
        (said,) = state.restore()
        assert words in said
        assert GcState.now() == state
        assert state.restore() == ()


def test_a_collector_that_was_off_is_off_again():
    with put_back():
        gc.disable()
        state = GcState.now()
        gc.enable()
        assert state.restore() == ("off again",)
        assert not gc.isenabled()


def test_the_list_of_callbacks_stays_the_same_list():
    callbacks = gc.callbacks
    with put_back():
        state = GcState.now()
        gc.callbacks.append(listener)
        state.restore()
        assert gc.callbacks is callbacks


@pytest.mark.parametrize("was_enabled", [True, False])
def test_a_pause_of_the_collector_ends_as_it_began_even_by_an_error(was_enabled):
    with put_back():
        (gc.enable if was_enabled else gc.disable)()
        inside = []
        with pytest.raises(KeyError), gc_paused():
            {}[inside.append(gc.isenabled())]
        assert inside == [False]
        assert gc.isenabled() is was_enabled


def test_a_quiet_collection_saves_no_garbage_under_debug_flags():
    with put_back():
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        with gc_paused():
            cycle: list[object] = []
            cycle.append(cycle)
            del cycle
            assert collect_quietly() >= 1
        assert gc.garbage == []
        assert gc.get_debug() == gc.DEBUG_SAVEALL


def test_a_freeze_is_noticed_and_what_python_freezes_by_itself_is_not():
    gc.collect()
    assert not user_has_frozen()
    gc.freeze()
    try:
        assert user_has_frozen()
    finally:
        gc.unfreeze()
