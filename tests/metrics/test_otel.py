"""What OpenTelemetry is told of loops, when it collects."""

import gc
import weakref
from dataclasses import replace

import pytest
from played_monitor import CLEAN, LEAKING, MIB, PlayedMonitor

pytest.importorskip("opentelemetry.sdk.metrics", reason="opentelemetry-sdk is not installed: pip install '.[test]'")
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from leaklab.metrics import Collector, observe
from leaklab.metrics.table import METRICS, Kind


@pytest.fixture
def reader():
    return InMemoryMetricReader()


@pytest.fixture
def meter(reader):
    provider = MeterProvider([reader])
    yield provider.get_meter("test")
    provider.shutdown()


def collected(reader):
    """Every metric by its name."""
    data = reader.get_metrics_data()
    parts = data.resource_metrics[0].scope_metrics if data else ()
    return {metric.name: metric for part in parts for metric in part.metrics}


def points(metric):
    return {tuple(sorted(point.attributes.items())): point.value for point in metric.data.data_points}


def test_instruments_have_the_names_units_and_figures_of_the_table(meter, reader, monkeypatch):
    monkeypatch.setattr("leaklab.metrics.table.free_accelerator_bytes", lambda: MIB)
    monitor = PlayedMonitor(replace(LEAKING, accelerator_bytes=MIB))
    with observe(monitor, meter=meter):
        found = collected(reader)
        assert {name: one.unit for name, one in found.items()} == {one.dotted: one.unit for one in METRICS}
        who = (("rank", "0"), ("run", "train"))
        assert points(found["leaklab.kept"]) == {who: 800 * MIB}
        assert points(found["leaklab.leak.info"]) == {(("holder", "history"), *who): 1}
        monitor.status = replace(LEAKING, step=1_300)
        assert points(collected(reader)["leaklab.steps"]) == {who: 1_300}
    counters = {one.dotted for one in METRICS if one.kind is Kind.COUNTER}
    assert {name for name, one in found.items() if getattr(one.data, "is_monotonic", False)} == counters


def test_both_exporters_tell_the_same(meter, reader):
    monitor = PlayedMonitor()
    families = {family.name: family for family in Collector(monitor).collect()}
    with observe(monitor, meter=meter):
        found = collected(reader)
    volatile = "leaklab.host.available"
    for metric in METRICS:
        family = families[metric.name.removesuffix("_total")]
        told = {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples}
        if metric.dotted != volatile:
            assert (points(found[metric.dotted]) if metric.dotted in found else {}) == told


def test_nothing_is_told_of_a_monitor_that_is_gone_or_after_the_end(meter, reader):
    gone, stays = PlayedMonitor(), PlayedMonitor(replace(CLEAN, name="other"))
    observation = observe(gone, stays, meter=meter)
    del gone
    gc.collect()
    assert [dict(who)["run"] for who in points(collected(reader)["leaklab.steps"])] == ["other"]
    observation.stop()
    assert collected(reader) == {}


def test_a_meter_tells_of_one_observation_after_the_other_and_of_two_at_once(meter, reader):
    """A loop is trained again in the same notebook."""
    observe(PlayedMonitor(), meter=meter).stop()
    first, second = PlayedMonitor(), PlayedMonitor(replace(CLEAN, name="other", step=5))
    with observe(first, meter=meter) as observation, observe(second, meter=meter):
        assert sorted(points(collected(reader)["leaklab.steps"]).values()) == [5, 1_200]
        observation.stop()
        observation.stop()
        assert sorted(points(collected(reader)["leaklab.steps"]).values()) == [5]
    assert collected(reader) == {}


def test_a_meter_is_not_held():
    provider = MeterProvider([InMemoryMetricReader()])
    meter = provider.get_meter("gone")
    observe(PlayedMonitor(), meter=meter)
    reference = weakref.ref(meter)
    provider.shutdown()
    del meter, provider
    gc.collect()
    assert reference() is None


def test_without_an_sdk_nothing_happens_and_nothing_fails():
    with observe(PlayedMonitor()):
        pass
