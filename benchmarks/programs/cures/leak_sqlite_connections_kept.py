"""A connection is opened for each query and kept for the program."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "descriptor-left",
    "causes_ok": ["container-growth"],
    "grows": "sqlite3.Connection",
    "holder": "connections",
    "bytes_per_run": 105849,
    "count_per_run": 1,
    "fix": "connection.close(), and nothing is kept",
}
SETUP = """
import sqlite3, tempfile, os

path = os.path.join(tempfile.mkdtemp(), "runs.db")
connections = []

def connect():
    connection = sqlite3.connect(path)
    connections.append(connection)
    return connection

connect().execute("create table runs (n integer)")
"""
CELL = """
connection = connect()
n = connection.execute("select count(*) from runs").fetchone()[0]
"""
FIXED_CELL = """
connection = connect()
n = connection.execute("select count(*) from runs").fetchone()[0]
connection.close()
connections.remove(connection)
"""
