"""Calls between services: events, clients, files, threads."""

import asyncio
import atexit
import contextvars
import ctypes
import itertools
import logging
import mmap
import os
import random
import signal
import socket
import tempfile
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

_libc = ctypes.CDLL(None)
_libc.malloc.restype = ctypes.c_void_p
_libc.free.argtypes = [ctypes.c_void_p]
_numbers = itertools.count()
TRAIL = contextvars.ContextVar("trail", default=())
PENDING = set()
FAILURES = []
WALKS = set()
MAPS = {}


class Bus:
    """Tells those who listen."""

    def __init__(self):
        self._listeners = {}

    def on(self, name, function):
        """Call *function* at each event of this name; return what ends it."""
        self._listeners.setdefault(name, []).append(function)  # LEAK test_listener_stays
        return lambda: self._listeners[name].remove(function)

    def emit(self, name, *what):
        """Tell all who listen."""
        return [one(*what) for one in self._listeners.get(name, ())]


BUS = Bus()


class Client:
    """Speaks with one service."""

    def __init__(self, url="http://port"):
        self.url = url
        self._log = logging.getLogger("harbour.client")
        self._log.addHandler(logging.NullHandler())  # LEAK test_client_adds_a_handler

    def get(self, path):
        """Return an answer."""
        self._log.debug("get %s", path)
        return {"url": self.url + path, "status": 200}


class QuietClient:
    """Takes its handler away."""

    def __enter__(self):
        self._handler = logging.NullHandler()
        logging.getLogger("harbour.quiet").addHandler(self._handler)
        return self

    def __exit__(self, *_error):
        logging.getLogger("harbour.quiet").removeHandler(self._handler)


class Crane:
    """Is let down when the program ends."""

    def __init__(self):
        self.load = bytearray(512)
        atexit.register(self.lower)  # LEAK test_crane_waits_for_exit

    def lower(self):
        """Let the load down."""
        self.load.clear()


class Tide:
    """Lives as long as the port; each reading is told when the tide ends."""

    def subscribe(self, reading):
        """Tell *reading* when the tide ends."""
        weakref.finalize(self, print, reading)  # LEAK test_readings_of_the_tide


TIDE = Tide()


def lock_file():
    """Return the number of an open file; nobody closes the file."""
    handle, name = tempfile.mkstemp()
    os.unlink(name)
    again = os.dup(handle)  # LEAK test_lock_file_stays_open
    os.close(handle)
    return again > 0


def read_file(text):
    """Write and read a file that is closed."""
    with tempfile.TemporaryFile("w+") as file:
        file.write(text)
        file.seek(0)
        return file.read()


def ask_neighbour():
    """Ask over a pair of sockets; one side is forgotten."""
    here, there = socket.socketpair()
    here.sendall(b"?")
    answer = there.recv(1)
    here.close()
    SOCKETS.append(there)  # LEAK test_socket_stays_open
    return answer


SOCKETS = []


def wait_for_end():
    """Start a thread that waits for something that never comes."""
    waiter = threading.Thread(target=threading.Event().wait, daemon=True)
    waiter.start()  # LEAK test_thread_that_waits
    return waiter.is_alive()


def in_a_thread(function):
    """Return what *function* returns, called in a thread that ends."""
    found = []
    worker = threading.Thread(target=lambda: found.append(function()))
    worker.start()
    worker.join()
    return found[0]


def in_a_pool(functions):
    """Return what the functions return, called in a pool that ends."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda one: one(), functions))


def native_block(size=32 * 1024):
    """Take memory that nobody gives back."""
    block = _libc.malloc(size)  # LEAK test_native_block
    ctypes.memset(block, 1, size)
    return bool(block)


def native_block_freed(size=32 * 1024):
    """Take memory and give it back."""
    block = _libc.malloc(size)
    ctypes.memset(block, 1, size)
    _libc.free(block)
    return True


THIRDS, HALVES = [], []


def every_third():
    """Keep something in every third call."""
    if next(_numbers) % 3 == 0:
        THIRDS.append(Client.__new__(Client))  # LEAK test_every_third_call


def half_of_the_time():
    """Keep something in half of the calls."""
    if random.random() < 0.5:
        HALVES.append({"at": object()})  # LEAK test_half_of_the_calls


def step(name):
    """Note a step of this request."""
    TRAIL.set((*TRAIL.get(), {"step": name}))  # LEAK test_trail_of_steps


def step_and_back(name):
    """Note a step, and forget the step."""
    token = TRAIL.set((*TRAIL.get(), {"step": name}))
    try:
        return len(TRAIL.get())
    finally:
        TRAIL.reset(token)


def fail_softly(ship):
    """Keep why a ship failed."""
    try:
        hull = [0.0] * 500
        raise ValueError(ship, len(hull))
    except ValueError as error:
        FAILURES.append(error)  # LEAK test_failures_are_kept


def fail_and_forget(ship):
    """Return why a ship failed, as text."""
    try:
        raise ValueError(ship)
    except ValueError as error:
        return str(error)


def walk(ships):
    """Begin a walk along the ships that nobody ends."""
    steps = (ship.upper() for ship in ships)
    WALKS.add(steps)  # LEAK test_walk_never_ends
    return next(steps)


async def send(message):
    """Send in the background; the task is held, and never let go."""
    task = asyncio.create_task(_sent(message))
    PENDING.add(task)  # LEAK test_sent_tasks
    return await task


async def send_and_discard(message):
    """Send in the background; the task is let go when it is done."""
    task = asyncio.create_task(_sent(message))
    DONE.add(task)
    task.add_done_callback(DONE.discard)
    return await task


DONE = set()


async def _sent(message):
    await asyncio.sleep(0)
    return len(message)


def map_chart(name):
    """Map a chart into memory."""
    MAPS[len(MAPS)] = chart = mmap.mmap(-1, 64 * 1024)  # LEAK test_charts_stay_mapped
    chart[: len(name)] = name.encode()
    return chart[: len(name)]


_price = [lambda tonnes: tonnes]


def add_tax():
    """Put a tax around the price; done again with each call."""
    before = _price[0]

    def taxed(tonnes):
        return before(tonnes)

    _price[0] = taxed  # LEAK test_tax_upon_tax


def with_alarm(function):
    """Call with a handler of signals that is put back."""
    before = signal.signal(signal.SIGUSR1, lambda *_what: None)
    try:
        return function()
    finally:
        signal.signal(signal.SIGUSR1, before)
