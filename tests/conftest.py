"""What all tests share: proof that no switch of the process was left turned, and a notebook to type into."""

from __future__ import annotations

import gc
import os
import sys
from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import given, settings, strategies
from notebook_shell import Notebook, open_notebook
from played_cuda import device  # noqa: F401 - a fixture

settings.register_profile("untimed", deadline=None)  # how long an example takes says how busy the machine is
settings.load_profile("untimed")


def process_switches() -> dict[str, object]:
    """The switches that a check must leave as they were."""
    torch = sys.modules.get("torch")
    return {
        "gc enabled": gc.isenabled(),
        "gc thresholds": gc.get_threshold(),
        "gc debug flags": gc.get_debug(),
        "gc callbacks": tuple(map(id, gc.callbacks)),
        "has frozen objects": gc.get_freeze_count() > 0,  # how many may change: some of them die
        "grad mode": True if torch is None else torch.is_grad_enabled(),
    }


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave for the night what repeats a fact, and skip where a tracer's own objects would disturb."""
    if os.environ.get("LEAKLAB_NIGHTLY") != "1":
        late = set(by_night(items))
        config.hook.pytest_deselected(items=[item for item in items if item in late])
        items[:] = [item for item in items if item not in late]
    for item in items:
        if sys.gettrace() is not None and item.get_closest_marker("untraced"):
            item.add_marker(pytest.mark.skip(reason="a tracer makes objects of its own: run with -m untraced"))


def by_night(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield what is left for the night: single cases, and of a test ``by_day(n)`` all cases but so many.

    Those that stay are spread over all: the first, the last, and what lies between at equal distances.
    """
    cases: dict[tuple[object, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("nightly"):
            yield item
        elif item.get_closest_marker("by_day"):
            cases[item.parent, getattr(item, "originalname", item.name)].append(item)
    for same in cases.values():
        (n_kept,) = same[0].get_closest_marker("by_day").args
        last = len(same) - 1
        kept = {round(place * last / max(n_kept - 1, 1)) for place in range(n_kept)}
        yield from (item for place, item in enumerate(same) if place not in kept)


@pytest.fixture(scope="session", autouse=True)
def hypothesis_has_started() -> None:
    """Let Hypothesis install its own gc callback now: it stays, and is no test's doing."""
    given(strategies.none())(lambda _value: None)()


@pytest.fixture(autouse=True)
def switches_stay_as_they_were() -> Iterator[None]:
    """Fail a test that leaves the collector or torch's grad mode changed, and put them back for the next one."""
    before, callbacks = process_switches(), list(gc.callbacks)
    yield
    after = process_switches()
    gc.callbacks[:] = callbacks
    gc.set_debug(before["gc debug flags"])
    gc.set_threshold(*before["gc thresholds"])
    (gc.enable if before["gc enabled"] else gc.disable)()
    if not before["has frozen objects"]:
        gc.unfreeze()
    if after["grad mode"] != before["grad mode"]:
        sys.modules["torch"].set_grad_enabled(before["grad mode"])
    assert after == before


@pytest.fixture(scope="module")
def shared_notebook() -> Iterator[Notebook]:
    with open_notebook() as notebook:
        yield notebook


@pytest.fixture
def notebook(shared_notebook: Notebook) -> Iterator[Notebook]:
    """A notebook with leaklab loaded, and nothing of another test."""
    shared_notebook.run("%load_ext leaklab")
    yield shared_notebook
    shared_notebook.empty()
