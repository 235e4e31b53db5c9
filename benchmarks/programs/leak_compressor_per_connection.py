"""A compression context is kept per connection that was closed long ago: a small Python object, 260 KiB of zlib."""

SOURCE = "python-websockets/websockets#896"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["container-growth", "native"],
    "grows": "zlib.Compress",
    "holder": "compressors",
    "bytes_per_run": 268500,
    "count_per_run": 1,
    "fix": "pop the context when the connection closes",
}
SETUP = """
import itertools, zlib
connections = itertools.count(1)

class Server:
    def __init__(self):
        self.compressors = {}

    def send(self, peer, data):
        if peer not in self.compressors:
            self.compressors[peer] = zlib.compressobj(wbits=-15)
        stream = self.compressors[peer]
        return stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)

    def close(self, peer, forget=False):
        if forget:
            self.compressors.pop(peer)

server = Server()
"""
CELL = """
peer = 'peer-%d' % next(connections)
sent = server.send(peer, b'hello ' * 50)
server.close(peer)
"""
FIXED_CELL = """
peer = 'peer-%d' % next(connections)
sent = server.send(peer, b'hello ' * 50)
server.close(peer, forget=True)
"""
