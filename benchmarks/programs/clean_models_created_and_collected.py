"""pydantic's create_model in each run: classes are cycles, the collector frees them."""

SOURCE = "pydantic/pydantic#11958"
REQUIRES = ["loguru", "lxml", "pydantic", "sqlalchemy", "structlog"]
TRUTH = {
    "leaks": False,
    "cause": "none",
    "grows": None,
    "holder": None,
    "bytes_per_run": 0,
    "count_per_run": 0,
    "fix": None,
}
SETUP = """
import itertools
from pydantic import create_model
numbers = itertools.count()
"""
CELL = """
Model = create_model('Row%d' % next(numbers), x=(int, ...), y=(str, 'a'))
row = Model(x=1)
text = row.model_dump_json()
"""
FIXED_CELL = """
text = ''
"""
