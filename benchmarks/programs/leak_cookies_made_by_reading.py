"""Asking the cookie jar for a path makes an empty entry: a defaultdict that is read for keys it does not have."""

SOURCE = "aio-libs/aiohttp#11052"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["container-growth"],
    "grows": "dict",
    "holder": "_cookies",
    "bytes_per_run": 700,
    "count_per_run": 3,
    "fix": "look up with .get(), so that reading makes no entries",
}
SETUP = """
import collections, itertools, time
pages = itertools.count(100)

class Cookie:
    __slots__ = ('name', 'value', 'path', 'expires')

    def __init__(self, name, value, path, expires):
        self.name, self.value, self.path, self.expires = name, value, path, expires

class Jar:
    def __init__(self):
        self._cookies = collections.defaultdict(dict)
        self._expirations = {}

    def update(self, host, cookie):
        self._cookies[host, cookie.path][cookie.name] = cookie
        self._expirations[host, cookie.path, cookie.name] = cookie.expires

    def for_request(self, host, path, careful=False):
        found, parts = {}, path.strip('/').split('/')
        for n in range(len(parts) + 1):
            prefix = '/' + '/'.join(parts[:n])
            table = self._cookies.get((host, prefix), {}) if careful else self._cookies[host, prefix]
            for name, cookie in table.items():
                if cookie.expires > time.time():
                    found[name] = cookie.value
        return found

class Session:
    def __init__(self, host, careful=False):
        self.host, self.jar, self.careful = host, Jar(), careful
        self.jar.update(host, Cookie('sid', 'x' * 40, '/', time.time() + 1e6))

    def get(self, path):
        cookies = self.jar.for_request(self.host, path, self.careful)
        if path.endswith('/login'):
            self.jar.update(self.host, Cookie('sid', 'y' * 40, '/', time.time() + 1e6))
        return len(cookies)

session = Session('example.org')
"""
CELL = """
number = next(pages)
sent = session.get('/users/%d/profile/photo' % number)
session.get('/login')
"""
FIXED_CELL = """
session.careful = True
number = next(pages)
sent = session.get('/users/%d/profile/photo' % number)
session.get('/login')
"""
