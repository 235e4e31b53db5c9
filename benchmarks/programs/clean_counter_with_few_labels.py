"""Five routes and three statuses: fifteen children of a metric appear one after the other."""

SOURCE = "chrisguidry/docket#164"
TRUTH = {
    "leaks": False,
    "cause": "none-bounded",
    "grows": None,
    "holder": None,
    "bytes_per_run": 0,
    "count_per_run": 0,
    "fix": None,
}
SETUP = """
import random
from prometheus_client import CollectorRegistry, Counter, Histogram
random.seed(2)
registry = CollectorRegistry()
served = Counter('served', 'answers', ['route', 'status'], registry=registry)
seconds = Histogram('seconds', 'time', ['route'], registry=registry)
"""
CELL = """
route = random.choice(['/', '/a', '/b', '/c', '/d'])
served.labels(route=route, status=random.choice(['200', '404', '500'])).inc()
seconds.labels(route=route).observe(random.random())
"""
FIXED_CELL = """
route = '/'
"""
