"""Each call mounts a new adapter under the same prefix: the one before is dropped."""

SOURCE = "deedy5/ddgs#20"
TRUTH = {
    "leaks": False,
    "cause": "none-replaced",
    "grows": None,
    "holder": None,
    "bytes_per_run": 0,
    "count_per_run": 0,
    "fix": None,
}
SETUP = """
import requests
from requests.adapters import HTTPAdapter
session = requests.Session()
"""
CELL = """
session.mount('https://', HTTPAdapter(max_retries=3))
request = session.prepare_request(requests.Request('GET', 'https://example.org/a'))
"""
FIXED_CELL = """
request = None
"""
