"""A string that lxml found by XPath knows its parent: the list of names keeps every tree, in memory of libxml2."""

SOURCE = "scrapy/scrapy#535"
REQUIRES = ["loguru", "lxml", "pydantic", "sqlalchemy", "structlog"]
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["native", "global-cache"],
    "grows": "lxml.etree._ElementUnicodeResult",
    "holder": "names",
    "holders_ok": ["_ElementUnicodeResult"],
    "bytes_per_run": 50700,
    "count_per_run": 1,
    "fix": "tree.xpath(..., smart_strings=False), or str()",
}
SETUP = """
import random
from lxml import etree
random.seed(0)
names = []

def load():
    rows = ''.join('<row k="%d">%d</row>' % (n, random.randrange(10**9)) for n in range(100))
    return etree.fromstring('<table><name>t%d</name>%s</table>' % (random.randrange(10**6), rows))

def name_of(tree, smart):
    return tree.xpath('name/text()', smart_strings=smart)[0]
"""
CELL = """
names.append(name_of(load(), smart=True))
"""
FIXED_CELL = """
names.append(name_of(load(), smart=False))
"""
