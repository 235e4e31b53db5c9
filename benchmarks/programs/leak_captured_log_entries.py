"""structlog was configured with the capturing processor of its tests: the list of entries grows with every event."""

SOURCE = "none: a pattern that is reported often"
REQUIRES = ["loguru", "lxml", "pydantic", "sqlalchemy", "structlog"]
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["global-cache"],
    "grows": "dict",
    "holder": "entries",
    "bytes_per_run": 430,
    "count_per_run": 2,
    "fix": "configure a real renderer, or clear the entries",
}
SETUP = """
import structlog
from structlog.testing import LogCapture
capture = LogCapture()
structlog.configure(processors=[structlog.processors.add_log_level, capture])
log = structlog.get_logger()
steps = 0
"""
CELL = """
steps += 1
log.info('step', number=steps, loss=steps * 0.5)
log.bind(epoch=steps).debug('done')
"""
FIXED_CELL = """
steps += 1
log.info('step', number=steps, loss=steps * 0.5)
log.bind(epoch=steps).debug('done')
capture.entries.clear()
"""
