"""What a push gateway gets, and that it is left empty."""

import gc
import re
import threading
import time
import warnings
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from played_monitor import CLEAN, LEAKING, PlayedMonitor

import leaklab
from leaklab.metrics import push


class Gateway:
    """Keeps the groups that were put, as a push gateway does."""

    def __init__(self):
        self.groups, self.puts, self.refuses, self.most = {}, [], False, 1_000

    def answer(self, handler):
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0))).decode()
        is_refused = self.refuses or (handler.command == "PUT" and len(self.puts) >= self.most)
        if handler.command == "PUT" and not is_refused:
            self.groups[handler.path] = body
            self.puts.append(handler.path)
        elif handler.command == "DELETE":
            self.groups.pop(handler.path, None)
        handler.send_response(500 if is_refused else 202)
        handler.end_headers()


@contextmanager
def gateway():
    kept = Gateway()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self):
            kept.answer(self)

        do_DELETE = do_PUT  # noqa: N815 - the name that the base class calls

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        kept.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield kept
        finally:
            server.shutdown()
            thread.join()


def steps_in(body):
    return float(re.search(r"^leaklab_steps_total\{.*\} (.*)$", body, re.MULTILINE)[1])


def wait_until(is_true):
    deadline = time.monotonic() + 10
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_figures_are_pushed_at_intervals_and_deleted_at_the_end():
    monitor = PlayedMonitor()
    with gateway() as kept:
        with push(kept.url, monitor, every_seconds=0.02, rank=2) as pushed:
            (group,) = kept.groups
            assert group == "/metrics/job/leaklab/rank/2/run/train"
            assert steps_in(kept.groups[group]) == 1_200
            monitor.status = replace(LEAKING, step=1_300)
            wait_until(lambda: steps_in(kept.groups[group]) == 1_300)
            assert pushed.problem == ""
        assert kept.groups == {}
        n_puts = len(kept.puts)
        pushed.stop()
        assert len(kept.puts) == n_puts
    assert threading.active_count() == 1 or "leaklab" not in {thread.name for thread in threading.enumerate()}


def test_the_last_figures_are_pushed_and_linger():
    monitor, seen = PlayedMonitor(), []
    with gateway() as kept:
        pushed = push(kept.url, monitor, every_seconds=60, linger_seconds=0.3)
        monitor.status = replace(LEAKING, step=9_999)
        ending = threading.Thread(target=pushed.stop)
        ending.start()
        wait_until(lambda: len(kept.puts) == 2)
        seen += [steps_in(body) for body in kept.groups.values()]
        ending.join()
        assert (seen, kept.groups) == ([9_999], {})


def test_every_loop_has_a_group_of_its_own_and_that_of_a_lost_one_is_deleted():
    lost, stays = PlayedMonitor(), PlayedMonitor(replace(CLEAN, name="a/b c"))
    with gateway() as kept, push(kept.url, lost, stays, every_seconds=0.02):
        assert len(kept.groups) == 2
        del lost
        gc.collect()
        wait_until(lambda: len(kept.groups) == 1)
        assert "train" not in next(iter(kept.groups))


def test_a_gateway_that_fails_later_disturbs_nothing_and_is_told_once_at_the_end():
    monitor = PlayedMonitor()
    with gateway() as kept:
        pushed = push(kept.url, monitor, every_seconds=0.02)
        kept.refuses = True
        with pytest.warns(RuntimeWarning, match=r"did not take the figures: .*; it will be tried again$"):
            wait_until(lambda: pushed._has_warned)
        time.sleep(0.1)  # a second warning would be an error
        assert "did not take the figures" in pushed.problem
        with pytest.warns(RuntimeWarning, match="did not take the figures: .*; figures of this job may stay there"):
            pushed.stop()


def test_a_first_push_that_fails_half_way_leaves_nothing():
    first, second = PlayedMonitor(), PlayedMonitor(replace(CLEAN, name="second"))
    with gateway() as kept:
        kept.most = 1
        with pytest.raises(leaklab.MetricsError):
            push(kept.url, first, second)
        assert kept.groups == {}


def test_a_gateway_that_comes_back_is_no_problem_any_more():
    with gateway() as kept:
        pushed = push(kept.url, PlayedMonitor(), every_seconds=0.02)
        kept.refuses = True
        with pytest.warns(RuntimeWarning, match="it will be tried again"):
            wait_until(lambda: pushed._has_warned)
        kept.refuses = False
        wait_until(lambda: not pushed.problem)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pushed.stop()
        assert kept.groups == {}


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://no.such.host.invalid:9091", "ftp://x", "http://[x"])
def test_a_gateway_that_does_not_answer_is_told_in_one_sentence(url):
    with pytest.raises(leaklab.MetricsError, match=r"^the push gateway at '[^\n]+' did not take the figures: [^\n]+$"):
        push(url, PlayedMonitor())


@pytest.mark.parametrize("times", [{"every_seconds": 0}, {"every_seconds": -1.0}, {"linger_seconds": float("inf")}])
def test_times_that_are_none_are_refused(times):
    with pytest.raises(ValueError, match="every_seconds must be above 0 and linger_seconds 0 or more"):
        push("http://127.0.0.1:9", PlayedMonitor(), **times)
