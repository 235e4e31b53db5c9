"""Objects of every kind that users have: each builder makes one that leads to a token, and needs no undoing."""

from __future__ import annotations

import asyncio
import threading
import types
import weakref

import edge_builders
import numpy as np
import pandas as pd
import torch
from edge_builders import Token, leaf, sees


class Slotted:
    __slots__ = ("__weakref__", "kept")

    def __init__(self, kept):
        self.kept = kept

    def method(self):
        return self.kept


@types.coroutine
def pause():
    yield


async def wait_with(token):
    await pause()
    return token


async def give(token):
    return token


def tensor(token):
    """A leaf that requires a gradient, with one."""
    weight = leaf()
    weight.sum().backward()
    weight.note = token
    return weight


def optimizer(token):
    weight = leaf()
    made = torch.optim.Adam([weight])
    weight.sum().backward()
    made.step()
    made.state[weight]["note"] = token
    return made


def suspended_coroutine(token):
    made = wait_with(token)
    made.send(None)
    return made


def finished_task(token):
    loop = asyncio.new_event_loop()
    try:
        made = loop.create_task(give(token))
        loop.run_until_complete(made)
    finally:
        loop.close()
    return made


def finished_thread(token):
    thread = threading.Thread(target=list)
    thread.start()
    thread.join()
    thread.note = token
    return thread


def bound_method(token):
    return Slotted(token).method


def weak_keys(token):
    key = Slotted(None)
    return [key, weakref.WeakKeyDictionary({key: token})]


def array(token):
    box = np.empty(2, object)
    box[1] = token
    return box[1:]


def frame(token):
    made = pd.DataFrame({"number": [1.5, 2.5]})
    made.attrs["note"] = token
    return made


def made_class(token):
    return type("Made", (Slotted,), {"note": token})


def slotted(token):
    return Slotted(token)


def closure(token):
    return sees(token)


PAYLOAD_BYTES = 20_000
"""Each token has so much: then all leaks are of one size, and none is taken for a consequence of another."""
HIDING = (
    "grad_fn", "next_functions", "packed", "saved_by_function", "node_hook", "forward_hook", "generator",
    "asynchronous_generator", "stored_context", "weakref_callback", "cached_result", "traceback",
)  # fmt: skip
"""Builders of `edge_builders`."""
PLAIN = (
    tensor, optimizer, suspended_coroutine, finished_task, finished_thread, bound_method, weak_keys, array, frame,
    made_class, slotted, closure,
)  # fmt: skip
KINDS = (*HIDING, *(build.__name__ for build in PLAIN))


def build_object(kind, watched):
    """Make an object of *kind*; weak references to it and to its token go into *watched*, two for each object."""
    token = Token()
    token.payload = bytes(PAYLOAD_BYTES)
    made = getattr(edge_builders, kind)(token).holder if kind in HIDING else globals()[kind](token)
    watched.append(weakref.ref(token))
    try:
        watched.append(weakref.ref(made))
    except TypeError:  # lists and generators of numbers
        watched.append(weakref.ref(token))
    return made
