"""What is told of real monitors."""

import sys
import threading

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families as read

import leaklab
from leaklab.decide.loop_states import LoopStates
from leaklab.metrics import Collector, log_to, serve
from leaklab.model.loop import GrowingPlace, LoopState


def runs_of(registry):
    return {
        sample.labels["run"]: sample.value
        for family in read(generate_latest(registry).decode())
        for sample in family.samples
        if sample.name == "leaklab_steps_total"
    }


def test_without_monitors_all_that_run_are_told_of_and_no_others():
    registry = CollectorRegistry()
    registry.register(Collector())
    assert runs_of(registry) == {}
    with leaklab.monitor("train", quiet=True) as first:
        first.step()
        assert runs_of(registry) == {"train": 1}
        with leaklab.monitor("train", quiet=True), leaklab.monitor("eval", quiet=True) as third:
            third.step(3)
            assert runs_of(registry) == {"train": 1, "train (2)": 0, "eval": 3}
        assert runs_of(registry) == {"train": 1}
    assert runs_of(registry) == {}


def test_a_monitor_that_was_given_is_told_of_before_and_after_its_loop():
    watch = leaklab.monitor("train", quiet=True)
    registry = CollectorRegistry()
    registry.register(Collector(watch))
    assert runs_of(registry) == {"train": 0}
    with watch:
        watch.step(5)
    assert runs_of(registry) == {"train": 5}


def test_a_monitor_gives_its_tracker_the_report_at_the_end():
    class Writer:
        def __init__(self):
            self.texts = []

        def add_scalar(self, tag, value, step): ...

        def add_text(self, tag, text, step):
            self.texts.append((tag, text, step))

        def flush(self): ...

    writer, watch = Writer(), leaklab.monitor("train", quiet=True)
    with log_to(writer, watch), watch:
        watch.step(7)
    ((tag, text, step),) = writer.texts
    assert (tag, step) == ("leaklab/report", 7)
    assert "train" in text
    assert watch.on_change is None


def test_a_server_that_tells_of_all_needs_none_at_its_start():
    with serve(0) as server:
        assert server.port


@pytest.fixture
def restless_threads():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless_threads")
def test_the_states_may_be_asked_for_while_places_come_and_go():
    states, problems, is_over = LoopStates(), [], threading.Event()

    def ask():
        while not is_over.is_set():
            try:
                _ = states.state, states.standing
            except RuntimeError as error:
                problems.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    for number in range(20_000):
        states._places[str(number)] = GrowingPlace(str(number), LoopState.GROWING, 1, 1, 1.0)
        if number >= 60:
            del states._places[str(number - 60)]
    is_over.set()
    asking.join()
    assert problems == []
