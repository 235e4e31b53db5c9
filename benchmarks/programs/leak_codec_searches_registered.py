"""Each reader registers a codec search function with a table of its own; nobody unregisters it."""

SOURCE = "python/cpython#86008"
TRUTH = {
    "leaks": True,
    "cause": "callback-registry",
    "causes_ok": ["native", "closure-kept", "library-registry", "global-cache"],
    "grows": "function",
    "holder": "codecs",
    "holders_ok": ["search", "find_codec"],
    "bytes_per_run": 16800,
    "count_per_run": 1,
    "fix": "codecs.unregister(search) when the reader is done",
}
SETUP = """
import codecs, random
random.seed(0)

class Reader:
    def __init__(self, name):
        table = {random.randrange(10**6): n for n in range(256)}

        def find_codec(wanted):
            return None if wanted != name else table

        self.find_codec = find_codec
        codecs.register(find_codec)

    def read(self):
        return 'x'.encode('utf-8')

    def close(self):
        codecs.unregister(self.find_codec)
"""
CELL = """
reader = Reader('no_such_codec')
data = reader.read()
"""
FIXED_CELL = """
reader = Reader('no_such_codec')
data = reader.read()
reader.close()
"""
