"""A template is compiled from a text that is new in each run, and dropped."""

SOURCE = "paulomtts/pyjinhx#237"
TRUTH = {
    "leaks": False,
    "cause": "none-replaced",
    "grows": None,
    "holder": None,
    "bytes_per_run": 0,
    "count_per_run": 0,
    "fix": None,
}
SETUP = """
import itertools
from jinja2 import Environment
env = Environment()
numbers = itertools.count()
"""
CELL = """
template = env.from_string('Number %d: {{ value }}' % next(numbers))
text = template.render(value=3)
"""
FIXED_CELL = """
text = ''
"""
