"""Give figures of loops to Prometheus: to be collected, served, pushed, or read from a file, with rules on them.

A collector reads when it is asked. The server is there for this machine alone unless told otherwise. What a job pushes
to a gateway while it runs is deleted there when it ends. The file is for the text collector of the node exporter. The
alert rules and the dashboard that come with leaklab are given as text.
"""

from __future__ import annotations

import errno
import math
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from http.client import HTTPException
from pathlib import Path, PurePath
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING, Any
from weakref import WeakSet
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from leaklab.errors import MetricsError, require
from leaklab.files import FilePath, write_bytes
from leaklab.metrics.table import METRICS, Kind, Loops, Metric, Reading, Watched

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric as Family
    from prometheus_client.registry import Collector as AnyCollector
    from typing_extensions import Self


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
        _require_client()
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


_LAST_PORT = 65_535
_LOOPBACK = "127.0.0.1"
_SERVERS: WeakSet[WSGIServer] = WeakSet()


class _Server(ThreadingMixIn, WSGIServer):
    """Gives each request a thread, so that one who asks and does not listen holds up nobody.

    The threads begin in code of ours: a check that runs meanwhile knows by that that they are not the user's.
    """

    daemon_threads = True

    def __init__(self, port: int, address: str, registry: CollectorRegistry) -> None:
        from prometheus_client import make_wsgi_app  # noqa: PLC0415 - an extra

        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, *_, place = found[0]
        super().__init__((str(place[0]), port), _Handler)
        self.set_app(make_wsgi_app(registry))

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one request."""
        super().process_request_thread(request, client_address)

    def answer(self) -> None:
        """Answer until it is shut down."""
        self.serve_forever()


class _Handler(WSGIRequestHandler):
    """Writes no line for every request."""

    timeout = 10

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Write nothing."""


class MetricsServer:
    """What answers Prometheus, in a thread of its own that ends with the process.

    Attributes:
        url: What to enter as a target of Prometheus, or open in a browser.
        port: The port; the one that was free where 0 was asked for.
    """

    def __init__(self, server: _Server) -> None:
        self._server = server
        _register_at_fork()
        _SERVERS.add(server)
        self._thread = Thread(target=server.answer, name="leaklab.metrics.serve", daemon=True)
        self._thread.start()
        self.port = server.server_port
        host = str(server.server_address[0])
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/metrics"

    def stop(self) -> None:
        """Stop to answer, and give the port back; a second call does nothing."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<MetricsServer {self.url if self._thread.is_alive() else 'stopped'}>"


def serve(port: int, *monitors: Watched, address: str = _LOOPBACK, rank: int | None = None) -> MetricsServer:
    """Answer Prometheus at ``http://127.0.0.1:PORT/metrics`` with the figures of loops, read when it asks.

    Without further measures the figures can be read by whoever reaches *address*: by default that is this machine
    alone. The registry is our own; metrics of the user's in the default one are not served.

    Args:
        port: 0 takes any that is free: the result says which. Ranks on one machine need different ones.
        monitors: What `leaklab.monitor` gave; held weakly. None: all that run.
        address: Where to listen: ``"0.0.0.0"`` is every network of the machine.
        rank: Value of the label ``rank``; None: what torch.distributed or ``RANK`` says, else 0.

    Returns:
        Has ``stop()``, and is a context manager that calls it.

    Raises:
        ValueError: if *port* or *address* is none.
        MetricsError: if nothing can listen there; the message says what to do.
        MissingExtraError: without ``prometheus_client``.
    """
    if type(port) is not int or not 0 <= port <= _LAST_PORT:
        shown = repr(port) if type(port) in {int, float, str} else type(port).__name__
        msg = f"a port is a whole number from 0 (any that is free) to {_LAST_PORT}, not {shown}"
        raise ValueError(msg)
    if type(address) is not str or not address:
        msg = f"an address is a name or a number such as {_LOOPBACK!r} or '0.0.0.0' for every network, not {address!r}"
        raise ValueError(msg)
    registry = registry_of(Collector(*monitors, rank=rank))
    try:
        return MetricsServer(_Server(port, address, registry))
    except (OSError, UnicodeError) as error:
        raise MetricsError(_problem(port, address, error)) from error


@cache
def _register_at_fork() -> None:
    """Let no process that is forked keep a port: a worker that loads data may outlive the server."""
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=_close_all)


def _close_all() -> None:
    for server in tuple(_SERVERS):
        server.socket.close()


def _problem(port: int, address: str, error: OSError | UnicodeError) -> str:
    if isinstance(error, (socket.gaierror, UnicodeError)) or error.errno == errno.EADDRNOTAVAIL:
        return f"cannot listen on {address!r}: this machine has no such address; give {_LOOPBACK!r} or one of its own"
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on port {port} of {address}: it is in use; give another one, or 0 for any that is free"
    if error.errno == errno.EACCES:
        return f"cannot listen on port {port} of {address}: this user may not use it; give one above 1023"
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"cannot listen on port {port} of {address}: {reason}"


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
                    warnings.warn(f"{self.problem}; it will be tried again", RuntimeWarning, stacklevel=2)

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
    _require_client()
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


_FILES = Path(__file__).parent / "files"


def alert_rules() -> str:
    """Return the alert rules for Prometheus, YAML: write them to a file and name it under ``rule_files``."""
    return (_FILES / "alerts.yml").read_text("utf-8")


def dashboard() -> str:
    """Return the dashboard for Grafana, JSON: import it; the first use asks which Prometheus to read."""
    return (_FILES / "dashboard.json").read_text("utf-8")


def _require_client() -> None:
    require("prometheus_client", "these metrics", "prometheus_client", "'leaklab[metrics]'")
