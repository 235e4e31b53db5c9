"""Twenty rows are inserted into a database in memory and the older ones deleted."""

SOURCE = "openai/openai-agents-python#4210"
TRUTH = {
    "leaks": False,
    "cause": "none-bounded",
    "grows": None,
    "holder": None,
    "bytes_per_run": 0,
    "count_per_run": 0,
    "fix": None,
}
SETUP = """
import random, sqlite3
random.seed(0)
conn = sqlite3.connect(':memory:')
conn.execute('create table rows (id integer primary key, body blob)')
"""
CELL = """
with conn:
    for _ in range(20):
        conn.execute('insert into rows (body) values (?)', (random.randbytes(400),))
    conn.execute('delete from rows where id <= (select max(id) - 60 from rows)')
"""
FIXED_CELL = """
conn.total_changes
"""
