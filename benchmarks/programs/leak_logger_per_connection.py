"""Each connection asks for a child logger under its own number: the logging manager keeps all of them."""

SOURCE = "tarasko/picows#72"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["callback-registry", "container-growth"],
    "grows": "Logger",
    "holder": "loggerDict",
    "holders_ok": ["connections", "manager"],
    "bytes_per_run": 580,
    "count_per_run": 1,
    "fix": "one logger for all connections, the number in an adapter or in the message",
}
SETUP = """
import itertools, logging
numbers = itertools.count(40_000)
base = logging.getLogger('connections')
base.addHandler(logging.NullHandler())
base.propagate = False

class Connection:
    def __init__(self, number):
        self.logger = base.getChild('peer%d' % number)
        self.received = bytearray(512)

    def run(self):
        self.logger.debug('open')
        return len(self.received)
"""
CELL = """
total = Connection(next(numbers)).run()
"""
FIXED_SETUP = SETUP.replace(
    "self.logger = base.getChild('peer%d' % number)",
    "self.logger = logging.LoggerAdapter(base, {'peer': number})",
)
FIXED_CELL = CELL
