"""Serve the figures of loops over HTTP, to this machine alone unless told otherwise."""

from __future__ import annotations

import errno
import os
import socket
from functools import cache
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING, Any
from weakref import WeakSet
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from leaklab.errors import MetricsError
from leaklab.metrics.loops import Watched
from leaklab.metrics.prometheus import Collector, registry_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from typing_extensions import Self

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
        return f"cannot listen on port {port} of {address}: this user may not; give one above 1023"
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"cannot listen on port {port} of {address}: {reason}"
