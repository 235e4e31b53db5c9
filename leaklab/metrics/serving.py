"""Serve the figures of loops over HTTP, to this machine alone unless told otherwise."""

from __future__ import annotations

import errno
import os
import socket
from functools import cache
from typing import TYPE_CHECKING
from weakref import WeakSet

from leaklab.errors import MetricsError
from leaklab.metrics.loops import Watched
from leaklab.metrics.prometheus import Collector, registry_of

if TYPE_CHECKING:
    from threading import Thread
    from wsgiref.simple_server import WSGIServer

    from typing_extensions import Self

_LAST_PORT = 65_535
_LOOPBACK = "127.0.0.1"
_SERVERS: WeakSet[WSGIServer] = WeakSet()


class MetricsServer:
    """What answers Prometheus, in a thread of its own that ends with the process.

    Attributes:
        url: What to enter as a target of Prometheus, or open in a browser.
        port: The port; the one that was free where 0 was asked for.
    """

    def __init__(self, server: WSGIServer, thread: Thread) -> None:
        self._server, self._thread = server, thread
        thread.name = "leaklab.metrics.serve"
        _register_at_fork()
        _SERVERS.add(server)
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
        ValueError: if *port* is none.
        MetricsError: if nothing can listen there; the message says what to do.
        MissingExtraError: without ``prometheus_client``.
    """
    if type(port) is not int or not 0 <= port <= _LAST_PORT:
        shown = repr(port) if type(port) in {int, float, str} else type(port).__name__
        msg = f"a port is a whole number from 0 (any that is free) to {_LAST_PORT}, not {shown}"
        raise ValueError(msg)
    registry = registry_of(Collector(*monitors, rank=rank))
    from prometheus_client import start_http_server  # noqa: PLC0415 - an extra

    try:
        return MetricsServer(*start_http_server(port, addr=address, registry=registry))
    except OSError as error:
        raise MetricsError(_problem(port, address, error)) from error


@cache
def _register_at_fork() -> None:
    """Let no process that is forked keep a port: a worker that loads data may outlive the server."""
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=_close_all)


def _close_all() -> None:
    for server in tuple(_SERVERS):
        server.socket.close()


def _problem(port: int, address: str, error: OSError) -> str:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"cannot listen on {address!r}: this machine has no such address; give {_LOOPBACK!r} or one of its own"
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on port {port} of {address}: it is in use; give another one, or 0 for any that is free"
    if error.errno == errno.EACCES:
        return f"cannot listen on port {port} of {address}: this user may not; give one above 1023"
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"cannot listen on port {port} of {address}: {reason}"
