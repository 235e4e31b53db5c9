"""Tell Prometheus: a collector that reads when it is asked, and a text file for the node exporter."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from leaklab.files import FilePath, write_bytes
from leaklab.metrics.extras import require_prometheus
from leaklab.metrics.loops import Loops, Reading, Watched
from leaklab.metrics.table import METRICS, Kind, Metric

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric as Family
    from prometheus_client.registry import Collector as AnyCollector

_SUFFIX = ".prom"


class Collector:
    """The figures of monitors, for a registry of ``prometheus_client``: ``registry.register(Collector(monitor))``.

    They are read when the registry is asked, so the loop pays nothing. Monitors are held weakly: the series of one
    that is gone end.

    Args:
        monitors: What `leaklab.monitor` gave; none: all that run.
        rank: Value of the label ``rank``; None: what torch.distributed or ``RANK`` says, else 0.

    Raises:
        TypeError: if one of *monitors* is something else.
        MissingExtraError: without ``prometheus_client``.
    """

    def __init__(self, *monitors: Watched, rank: int | None = None) -> None:
        require_prometheus()
        self._loops = Loops(monitors, rank)

    def describe(self) -> Iterator[Family]:
        """Yield every metric without figures: a registry asks for the names."""
        return families(())

    def collect(self) -> Iterator[Family]:
        """Yield every metric with its figures of this moment."""
        return families(self._loops.read())


class Readings:
    """Figures that were read already, as something to register."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Family]:
        """Yield every metric with its figures."""
        return families(self._readings)


def write_textfile(path: FilePath, *monitors: Watched, rank: int | None = None) -> None:
    """Write the figures of this moment to *path*, for the text file collector of Prometheus's node exporter.

    The file is replaced as a whole: whoever reads it never sees a part. Remove it when the job has ended, or its last
    figures stay for ever.

    Args:
        path: In the folder that the node exporter reads; ends in ``.prom``. Every job needs a file of its own.
        monitors: What `leaklab.monitor` gave; none: all that run.
        rank: Value of the label ``rank``; None: what torch.distributed or ``RANK`` says, else 0.

    Raises:
        ValueError: if *path* does not end in ``.prom``.
        ReportError: if the file cannot be written; the message says what to do.
        MissingExtraError: without ``prometheus_client``.
    """
    if PurePath(os.fspath(path)).suffix != _SUFFIX:
        msg = f"the node exporter reads only files that end in {_SUFFIX}: give such a name, not {os.fspath(path)!r}"
        raise ValueError(msg)
    registry = registry_of(Collector(*monitors, rank=rank))
    from prometheus_client import generate_latest  # noqa: PLC0415 - an extra

    write_bytes(path, generate_latest(registry))


def registry_of(collector: AnyCollector) -> CollectorRegistry:
    """Return a registry of our own: the default one of the process is the user's."""
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - an extra

    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def families(readings: Sequence[Reading]) -> Iterator[Family]:
    """Yield every metric of the table with the figures of *readings*."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - an extra

    for metric in METRICS:
        labels = ["run", "rank", *filter(None, [metric.label])]
        kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
        family = kind(metric.name, metric.help, labels=labels)
        for values, figure in _samples(metric, readings):
            family.add_metric(values, figure)
        yield family


def _samples(metric: Metric, readings: Iterable[Reading]) -> Iterator[tuple[list[str], float]]:
    for reading in readings:
        for value, figure in metric.read(reading).items():
            yield [reading.run, reading.rank, *([value] if metric.label else [])], figure
