"""A real Prometheus asks a loop that leaks, and an alert fires."""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

from played_monitor import required

from leaklab.metrics import alert_rules

PATIENCE_SECONDS = 90  # about 10 where nothing else runs


@contextmanager
def prometheus(folder, port):
    """A Prometheus that asks *port* every second, with the shipped rules, whose patience is two seconds."""
    program = required("prometheus")
    rules = alert_rules().replace("for: 5m", "for: 2s").replace("for: 15m", "for: 2s")
    (folder / "alerts.yml").write_text(rules, "utf-8")
    job = {"job_name": "training", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [job],
    }
    (folder / "prometheus.yml").write_text(json.dumps(configuration), "utf-8")
    own_port = free_port()
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{own_port}",
        "--log.level=error",
    ]
    process = subprocess.Popen(command)
    try:
        yield f"http://127.0.0.1:{own_port}"
    finally:
        process.terminate()
        process.wait(10)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def asked(server, query):
    """Return what Prometheus answers, as pairs of labels and figure; nothing while it starts."""
    with suppress(urllib.error.URLError, ConnectionError):
        page = f"{server}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(page, timeout=5) as answer:  # noqa: S310 - our own server
            return [(one["metric"], float(one["value"][1])) for one in json.load(answer)["data"]["result"]]
    return []


@contextmanager
def leaking_loop():
    """A process that trains and leaks; the port at which it answers."""
    command = [sys.executable, str(Path(__file__).with_name("leaking_loop.py"))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


def test_a_prometheus_that_asks_a_leaking_loop_raises_the_alarm(tmp_path, capsys):
    started, firing, held = time.monotonic(), [], []
    with leaking_loop() as port, prometheus(tmp_path, port) as database:
        # The level may rise before a check has found who holds what.
        while not (firing and held) and time.monotonic() < started + PATIENCE_SECONDS:
            time.sleep(0.5)
            firing = asked(database, 'ALERTS{alertname="LeaklabAlarm", alertstate="firing"}')
            held = asked(database, "leaklab_leak_info")
        seconds = time.monotonic() - started
        assert firing, f"no alarm within {seconds:.0f} s: {asked(database, 'leaklab_verdict == 1')}"
        assert held, f"no holder within {seconds:.0f} s: {asked(database, 'leaklab_checks_total')}"
        ((_, steps),) = asked(database, "leaklab_steps_total")
        ((holder, _),) = held
        ((_, growth),) = asked(database, "leaklab_growth_bytes_per_step")
        ((_, full_at),) = asked(database, "leaklab_full_at_step")
    with capsys.disabled():
        words = f"step {steps:,.0f}, {growth:,.0f} bytes a step in {holder['holder']}, full at step {full_at:,.0f}"
        print(f"\nPrometheus after {seconds:.1f} s: {firing[0][0]['alertname']} fires; {words}")  # noqa: T201
    assert {key: firing[0][0][key] for key in ("run", "rank", "severity")} == {
        "run": "training", "rank": "0", "severity": "critical"
    }  # fmt: skip
    assert holder["holder"] == "history"
    assert 64 * 32 * 4 <= growth < 2 * 64 * 32 * 4
    assert steps < full_at < 10_000_000
