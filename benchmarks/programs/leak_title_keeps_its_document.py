"""A scraper keeps the title of each page, but as the parser gives it: a string that refers to its whole document."""

SOURCE = "MechanicalSoup/MechanicalSoup#253"
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["global-cache"],
    "grows": "NavigableString",
    "holder": "titles",
    "holders_ok": ["NavigableString"],
    "bytes_per_run": 26800,
    "count_per_run": 21,
    "fix": "titles.append(str(soup.title.string))",
}
SETUP = """
import itertools, random
from bs4 import BeautifulSoup
random.seed(0)
titles = []
numbers = itertools.count(1)

def page(number):
    items = ''.join('<li>%d</li>' % random.randrange(10**9) for _ in range(20))
    return '<html><head><title>Page %d</title></head><body><ul>%s</ul></body></html>' % (number, items)
"""
CELL = """
soup = BeautifulSoup(page(next(numbers)), 'html.parser')
titles.append(soup.title.string)
"""
FIXED_CELL = """
soup = BeautifulSoup(page(next(numbers)), 'html.parser')
titles.append(str(soup.title.string))
"""
