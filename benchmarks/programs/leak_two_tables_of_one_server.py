"""A server in the small: a small table of request statistics under unique keys.

And bodies of answers that were never fetched.
"""

SOURCE = "use-agent-os/agent-os#1111"
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["global-cache", "tensor-kept"],
    "grows": "bytes",
    "holder": "unfetched",
    "holders_ok": ["baselines"],
    "bytes_per_run": 6240,
    "count_per_run": 1,
    "fix": "evict both after a time",
}
SETUP = """
import collections, itertools, random
random.seed(0)
numbers = itertools.count(1)
Baseline = collections.namedtuple('Baseline', 'tokens hits')

class Monitor:
    def __init__(self):
        self.baselines = {}
        self.recent = collections.deque(maxlen=25)

    def note(self, session, tokens):
        old = self.baselines.get(session)
        self.baselines[session] = Baseline(tokens, old.hits + 1 if old else 0)
        self.recent.append((session, tokens))

class Server:
    def __init__(self):
        self.monitor = Monitor()
        self.unfetched = {}
        self.pool = [bytearray(4096) for _ in range(6)]

    def answer(self, session):
        buffer = self.pool.pop(0)
        buffer[:4] = b'head'
        self.pool.append(buffer)
        body = random.randbytes(6_000)
        self.unfetched[session] = body
        self.monitor.note(session, len(body) // 4)
        return session

    def fetch(self, session):
        del self.unfetched[session]
        del self.monitor.baselines[session]

server = Server()
"""
CELL = """
session = server.answer('session-%06d' % next(numbers))
"""
FIXED_CELL = """
session = server.answer('session-%06d' % next(numbers))
server.fetch(session)
"""
