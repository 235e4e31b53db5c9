"""Templates are compiled once per source text and kept; but the text itself contains the name of the customer."""

SOURCE = "pallets/flask#2402"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["container-growth"],
    "grows": "Template",
    "holder": "compiled",
    "bytes_per_run": 2910,
    "count_per_run": 1,
    "fix": "one template with a variable, or a bounded cache",
}
SETUP = """
import itertools
from jinja2 import Environment
env = Environment(cache_size=0)
compiled = {}
customers = itertools.count(1)

def render(source, **values):
    if source not in compiled:
        compiled[source] = env.from_string(source)
    return compiled[source].render(**values)
"""
CELL = """
name = 'customer %d' % next(customers)
page = render('Dear ' + name + ', {% for p in parts %}{{ p }} {% endfor %}', parts=[1, 2, 3])
"""
FIXED_CELL = """
name = 'customer %d' % next(customers)
page = render('Dear {{ name }}, {% for p in parts %}{{ p }} {% endfor %}', parts=[1, 2, 3], name=name)
"""
