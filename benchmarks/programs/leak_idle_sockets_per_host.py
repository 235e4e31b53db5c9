"""A pool keeps the idle connection of each host it ever spoke to: two file descriptors per run."""

SOURCE = "psf/requests#4601"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["container-growth"],
    "grows": "socket",
    "holder": "idle",
    "holders_ok": ["pool"],
    "bytes_per_run": 310,
    "count_per_run": 2,
    "fix": "close connections that were idle for long",
}
SETUP = """
import itertools, socket

class Pool:
    def __init__(self):
        self.idle = {}

    def connect(self, host):
        if host not in self.idle:
            self.idle[host] = socket.socketpair()
        return self.idle[host][0]

    def close(self, host):
        for end in self.idle.pop(host):
            end.close()

pool = Pool()
hosts = itertools.count(1)
"""
CELL = """
host = 'node-%d' % next(hosts)
pool.connect(host).send(b'ping')
"""
FIXED_CELL = """
host = 'node-%d' % next(hosts)
pool.connect(host).send(b'ping')
pool.close(host)
"""
