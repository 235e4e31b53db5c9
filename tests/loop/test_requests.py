"""The steps of a service are its requests: in all threads, in workers that are forked off, of one server each."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler
from wsgiref.handlers import BaseHandler, SimpleHandler

import pytest

from leaklab.loop.clocks import StepClock, Trust
from leaklab.loop.inside import BlockWatch
from leaklab.loop.servers import is_of_program

pytestmark = pytest.mark.untraced


class Session:
    pass


sessions: dict[int, Session] = {}
recent: list[Session] = []


def application(_environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"answered"]


def prometheus_app(environ, start_response):
    return application(environ, start_response)


prometheus_app.__module__ = "prometheus_client.exposition"


def request(app=application):
    SimpleHandler(io.BytesIO(), io.BytesIO(), io.StringIO(), {"SERVER_PROTOCOL": "HTTP/1.0"}).run(app)


def test_requests_of_wsgiref_are_the_clock_and_their_leak_is_named():
    def keeping(environ, start_response):
        sessions[len(sessions)] = Session()
        return application(environ, start_response)

    run = BaseHandler.run
    with BlockWatch("service", any_thread=True) as watch:
        for _ in range(1_800):
            request(keeping)
    assert BaseHandler.run is run
    assert watch.clock == "a request to wsgiref"
    report = watch.report()
    assert report.record.status.step == 1_790  # the first ten were heard, and might have been anything's
    assert report.leaked, report.changes
    assert report.leaks[0].holder.endswith("sessions")
    sessions.clear()


def test_requests_for_metrics_are_not_the_programs():
    with BlockWatch(any_thread=True) as watch:
        for _ in range(30):
            request(prometheus_app)
    assert (watch.clock, watch.n_steps) == ("", 0)
    assert not is_of_program("wrapper", {"type": "lifespan"}, "receive", "send")
    assert is_of_program("wrapper", {"type": "http"}, "receive", "send")


def test_the_programs_server_gives_the_name_and_not_the_one_that_it_is_built_on():
    counted: list[int] = []
    with StepClock(counted.append, lambda: None, any_thread=True) as clock:
        for _ in range(5):
            clock.note(Trust.REQUEST, "a request to http.server")  # a connection that asked nothing
        for _ in range(30):
            clock.note(Trust.REQUEST, "a request to werkzeug")
            clock.note(Trust.REQUEST, "a request to http.server")
    assert clock.words == "a request to werkzeug"
    assert 20 <= sum(counted) <= 25


def test_a_request_to_a_server_that_is_built_on_another_is_one_step(monkeypatch):
    monkeypatch.setattr(BaseHTTPRequestHandler, "handle_one_request", lambda _self: request())
    with BlockWatch(any_thread=True) as watch:
        for _ in range(30):
            BaseHTTPRequestHandler.handle_one_request(None)
    assert watch.clock in ("a request to wsgiref", "a request to http.server")
    assert 20 <= watch.n_steps <= 25


@pytest.mark.parametrize("named", ["", f"{__name__}:request"])
def test_no_request_of_any_thread_is_lost(named):
    together = threading.Barrier(4)

    def serve():
        together.wait()
        for _ in range(100):
            request()

    with BlockWatch(any_thread=True, not_before=600.0, named=named) as watch:
        threads = [threading.Thread(target=serve) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        request()  # counts what others did while one was counting
    assert watch.n_steps == (401 if named else 391)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked on Windows")
def test_a_child_that_answers_requests_is_watched_by_itself():
    reading, writing = os.pipe()
    begun = []
    with BlockWatch(any_thread=True, in_worker=lambda: begun.append(os.getpid())) as watch:
        child = os.fork()
        if not child:
            for _ in range(15):
                request()
            os.write(writing, f"{begun == [os.getpid()]} {watch.n_steps}".encode())
            os._exit(0)
        os.waitpid(child, 0)
    assert os.read(reading, 100) == b"True 5"
    assert (begun, watch.n_steps) == ([], 0)


SERVICE = """
import os, signal, sys, threading, urllib.request
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
class Quiet(WSGIRequestHandler):
    def log_message(self, *words): pass
class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
class Session: pass
sessions, n_requests = {}, 0
def answer(environ, start_response):
    global n_requests
    n_requests += 1
    if n_requests % int(sys.argv[1]) == 0:
        sessions[n_requests] = Session()
    start_response("200 OK", [])
    return [b"answered"]
def ask():
    for _ in range(4000):
        urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}").read()
    os.kill(os.getpid(), signal.SIGTERM)
server = make_server("127.0.0.1", 0, answer, Server, Quiet)
if os.fork():
    os.wait()
else:
    threading.Thread(target=ask, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    server.serve_forever()
"""


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked on Windows")
@pytest.mark.parametrize("every", [1, 100, 1_000_000])
def test_a_threaded_server_in_a_forked_worker_is_watched(tmp_path, every):
    (tmp_path / "service.py").write_text(SERVICE)
    asked = [sys.executable, "-m", "leaklab", "watch", "--report", "r.txt", "service.py", str(every)]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode in (0, -signal.SIGTERM), done.stderr
    text = next(tmp_path.glob("r_worker_*.txt")).read_text()
    assert "a step is a request to wsgiref" in text
    assert ("`sessions` grows by " in text) == (every <= 100)
    assert ("nothing grows" in text) == (every > 100)
