"""What the port writes down: tables, journals, indexes."""

import heapq
import sqlite3
import sys
import types
import uuid
import warnings
import weakref
from collections import OrderedDict, deque
from functools import lru_cache
from threading import local

ENTRIES = []
TOTALS = {"in": {}, "out": {}}
MANIFEST = bytearray()
RECENT = deque(maxlen=5000)
KINDS = {}
_state = local()
_timers = []


class Berth:
    """A place for one ship."""

    statuses = {}
    latest = OrderedDict()

    def __init__(self, name):
        self.name = name

    def look_up(self, ship):
        """Keep the answer of each ship for ever."""
        self.statuses[ship] = "status of " + ship  # LEAK test_status_of_a_ship
        return self.statuses[ship]

    def look_up_bounded(self, ship):
        """Keep the answers of the last sixteen ships."""
        self.latest[ship] = "status of " + ship
        while len(self.latest) > 16:
            self.latest.popitem(last=False)
        return self.latest[ship]

    @lru_cache(maxsize=None)
    def fee(self, tonnes):  # LEAK test_fee_of_a_berth
        """Return the fee; the table holds every berth that ever asked."""
        return tonnes * 3


@lru_cache(maxsize=128)
def distance(start, end):
    """Return a made-up distance; the last 128 are kept."""
    return abs(hash(start) - hash(end)) % 1000


def enter(ship, cargo):
    """Write a line of the journal."""
    ENTRIES.append({"ship": ship, "cargo": list(cargo)})  # LEAK test_entry_in_the_journal


def count(direction, ship):
    """Count one movement of a ship, by its own number."""
    TOTALS[direction][ship] = TOTALS[direction].get(ship, 0) + 1  # LEAK test_totals_by_ship


def count_kind(kind):
    """Count one movement of a kind of ship: there are few."""
    KINDS[kind] = KINDS.get(kind, 0) + 1


def remember(ship):
    """Keep the last five thousand."""
    RECENT.append((ship, len(ship)))


def load(line):
    """Add a line to the manifest."""
    MANIFEST.extend(line.encode().ljust(2048))  # LEAK test_manifest_gets_longer


def note_here(ship):
    """Note a ship for this thread."""
    if not hasattr(_state, "seen"):
        _state.seen = []
    _state.seen.append(Berth(ship))  # LEAK test_note_of_this_thread


def plan(when, ship):
    """Plan a call; cancelling only marks the plan."""
    timer = [when, uuid.uuid4().hex, ship, False]
    heapq.heappush(_timers, timer)  # LEAK test_cancelled_plans
    return timer


def cancel(timer):
    """Mark a plan as cancelled."""
    timer[3] = True


def open_ledger(path=":memory:"):
    """Return a connection that stays open."""
    connection = sqlite3.connect(path)
    LEDGERS.append(connection)  # LEAK test_ledger_stays_open
    connection.execute("create table if not exists lines (ship text)")
    return connection


LEDGERS = []


def total_of(rows):
    """Add rows in a ledger that is closed."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("create table lines (tonnes int)")
        connection.executemany("insert into lines values (?)", rows)
        return connection.execute("select sum(tonnes) from lines").fetchone()[0]
    finally:
        connection.close()


def module_for(ship):
    """Return a module with the rules of one ship."""
    made = types.ModuleType(f"rules_{ship}")
    exec("def pays(t):\n    return t * 2\n", vars(made))
    sys.modules[made.__name__] = made  # LEAK test_rules_of_a_ship
    return made


def quiet_about(kind):
    """Let warnings of this kind pass in silence; pytest puts the filters back after each test."""
    warnings.filterwarnings("ignore", message=f"{kind} {uuid.uuid4().hex}")


class Watchers:
    """Those who watch, held weakly; the dead are not swept out."""

    def __init__(self):
        self._refs = []

    def add(self, watcher):
        """Add one who watches."""
        self._refs.append(weakref.ref(watcher))  # LEAK test_dead_watchers

    def call(self):
        """Return how many still watch."""
        return sum(ref() is not None for ref in self._refs)


WATCHERS = Watchers()
ALIVE = weakref.WeakValueDictionary()


def know(berth):
    """Know a berth as long as it lives."""
    ALIVE[id(berth)] = berth
    return len(ALIVE)
