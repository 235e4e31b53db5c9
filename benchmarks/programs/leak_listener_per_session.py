"""Each unit of work listens to the engine with a function of its own.

SQLAlchemy keeps a listener until it is removed.
"""

SOURCE = "open-telemetry/opentelemetry-python-contrib#1761"
REQUIRES = ["loguru", "lxml", "pydantic", "sqlalchemy", "structlog"]
TRUTH = {
    "leaks": True,
    "cause": "callback-registry",
    "causes_ok": ["hook-left", "library-registry", "closure-kept", "global-cache"],
    "grows": "function",
    "holder": "engine",
    "holders_ok": ["listeners", "dispatch", "_key_to_collection", "registry", "before_cursor_execute"],
    "bytes_per_run": 5400,
    "count_per_run": 1,
    "fix": "sqlalchemy.event.remove() when the work is done",
}
SETUP = """
import sqlalchemy as sa
engine = sa.create_engine('sqlite://')

def work(remove=False):
    statements = [None] * 500

    def note(connection, cursor, statement, *rest):
        statements[0] = statement

    sa.event.listen(engine, 'before_cursor_execute', note)
    with engine.connect() as connection:
        for _ in range(10):
            value = connection.execute(sa.text('select 1')).scalar()
    if remove:
        sa.event.remove(engine, 'before_cursor_execute', note)
    return value
"""
CELL = """
value = work()
"""
FIXED_CELL = """
value = work(remove=True)
"""
