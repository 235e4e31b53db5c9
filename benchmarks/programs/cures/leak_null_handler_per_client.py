"""Every client adds a handler to the one logger."""

SOURCE = "PaddleHQ/paddle-python-sdk#144"
TRUTH = {
    "leaks": True,
    "cause": "callback-registry",
    "grows": "logging.NullHandler",
    "holder": "handlers",
    "bytes_per_run": 0,
    "count_per_run": 1,
    "fix": "add the handler only where the logger has none",
}
SETUP = """
import logging

class Client:
    def __init__(self, key):
        self.key, self.logger = key, logging.getLogger("sdk.null")
        self.logger.propagate = False
        self.logger.addHandler(logging.NullHandler())

    def get(self, path):
        self.logger.info("GET %s", path)
        return path
"""
CELL = """
client = Client("key")
client.get("/items")
"""
FIXED_SETUP = """
import logging

class Client:
    def __init__(self, key):
        self.key, self.logger = key, logging.getLogger("sdk.null")
        self.logger.propagate = False
        if not self.logger.handlers:
            self.logger.addHandler(logging.NullHandler())

    def get(self, path):
        self.logger.info("GET %s", path)
        return path
"""
FIXED_CELL = """
client = Client("key")
client.get("/items")
"""
