"""The calls of web servers that answer one request: where the requests of a service are counted."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from types import FunctionType
from typing import Any

_PLACES: tuple[tuple[str, str, str], ...] = (
    ("uvicorn", "uvicorn.protocols.http.httptools_impl", "RequestResponseCycle.run_asgi"),
    ("uvicorn", "uvicorn.protocols.http.h11_impl", "RequestResponseCycle.run_asgi"),
    ("uvicorn", "uvicorn.protocols.http.zttp_impl", "RequestResponseCycle.run_asgi"),
    ("uvicorn", "uvicorn.protocols.http.zttp_h2_impl", "RequestResponseCycle.run_asgi"),
    ("hypercorn", "hypercorn.app_wrappers", "ASGIWrapper.__call__"),
    ("hypercorn", "hypercorn.app_wrappers", "WSGIWrapper.__call__"),
    ("gunicorn", "gunicorn.workers.sync", "SyncWorker.handle_request"),
    ("gunicorn", "gunicorn.workers.gthread", "ThreadWorker.handle_request"),
    ("gunicorn", "gunicorn.workers.base_async", "AsyncWorker.handle_request"),
    ("gunicorn", "gunicorn.asgi.protocol", "ASGIProtocol._handle_http_request"),
    ("waitress", "waitress.task", "WSGITask.execute"),
    ("werkzeug", "werkzeug.serving", "WSGIRequestHandler.run_wsgi"),
    ("wsgiref", "wsgiref.handlers", "BaseHandler.run"),
    ("http.server", "http.server", "BaseHTTPRequestHandler.handle_one_request"),
    ("aiohttp", "aiohttp.web_protocol", "RequestHandler._handle_request"),
    ("tornado", "tornado.web", "RequestHandler._execute"),
)
_OF_METRICS = "prometheus_client"
_BUILT_ON = frozenset(f"a request to {server}" for server in ("http.server", "wsgiref"))


def request_calls() -> Iterator[tuple[str, str, str]]:
    """Yield what a request is, a module, and the function in it that answers one; a server may be built on another."""
    for server, module, place in _PLACES:
        yield f"a request to {server}", module, place


def is_built_on(words: str, heard: AbstractSet[str]) -> bool:
    """Return whether another server of those *heard* is built on the one of *words*."""
    return words in _BUILT_ON and not heard <= _BUILT_ON


def is_of_program(*args: Any, **_kwargs: Any) -> bool:
    """Return whether such a call answers a request to the program: not one for its metrics, nor a server's start."""
    about: Any = args[1] if len(args) > 1 else None  # the application, or the scope
    if type(about) is dict:
        return about.get("type") != "lifespan"
    return not (type(about) is FunctionType and about.__module__.startswith(_OF_METRICS))
