"""A loader is generated for each kind of row.

Its source is filed in linecache under a running number, for tracebacks.
"""

SOURCE = "reagento/adaptix#461"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["library-registry", "notebook-history", "container-growth"],
    "grows": "tuple",
    "holder": "linecache",
    "bytes_per_run": 1950,
    "count_per_run": 1,
    "fix": "take the entry out when the loader dies, or make one loader per kind",
}
SETUP = """
import itertools, linecache
serial = itertools.count(1)

def make_loader(fields, forget=False):
    lines = ['def load(row):'] + ['    %s = row[%r]' % (f, f) for f in fields]
    source = '\\n'.join(lines + ['    return (%s)' % ', '.join(fields)]) + '\\n'
    filename = '<loader %d>' % next(serial)
    space = {}
    exec(compile(source, filename, 'exec'), space)
    linecache.cache[filename] = len(source), None, source.splitlines(True), filename
    loader = space.pop('load')
    if forget:
        del linecache.cache[filename]
    return loader

fields = ['column%d' % n for n in range(12)]
row = dict.fromkeys(fields, 1)
"""
CELL = """
total = sum(make_loader(fields)(row))
"""
FIXED_CELL = """
total = sum(make_loader(fields, forget=True)(row))
"""
