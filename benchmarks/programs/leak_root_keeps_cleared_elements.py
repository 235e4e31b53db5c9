"""A stream of XML is parsed for ever; each item is cleared after use, but the root keeps the empty elements."""

SOURCE = "python/cpython#102055"
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["native", "global-cache"],
    "grows": "Element",
    "holder": "root",
    "holders_ok": ["parser", "feed", "Element"],
    "bytes_per_run": 400,
    "count_per_run": 5,
    "fix": "root.clear() as well",
}
SETUP = """
import random, xml.etree.ElementTree as ET
random.seed(0)
parser = ET.XMLPullParser(['start', 'end'])
parser.feed('<feed>')
(_, root), = parser.read_events()

def read(n, forget_root=False):
    total = 0
    for _ in range(n):
        parser.feed('<item id="%d"><value>%d</value></item>' % (random.randrange(10**6), random.randrange(10**6)))
    for event, element in parser.read_events():
        if event == 'end' and element.tag == 'item':
            total += int(element.find('value').text)
            element.clear()
    if forget_root:
        root.clear()
    return total
"""
CELL = """
total = read(5)
"""
FIXED_CELL = """
total = read(5, forget_root=True)
"""
