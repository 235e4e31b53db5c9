"""Push the figures of loops to a push gateway while a job runs, and delete them there when it ends."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from typing import TYPE_CHECKING

from leaklab.errors import MetricsError
from leaklab.metrics.extras import require_prometheus
from leaklab.metrics.loops import Loops, Watched
from leaklab.metrics.prometheus import Readings, registry_of

if TYPE_CHECKING:
    from typing_extensions import Self

_PATIENCE_SECONDS = 5.0
"""How long a gateway may take to answer: a job that wants to end must not wait for it."""


class Push:
    """Figures that are pushed at intervals, by a thread of its own, until ``stop()`` deletes them at the gateway.

    Attributes:
        problem: What went wrong at the last push; empty if nothing did. Training goes on, and so does pushing.
    """

    def __init__(self, url: str, loops: Loops, job: str, every_seconds: float, linger_seconds: float) -> None:
        self.problem = ""
        self._has_warned = False
        self._url, self._job = url, job
        self._loops = loops
        self._every_seconds, self._linger_seconds = every_seconds, linger_seconds
        self._groups: set[tuple[str, str]] = set()
        try:
            self._push_all()
        except MetricsError:
            self._try(self._delete_all)  # of several loops some may be there already
            raise
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_pushing, name="leaklab.metrics.push", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Push the last figures and delete them at the gateway; a second call does nothing.

        A gateway never forgets: figures that nobody deletes are scraped for ever.
        """
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join()
        self._try(self._push_all)
        if not self.problem:
            time.sleep(self._linger_seconds)
        self._try(self._delete_all)
        if self.problem:
            warnings.warn(f"{self.problem}; figures of this job may stay there", RuntimeWarning, stacklevel=2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "stopped" if self._ended.is_set() else self.problem or "going on"
        return f"<Push to {self._url}: {state}>"

    def _keep_pushing(self) -> None:
        while not self._ended.wait(self._every_seconds):
            self._try(self._push_all)
            if self.problem and not self._has_warned:
                self._has_warned = True
                with suppress(RuntimeWarning):  # where a filter makes it an error, it would end this thread
                    warnings.warn(f"{self.problem}; it is tried again", RuntimeWarning, stacklevel=2)

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except MetricsError as error:
            self.problem = str(error)
        else:
            self.problem = ""

    def _push_all(self) -> None:
        """Push every loop as a group of its own: a gateway gives all series of a group the group's labels."""
        from prometheus_client import push_to_gateway  # noqa: PLC0415 - an extra

        readings = {(reading.run, reading.rank): reading for reading in self._loops.read()}
        for group in self._groups - readings.keys():
            self._delete(group)
        for group, reading in readings.items():
            registry = registry_of(Readings((reading,)))
            with _one_sentence(self._url):
                push_to_gateway(self._url, self._job, registry, _key(group), timeout=_PATIENCE_SECONDS)
            self._groups.add(group)

    def _delete_all(self) -> None:
        for group in tuple(self._groups):
            self._delete(group)

    def _delete(self, group: tuple[str, str]) -> None:
        from prometheus_client import delete_from_gateway  # noqa: PLC0415 - an extra

        with _one_sentence(self._url):
            delete_from_gateway(self._url, self._job, _key(group), timeout=_PATIENCE_SECONDS)
        self._groups.discard(group)


def push(
    url: str,
    *monitors: Watched,
    job: str = "leaklab",
    every_seconds: float = 15.0,
    linger_seconds: float = 0.0,
    rank: int | None = None,
) -> Push:
    """Push the figures of loops to a push gateway at *url*, now and at intervals, and delete them there at the end.

    For jobs that are gone before Prometheus asks, and for those that it cannot reach. Where it can, `serve` is better:
    a gateway knows nothing of a job that died.

    Args:
        url: Of the gateway, such as ``http://gateway:9091``.
        monitors: What `leaklab.monitor` gave; held weakly. None: all that run.
        job: Value of the label ``job``; the other labels of a group are ``run`` and ``rank``.
        every_seconds: From one push to the next.
        linger_seconds: The end waits so long between the last push and the deletion. A job that ends sooner than
            Prometheus asks twice gives it one scrape interval here.
        rank: Value of the label ``rank``; None: what torch.distributed or ``RANK`` says, else 0.

    Returns:
        Has ``stop()``, and is a context manager that calls it.

    Raises:
        ValueError: if a time is none.
        MetricsError: if the first push fails. What fails later is a warning, once, and one more if figures may stay at
            the gateway.
        MissingExtraError: without ``prometheus_client``.
    """
    if not (0 < every_seconds < math.inf and 0 <= linger_seconds < math.inf):
        msg = (
            f"every_seconds must be above 0 and linger_seconds 0 or more, not {every_seconds!r} and {linger_seconds!r}"
        )
        raise ValueError(msg)
    require_prometheus()
    return Push(url, Loops(monitors, rank), job, every_seconds, linger_seconds)


def _key(group: tuple[str, str]) -> dict[str, str]:
    run, rank = group
    return {"run": run, "rank": rank}


@contextmanager
def _one_sentence(url: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, HTTPException) as error:  # urllib: no connection, no URL, no HTTP
        reason = getattr(error, "reason", None) or error
        msg = f"the push gateway at {url!r} did not take the figures: {reason}"
        raise MetricsError(msg) from error
