"""A scraper mounts an adapter of its own for each host on one session; the table of adapters never shrinks."""

SOURCE = "VeNoMouS/cloudscraper#328"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["container-growth", "callback-registry", "library-registry"],
    "grows": "HTTPAdapter",
    "holder": "adapters",
    "bytes_per_run": 2280,
    "count_per_run": 1,
    "fix": "mount one adapter for all hosts, or a session per host that is closed",
}
SETUP = """
import itertools, requests
from requests.adapters import HTTPAdapter
session = requests.Session()
hosts = itertools.count(1)

class Retrying(HTTPAdapter):
    pass

def prepare(host, prefix):
    session.mount(prefix, Retrying(max_retries=2))
    request = session.prepare_request(requests.Request('GET', host + '/index.html'))
    return request.url, session.get_adapter(request.url)
"""
CELL = """
host = 'https://host-%d.example.org' % next(hosts)
url, adapter = prepare(host, host)
"""
FIXED_CELL = """
host = 'https://host-%d.example.org' % next(hosts)
url, adapter = prepare(host, 'https://')
"""
