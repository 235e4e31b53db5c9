"""A re-run cell wraps the factory of log records once more: a chain of closures, each with the labels of its run."""

SOURCE = "Polyconseil/django-cid#9"
TRUTH = {
    "leaks": True,
    "cause": "closure-kept",
    "causes_ok": ["callback-registry", "hook-left", "global-cache"],
    "grows": "function",
    "holder": "_logRecordFactory",
    "holders_ok": ["previous", "factory", "logging"],
    "bytes_per_run": 4690,
    "count_per_run": 1,
    "fix": "wrap the factory that logging came with, not the wrapped one",
}
SETUP = """
import logging, random
random.seed(0)
original = logging.getLogRecordFactory()
log = logging.getLogger('run')
log.addHandler(logging.NullHandler())
log.propagate = False
"""
CELL = """
previous = logging.getLogRecordFactory()
labels = {'run-%04d' % random.randrange(10**9): random.random() for _ in range(40)}

def make_factory(previous, labels):
    def factory(*args, **kwargs):
        record = logging.LogRecord(*args, **kwargs)
        record.labels = labels
        return record
    factory.inner = previous
    return factory

logging.setLogRecordFactory(make_factory(previous, labels))
log.warning('started')
"""
FIXED_CELL = CELL.replace("previous = logging.getLogRecordFactory()", "previous = original")
