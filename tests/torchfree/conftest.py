"""Whatever a test does, the collector is as before; these tests run without torch, and without the fixtures above."""

from __future__ import annotations

import gc

import pytest


def _state() -> tuple[object, ...]:
    return gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.get_freeze_count() > 0


@pytest.fixture(autouse=True)
def collector_is_as_before():
    before = _state()
    yield
    assert _state() == before
    assert gc.garbage == []
