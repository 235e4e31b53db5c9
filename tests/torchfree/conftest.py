"""Whatever a test does, the collector is as before; these tests run without torch, and without the fixtures above."""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings

from leaklab.runtime.gc_control import user_has_frozen

settings.register_profile("untimed", deadline=None)  # as for the other tests, whose conftest is not read here
settings.load_profile("untimed")


def _state() -> tuple[object, ...]:
    return gc.isenabled(), gc.get_threshold(), gc.get_debug(), user_has_frozen()


@pytest.fixture(autouse=True)
def collector_is_as_before():
    before = _state()
    yield
    assert _state() == before
    assert gc.garbage == []
