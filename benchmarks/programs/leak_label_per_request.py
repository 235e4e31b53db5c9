"""A counter is labelled with the request id: the metric keeps one child per value for ever."""

SOURCE = "prometheus/client_python#937"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["container-growth", "callback-registry"],
    "grows": "Counter",
    "holder": "_metrics",
    "holders_ok": ["REQUESTS"],
    "bytes_per_run": 630,
    "count_per_run": 1,
    "fix": "label with what has few values (route, status), never with an id",
}
SETUP = """
import itertools
from prometheus_client import CollectorRegistry, Counter
registry = CollectorRegistry()
REQUESTS = Counter('requests', 'requests served', ['route', 'request'], registry=registry)
serial = itertools.count(5_000)

def serve(route):
    number = next(serial)
    REQUESTS.labels(route=route, request='req-%08d' % number).inc()
    return number % 7
"""
CELL = """
status = serve('/predict')
"""
FIXED_SETUP = SETUP.replace(
    "REQUESTS.labels(route=route, request='req-%08d' % number).inc()",
    "REQUESTS.labels(route=route, request='any').inc()",
)
FIXED_CELL = CELL
