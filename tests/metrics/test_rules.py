"""The alert rules fire when they should and not before; the dashboard asks what Prometheus can answer."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from played_monitor import promtool, required

from leaklab.metrics import alert_rules, dashboard
from leaklab.metrics.table import METRICS

NAMES = {metric.name for metric in METRICS}
WHO = 'job="j", run="train", rank="0"'
LEAK = f'leaklab_verdict{{{WHO}, outcome="leak"}}'
GROWING = f'leaklab_verdict{{{WHO}, outcome="growing"}}'
STEPS, FULL_AT = f"leaklab_steps_total{{{WHO}}}", f"leaklab_full_at_step{{{WHO}}}"
KEPT, AVAILABLE = f"leaklab_kept_bytes{{{WHO}}}", f"leaklab_host_available_bytes{{{WHO}}}"
GIB = 2**30
ODD = {f'leaklab_kept_bytes{{job="j", run="train", rank="{rank}"}}': f"{GIB // 1024}x120" for rank in "0123"}


@pytest.mark.parametrize(
    ("alert", "series", "minutes", "fires"),
    [
        ("LeaklabLeak", {LEAK: "1x120"}, 4, False),
        ("LeaklabLeak", {LEAK: "1x120"}, 6, True),
        ("LeaklabLeak", {LEAK: "1x2 0x120"}, 30, False),
        ("LeaklabLeak", {GROWING: "1x120"}, 60, False),
        ("LeaklabLeak", {LEAK: "1x10 stale"}, 30, False),  # the loop has ended
        ("LeaklabAlarm", {f"leaklab_alarm{{{WHO}}}": "1x120"}, 6, True),
        ("LeaklabAlarm", {f"leaklab_alarm{{{WHO}}}": "1x4 0x120"}, 20, False),
        # 60 steps a minute: at minute 30 there are 3,600 steps done, and 13,800 or 100,000 to go.
        ("LeaklabMemoryRunsOut", {STEPS: "0+60x300", FULL_AT: "15600x300"}, 30, True),
        ("LeaklabMemoryRunsOut", {STEPS: "0+60x300", FULL_AT: "100000x300"}, 30, False),
        ("LeaklabMemoryRunsOut", {STEPS: "0+60x300"}, 30, False),  # it lasts until the end
        ("LeaklabMemoryRunsOut", {STEPS: "500x300", FULL_AT: "600x300"}, 30, False),  # the loop stands still
        # 10 GiB are free; the growth takes 0.1 GiB a minute, 24 GiB in four hours.
        ("LeaklabMemoryWillNotLast", {KEPT: f"0+{GIB // 10}x300", AVAILABLE: f"{10 * GIB}x300", GROWING: "1x300"}, 60,
         True),
        ("LeaklabMemoryWillNotLast", {KEPT: f"0+{GIB // 100}x300", AVAILABLE: f"{10 * GIB}x300", GROWING: "1x300"}, 60,
         False),
        # It stopped at minute 50: the hour before still predicts growth, the state says better.
        ("LeaklabMemoryWillNotLast", {KEPT: f"0+{GIB // 10}x50 {5 * GIB}x200", AVAILABLE: f"{10 * GIB}x300",
                                      GROWING: "1x50 0x200"}, 60, False),
        ("LeaklabOddRank", {**ODD, KEPT.replace('", rank="0"', '", rank="4"'): f"{GIB}x120"}, 20, True),
        ("LeaklabOddRank", ODD, 20, False),
        ("LeaklabOddRank", {KEPT: f"{GIB}x120"}, 20, False),  # one rank alone is not odd
        ("LeaklabOddRank", {**dict.fromkeys(ODD, "0x120"), KEPT.replace('"0"', '"4"'): "4096x120"}, 20, False),
    ],
)  # fmt: skip
def test_an_alert_fires_when_it_should(alert, series, minutes, fires, tmp_path):
    (tmp_path / "alerts.yml").write_text(alert_rules(), "utf-8")
    # An alert that is expected without any is refused; one that is expected by its labels must have all its words too.
    query = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})'
    test = {
        "rule_files": ["alerts.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {"expr": query, "eval_time": f"{minutes}m",
                     "exp_samples": [{"labels": "{}", "value": 1}] if fires else []}
                ],
            }
        ],
    }  # fmt: skip
    (tmp_path / "test.yml").write_text(json.dumps(test), "utf-8")  # JSON is YAML
    answer = promtool("test", "rules", str(tmp_path / "test.yml"))
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_the_alert_of_a_leak_names_the_holder(tmp_path):
    (tmp_path / "alerts.yml").write_text(alert_rules(), "utf-8")
    labels = {"job": "j", "run": "train", "rank": "0"}
    expected = {
        "exp_labels": {**labels, "outcome": "leak", "severity": "warning"},
        "exp_annotations": {
            "summary": "train, rank 0, leaks memory",
            "description": "leaklab has proven a leak. The largest growth is held by history.",
        },
    }
    series = {LEAK: "1x60", f'leaklab_leak_info{{{WHO}, holder="history"}}': "1x60"}
    test = {
        "rule_files": ["alerts.yml"],
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "alert_rule_test": [{"eval_time": "30m", "alertname": "LeaklabLeak", "exp_alerts": [expected]}],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(json.dumps(test), "utf-8")
    answer = promtool("test", "rules", str(tmp_path / "test.yml"))
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_promtool_accepts_the_rules(tmp_path):
    (tmp_path / "alerts.yml").write_text(alert_rules(), "utf-8")
    answer = promtool("check", "rules", str(tmp_path / "alerts.yml"))
    assert answer.returncode == 0, answer.stderr
    assert "SUCCESS: 5 rules found" in answer.stdout


def test_rules_and_dashboard_name_metrics_that_there_are():
    for text in (alert_rules(), dashboard()):
        assert set(re.findall(r"\bleaklab_[a-z_]+", text)) <= NAMES
    assert len(set(re.findall(r"\bleaklab_[a-z_]+", dashboard()))) >= 14


def expressions():
    """Every query of the dashboard, with Grafana's variables filled in."""
    for panel in json.loads(dashboard())["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "5m").replace("$run", ".*").replace("$rank", ".*")


def test_prometheus_parses_every_query_of_the_dashboard(tmp_path):
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(expressions())]
    (tmp_path / "queries.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), "utf-8")
    answer = promtool("check", "rules", str(tmp_path / "queries.yml"))
    assert answer.returncode == 0, answer.stderr
    assert f"SUCCESS: {len(rules)} rules found" in answer.stdout
    assert not [query for query in expressions() if "$" in query]


def test_the_dashboard_is_one_that_grafana_can_import():
    board = json.loads(dashboard())
    panels = board["panels"]
    assert board["schemaVersion"] >= 36
    assert len({panel["id"] for panel in panels}) == len(panels) >= 12
    assert {target["datasource"]["uid"] for panel in panels for target in panel["targets"]} == {"${datasource}"}
    assert {variable["name"] for variable in board["templating"]["list"]} == {"datasource", "run", "rank"}
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    cells = [(x, y) for place in places for x in range(place["x"], place["x"] + place["w"])
             for y in range(place["y"], place["y"] + place["h"])]  # fmt: skip
    assert len(cells) == len(set(cells))  # no panel lies on another


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
