"""What Prometheus is told of loops, when it asks."""

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from played_monitor import CLEAN, LEAKING, MIB, PlayedMonitor, promtool
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read

import leaklab
from leaklab.heap.running import other_threads
from leaklab.metrics import Collector, serve, write_textfile
from leaklab.metrics.table import METRICS, Kind
from leaklab.model.loop import LoopState


def told(*monitors, **more):
    """Every sample: name and labels, figure."""
    return samples(text_of(*monitors, **more))


def text_of(*monitors, **more):
    registry = CollectorRegistry()
    registry.register(Collector(*monitors, **more))
    return generate_latest(registry).decode()


def samples(text):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in read(text)
        for sample in family.samples
    }


def figure(found, name, **labels):
    return found[name, tuple(sorted({"run": "train", "rank": "0", **labels}.items()))]


def test_promtool_accepts_every_metric(monkeypatch):
    monkeypatch.setattr("leaklab.metrics.table.free_accelerator_bytes", lambda: MIB)
    text = text_of(PlayedMonitor(replace(LEAKING, accelerator_bytes=MIB)))
    answer = promtool("check", "metrics", text=text)
    assert (answer.returncode, answer.stdout + answer.stderr) == (0, "")
    assert {name for name, _ in samples(text)} == {metric.name for metric in METRICS}


def test_the_figures_are_those_of_the_monitor():
    found = told(PlayedMonitor())
    assert figure(found, "leaklab_steps_total") == 1_200
    assert figure(found, "leaklab_kept_bytes") == 800 * MIB
    assert figure(found, "leaklab_growth_bytes_per_step") == 4 * MIB
    assert figure(found, "leaklab_full_at_step") == 9_000
    assert figure(found, "leaklab_watch_seconds_total") == 1.5
    assert figure(found, "leaklab_checks_total") == 2
    assert figure(found, "leaklab_alarm") == 1
    assert figure(found, "leaklab_info", version=leaklab.__version__) == 1
    assert figure(found, "leaklab_leak_info", holder="history") == 1


@pytest.mark.parametrize("state", LoopState)
def test_exactly_one_outcome_is_in_force(state):
    found = told(PlayedMonitor(replace(CLEAN, state=state)))
    outcomes = {dict(labels)["outcome"]: value for (name, labels), value in found.items() if name == "leaklab_verdict"}
    assert sorted(outcomes) == ["growing", "leak", "steady", "stopped", "warming_up"]
    assert [name for name, value in outcomes.items() if value] == [state.value.replace(" ", "_")]


def test_what_is_not_known_has_no_series():
    names = {name for name, _ in told(PlayedMonitor(replace(CLEAN, n_tensors=None, heap_bytes=None, total_steps=None)))}
    unknown = {"tensors", "heap_bytes", "planned_steps", "full_at_step", "accelerator_bytes", "leak_info"}
    assert not names & {f"leaklab_{name}" for name in unknown}


def test_labels_are_run_and_rank_and_what_the_table_says():
    own = {metric.name: {metric.label} - {""} for metric in METRICS}
    for name, labels in told(PlayedMonitor()):
        assert dict(labels).keys() == {"run", "rank"} | own[name]


def test_the_openmetrics_form_is_well_formed():
    registry = CollectorRegistry()
    registry.register(Collector(PlayedMonitor()))
    families = list(read_openmetrics(openmetrics(registry).decode()))
    assert {family.name for family in families} == {metric.name.removesuffix("_total") for metric in METRICS}


def test_the_default_registry_stays_the_users():
    with serve(0, PlayedMonitor()):
        assert not [family.name for family in REGISTRY.collect() if family.name.startswith("leaklab")]


def test_a_registry_of_the_users_may_be_given_the_collector_once():
    registry = CollectorRegistry()
    registry.register(Collector(PlayedMonitor()))
    with pytest.raises(ValueError, match="leaklab_steps"):
        registry.register(Collector(PlayedMonitor()))


def test_series_of_a_monitor_that_is_gone_end():
    gone, stays = PlayedMonitor(), PlayedMonitor(replace(CLEAN, name="other"))
    collector = Collector(gone, stays)
    reference = weakref.ref(gone)
    registry = CollectorRegistry()
    registry.register(collector)
    assert {dict(labels)["run"] for _, labels in samples(generate_latest(registry).decode())} == {"train", "other"}
    del gone
    gc.collect()
    assert reference() is None
    assert {dict(labels)["run"] for _, labels in samples(generate_latest(registry).decode())} == {"other"}


