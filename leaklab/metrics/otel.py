"""Tell OpenTelemetry: instruments whose callbacks read the figures when they are collected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from leaklab.errors import require
from leaklab.metrics.table import METRICS, Kind, Loops, Metric, Watched
from leaklab.version import __version__

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter
    from opentelemetry.metrics import Observation as Figure
    from typing_extensions import Self


class Observation:
    """What is exported to OpenTelemetry, until ``stop()``."""

    def __init__(self, loops: Loops, exported: list[Loops]) -> None:
        self._loops, self._exported = loops, exported
        exported.append(loops)

    def stop(self) -> None:
        """Tell no more; a second call does nothing."""
        if self._loops in self._exported:
            self._exported.remove(self._loops)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()


def observe(*monitors: Watched, meter: Meter | None = None, rank: int | None = None) -> Observation:
    """Make an observable instrument of every metric, read whenever OpenTelemetry collects.

    Only the API is used: where the figures go, how often, and to which collector is what the program has told the SDK.

    Args:
        monitors: What `leaklab.monitor` gave; held weakly. None: all that run.
        meter: Makes the instruments; None: the meter ``leaklab`` of the global provider.
        rank: Value of the attribute ``rank``; None: what torch.distributed or ``RANK`` says, else 0.

    Returns:
        Has ``stop()``, and is a context manager that calls it.

    Raises:
        TypeError: if one of *monitors* is something else.
        MissingExtraError: without ``opentelemetry-api``.
    """
    require("opentelemetry.metrics", "these metrics", "opentelemetry-api", "'leaklab[otel]'")
    return Observation(Loops(monitors, rank), _exported_by(meter or _own_meter()))


@cache
def _own_meter() -> Meter:
    from opentelemetry.metrics import get_meter  # noqa: PLC0415 - an extra

    return get_meter("leaklab", __version__)


def _exported_by(meter: Meter) -> list[Loops]:
    """Return the list of the loops that the instruments of *meter* tell of; make the instruments if it has none.

    They are made once: a meter cannot take an instrument back, and ignores the callbacks of a second one of its name.
    """
    exported = _EXPORTED.get(meter)
    if exported is None:
        exported = _EXPORTED[meter] = []
        for metric in METRICS:
            make = meter.create_observable_counter if metric.kind is Kind.COUNTER else meter.create_observable_gauge
            make(metric.dotted, [_callback(metric, exported)], unit=metric.unit, description=metric.help)
    return exported


def _callback(metric: Metric, exported: list[Loops]) -> Callable[[CallbackOptions], Iterable[Figure]]:
    from opentelemetry.metrics import Observation as Figure  # noqa: PLC0415 - an extra

    def figures(_: CallbackOptions) -> Iterable[Figure]:
        for loops in tuple(exported):
            for reading in loops.read():
                for value, figure in metric.read(reading).items():
                    own = {metric.label: value} if metric.label else {}
                    yield Figure(figure, {"run": reading.run, "rank": reading.rank, **own})

    return figures


_EXPORTED: WeakKeyDictionary[Meter, list[Loops]] = WeakKeyDictionary()
