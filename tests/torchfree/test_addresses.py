"""Types are numbered, addresses found, and references asked for without a look at an object too many."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaklab.runtime.addresses import KindTable, addresses_of, kinds_of, positions_of
from leaklab.runtime.referents import get_referents, referents_of

# The places of a table are told by 16 bits of an address: these share theirs, and share it not.
ADDRESSES = st.builds(lambda low, high: (low << 4) + (high << 20), st.integers(1, 6), st.integers(0, 3))


@given(st.lists(ADDRESSES), st.lists(ADDRESSES, unique=True))
def test_few_addresses_are_found_as_in_a_dict(wanted, addresses):
    known = {address: position for position, address in enumerate(addresses)}
    found = positions_of(np.array(wanted, np.int64), np.array(addresses, np.int64))
    assert found.tolist() == [known.get(address, -1) for address in wanted]


def test_many_addresses_are_found_as_in_a_dict(monkeypatch):
    monkeypatch.setattr("leaklab.runtime.addresses._FEW_WANTED", 2)
    found = positions_of(np.array([64, 16, 48, 32]), np.array([32, 64, 80]))
    assert found.tolist() == [1, -1, -1, 0]


@given(st.lists(ADDRESSES))
def test_every_kind_gets_one_number(kinds):
    table = KindTable(np.array(kinds, np.int64))
    assert table.addresses.tolist() == sorted(set(kinds))
    assert table.addresses[table.rows].tolist() == kinds
    assert table.counts.tolist() == [kinds.count(kind) for kind in sorted(set(kinds))]
    wanted = set(kinds[:2])
    assert table.mask_of(wanted).tolist() == [kind in wanted for kind in kinds]
    assert table.kinds_of(np.arange(len(kinds))).tolist() == kinds


@pytest.mark.parametrize("things", [[], [1, "a", 2.5, [], "b", {}]], ids=["nothing", "things"])
def test_a_question_about_types_is_answered_for_each_object(things):
    table = KindTable(kinds_of(things))
    assert table.mask(lambda of: of is str).tolist() == [type(thing) is str for thing in things]
    assert table.mask_by_name(lambda name: name == "dict").tolist() == [type(thing) is dict for thing in things]
    assert addresses_of(table.types).tolist() == table.addresses.tolist()


# Imports every extension module at hand, uses some, and asks every object of the process as leaklab would. An object
# that nothing but the answer refers to was dead before: it is named, and the process ends before it is freed again.
CHILD = r"""
import faulthandler, gc, importlib, os, pkgutil, sys, sysconfig, warnings
faulthandler.dump_traceback_later(100, exit=True)
warnings.simplefilter("ignore")
folder = os.path.join(sysconfig.get_path("stdlib"), "lib-dynload")
names = {*sys.builtin_module_names, *(module.name for module in pkgutil.iter_modules([folder]))}
for name in sorted(names | {"numpy", "msgspec", "psutil", "pandas", "matplotlib.pyplot", "zmq", "lxml.etree"}):
    if "test" in name or name in ("_tkinter", "this", "antigravity"):
        continue
    try:
        importlib.import_module(name)
    except ImportError:
        pass

import asyncio, contextvars, csv, ctypes, datetime, decimal, io, json, queue, re
import socket, sqlite3, struct, threading, zlib
from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

async def step(number):
    await asyncio.sleep(0)
    return [number]

async def turn():
    tasks = [asyncio.ensure_future(step(number)) for number in range(8)]
    cancelled = asyncio.ensure_future(asyncio.sleep(10))
    cancelled.cancel()
    return await asyncio.gather(*tasks, cancelled, return_exceptions=True)

def use():
    asyncio.run(turn())
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(str, range(20)))
    waiting = queue.SimpleQueue(); waiting.put([]); waiting.get()
    for _ in range(3):
        json.loads(json.dumps({"a": [1.5, {"b": None}]}))
        ElementTree.fromstring("<a><b c='d'>e</b></a>").find("b").attrib
        [*csv.DictReader(io.StringIO("a,b\n1,2"))]
        with sqlite3.connect(":memory:") as connection:
            connection.execute("select ?, 2", (1,)).fetchall()
        connection.close()
        re.compile("(a)|b+").sub(lambda found: "c", "abbb")
        zlib.decompress(zlib.compress(b"x" * 100)); struct.unpack("<id", struct.pack("<id", 1, 2.0))
        contextvars.copy_context().run(decimal.Decimal("1.1").__add__, 2)
        datetime.datetime.now(datetime.timezone.utc).isoformat()
        ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1)()
        left, right = socket.socketpair(); left.close(); right.close()
        threading.Timer(0, str).run()

from leaklab.runtime.referents import get_referents

def ask(thing):
    found = get_referents(thing)
    for place in range(len(found)):
        # One reference is the list's, one the argument's: a living object has another, by which it was found.
        if sys.getrefcount(found[place]) < 3:
            print("dead:", type(thing), getattr(thing, "__name__", ""), type(found[place]), flush=True)
            os._exit(1)

for _ in range(3):
    use()
    for thing in gc.get_objects():
        ask(thing)
    gc.collect()
print("all alive", len(sys.modules))
"""


async def _many_waits() -> list[object]:
    async def step(number: int) -> list[int]:
        await asyncio.sleep(0)
        return [number]

    return await asyncio.gather(*(asyncio.ensure_future(step(number)) for number in range(4)))


def test_nothing_in_this_process_reports_dead_objects():
    ran = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout[:9]) == (0, "all alive"), ran.stdout + ran.stderr


@pytest.mark.parametrize("n_others", [0, 1_000])
def test_asyncio_is_asked_for_its_dict_at_least(n_others):
    module = sys.modules["_asyncio"]
    assert type(module) is types.ModuleType
    asyncio.run(_many_waits())
    others = [[number] for number in range(n_others)]
    found = get_referents(module, *others)
    assert any(child is vars(module) for child in found)
    assert not any(type(child).__name__ == "FutureIter" for child in found)
    if sys.version_info[:2] == (3, 12):
        assert len(found) == 1 + n_others
    del found
    gc.collect()


def test_owners_are_right_beside_a_module_that_is_not_asked():
    module, before, behind = sys.modules["_asyncio"], ["before"], ["behind"]
    found, _, owners = referents_of([before, module, *[[]] * 100, behind])
    owner_of = {id(child): int(owner) for child, owner in zip(found, owners, strict=True)}
    assert [owner_of[id(child)] for child in (before[0], vars(module), behind[0])] == [0, 1, 102]