def test_two_loops_of_one_name_are_two_runs_and_keep_their_names():
    first, second = PlayedMonitor(), PlayedMonitor(CLEAN)
    registry = CollectorRegistry()
    registry.register(Collector(first, second))
    found = samples(generate_latest(registry).decode())
    assert figure(found, "leaklab_alarm", run="train") == 1
    assert figure(found, "leaklab_alarm", run="train (2)") == 0
    del first
    gc.collect()
    assert {dict(labels)["run"] for _, labels in samples(generate_latest(registry).decode())} == {"train (2)"}


def test_a_loop_without_a_name_has_one():
    assert figure(told(PlayedMonitor(replace(CLEAN, name=""))), "leaklab_steps_total", run="loop") == 1_200


@pytest.mark.parametrize(
    ("name", "run"),
    [("train rank 3", "train"), ("rank 3", "loop"), ("train rank 13", "train rank 13"), ("rank", "rank")],
)
def test_the_rank_is_no_part_of_the_run(name, run):
    """Callbacks of frameworks name the monitors of a distributed job so; rules compare the ranks of one run."""
    found = told(PlayedMonitor(replace(CLEAN, name=name)), rank=3)
    assert figure(found, "leaklab_steps_total", run=run, rank="3") == 1_200


def test_names_of_any_text_are_told():
    name = 'a "b"\n\\c \ud800 ' + "d" * 500
    ((run, value),) = {
        (dict(labels)["run"], value)
        for (metric, labels), value in told(PlayedMonitor(replace(LEAKING, name=name))).items()
        if metric == "leaklab_steps_total"
    }
    assert value == 1_200
    assert len(run) <= 200
    assert "\n" not in run


@pytest.mark.parametrize(
    ("holder", "label"),
    [
        ("cache['user@mail.org'].items[12]", "cache[...].items[...]"),
        ("""store["a]b'c"].x""", "store[...].x"),
        ("local 'pl_module' of _call() .outs", "local 'pl_module' of _call() .outs"),
    ],
)
def test_keys_are_no_part_of_the_label_holder(holder, label):
    assert figure(told(PlayedMonitor(replace(LEAKING, holder=holder))), "leaklab_leak_info", holder=label) == 1


def test_of_many_holders_ten_series_are_made():
    monitor = PlayedMonitor()
    registry = CollectorRegistry()
    registry.register(Collector(monitor))
    seen = set()
    for number in range(50):
        monitor.status = replace(LEAKING, holder=f"holder_{number}")
        found = samples(generate_latest(registry).decode())
        seen |= {dict(labels)["holder"] for name, labels in found if name == "leaklab_leak_info"}
    assert len(seen) == 10
    assert "other" in seen


def test_the_rank_is_the_environments_unless_it_is_given(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    assert figure(told(PlayedMonitor()), "leaklab_steps_total", rank="3") == 1_200
    assert figure(told(PlayedMonitor(), rank=5), "leaklab_steps_total", rank="5") == 1_200
    monkeypatch.setenv("RANK", "first")
    assert figure(told(PlayedMonitor()), "leaklab_steps_total", rank="0") == 1_200


def test_the_rank_is_that_of_the_process_group_where_there_is_one(tmp_path):
    code = (
        "import torch.distributed as dist\n"
        f"dist.init_process_group('gloo', init_method='file://{tmp_path}/meet', rank=0, world_size=1)\n"
        "dist.get_rank = lambda: 7\n"
        "from leaklab.metrics.table import Loops\n"
        "print(Loops(())._rank)\n"
        "dist.destroy_process_group()"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "7\n"


def test_what_is_no_monitor_is_refused():
    with pytest.raises(TypeError, match=r"a monitor is what leaklab.monitor\(\) gives, not 'list'"):
        Collector([])


def test_the_server_answers_on_loopback_alone_until_it_is_stopped():
    monitor = PlayedMonitor()
    with serve(0, monitor) as server:
        assert server.url == f"http://127.0.0.1:{server.port}/metrics"
        assert server._server.server_address[0] == "127.0.0.1"
        monitor.status = replace(LEAKING, step=1_201)
        assert figure(samples(fetched(server.url)), "leaklab_steps_total") == 1_201
        with ThreadPoolExecutor(4) as pool:
            pages = list(pool.map(lambda _: fetched(server.url), range(12)))
        assert {figure(samples(page), "leaklab_steps_total") for page in pages} == {1_201}
    server.stop()
    assert repr(server) == "<MetricsServer stopped>"
    with serve(server.port, monitor) as again:  # the port is free again
        assert again.port == server.port


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_worker_does_not_keep_the_port():
    monitor = PlayedMonitor()
    with serve(0, monitor) as server:
        worker = os.fork()
        if worker == 0:
            signal.pause()
            os._exit(0)
    try:
        with serve(server.port, monitor):
            pass
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)


def fetched(url):
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own server
        return answer.read().decode()


@pytest.mark.parametrize("port", [-1, 65_536, 80.5, "9300", True, None, LEAKING])
def test_what_is_no_port_is_refused_in_one_sentence(port):
    with pytest.raises(
        ValueError, match=r"^a port is a whole number from 0 \(any that is free\) to 65535, not [^\n]+$"
    ):
        serve(port, PlayedMonitor())


def test_a_port_in_use_is_told_in_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            leaklab.MetricsError,
            match=rf"^cannot listen on port {port} of 127.0.0.1: it is in use; give another one, or 0 for any that is"
            r" free$",
        ):
            serve(port, PlayedMonitor())


