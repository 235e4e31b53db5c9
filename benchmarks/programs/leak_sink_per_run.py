"""A re-run cell adds a sink to loguru's logger; each message is then written once per run."""

SOURCE = "Delgan/loguru#1191"
REQUIRES = ["loguru", "lxml", "pydantic", "sqlalchemy", "structlog"]
TRUTH = {
    "leaks": True,
    "cause": "callback-registry",
    "causes_ok": ["hook-left", "library-registry", "global-cache"],
    "grows": "Handler",
    "holder": "handlers",
    "holders_ok": ["logger"],
    "bytes_per_run": 6540,
    "count_per_run": 1,
    "fix": "logger.remove(number) with the number that add() returned",
}
SETUP = """
from loguru import logger
logger.remove()

class Sink:
    def __init__(self):
        self.lines = [''] * 300

    def write(self, text):
        self.lines[len(text) % 300] = text
"""
CELL = """
number = logger.add(Sink(), format='{message}', level='INFO')
logger.info('cell ran')
"""
FIXED_CELL = """
number = logger.add(Sink(), format='{message}', level='INFO')
logger.info('cell ran')
logger.remove(number)
"""