def test_a_request_that_never_comes_holds_up_nobody():
    monitor = PlayedMonitor()
    with serve(0, monitor) as server, socket.create_connection(("127.0.0.1", server.port)):
        assert figure(samples(fetched(server.url)), "leaklab_steps_total") == 1_200


def test_its_threads_are_none_of_the_users():
    with serve(0, PlayedMonitor()) as server, socket.create_connection(("127.0.0.1", server.port)):
        fetched(server.url)  # by now the other one waits for its request
        assert threading.active_count() >= 3
        assert other_threads() == {}


def test_every_network_is_never_meant_by_accident():
    for address in ("", None):
        with pytest.raises(ValueError, match=r"'0\.0\.0\.0' for every network"):
            serve(0, PlayedMonitor(), address=address)


@pytest.mark.parametrize("address", ["192.0.2.7", "no.such.host.invalid", "a" * 70])
def test_a_foreign_address_is_told_in_one_sentence(address):
    with pytest.raises(leaklab.MetricsError, match=rf"^cannot listen on '{address}': this machine has no such address"):
        serve(0, PlayedMonitor(), address=address)


def test_the_text_file_is_replaced_as_a_whole_and_can_be_read_by_others(tmp_path):
    file = tmp_path / "leaklab.prom"
    umask = os.umask(0o022)
    try:
        write_textfile(file, PlayedMonitor())
        write_textfile(file, PlayedMonitor(replace(LEAKING, step=7)))
    finally:
        os.umask(umask)
    assert figure(samples(file.read_text("utf-8")), "leaklab_steps_total") == 7
    assert [path.name for path in tmp_path.iterdir()] == ["leaklab.prom"]
    assert file.stat().st_mode & 0o777 == 0o644


def test_a_text_file_that_nobody_would_read_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"reads only files that end in .prom: give such a name, not '.*metrics.txt'"):
        write_textfile(tmp_path / "metrics.txt", PlayedMonitor())


def test_the_metrics_cost_nothing_until_they_are_asked_for():
    code = (
        "import sys, threading, leaklab.metrics\n"
        "import leaklab; leaklab.metrics.serve, leaklab.metrics.observe, leaklab.metrics.log_to\n"
        "print({'prometheus_client', 'opentelemetry', 'torch', 'wandb'} & set(sys.modules), threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set() 1\n"


@pytest.mark.parametrize(
    ("package", "call", "extra"),
    [("prometheus_client", "serve(0)", "metrics"), ("opentelemetry.metrics", "observe()", "otel")],
)
def test_without_its_package_an_exporter_names_the_extra(package, call, extra):
    code = (
        f"import sys, leaklab; sys.modules[{package!r}] = None\n"
        f"try:\n    leaklab.metrics.{call}\nexcept leaklab.MissingExtraError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert f"pip install 'leaklab[{extra}]'" in done.stdout


def test_names_keep_the_rules_of_both_worlds():
    for metric in METRICS:
        unit = {"By": "_bytes", "s": "_seconds", "By/{step}": "_bytes_per_step"}.get(metric.unit, "")
        assert metric.name.endswith(unit + ("_total" if metric.kind is Kind.COUNTER else ""))
        assert metric.dotted.startswith("leaklab.")
        assert metric.help.endswith(".")
    assert len({metric.name for metric in METRICS}) == len({metric.dotted for metric in METRICS}) == len(METRICS)


def test_the_table_of_the_documentation_is_that_of_the_code():
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text("utf-8")
    for metric in METRICS:
        label = f"`{metric.label}`" if metric.label else ""
        assert f"| `{metric.name}` | `{metric.dotted}` | `{metric.unit}` | {label} | {metric.help} |\n" in page
    assert page.count("| `leaklab_") == len(METRICS)
