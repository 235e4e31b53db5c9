"""What part an object plays is read from its real type and from how it is reached, not from what the user called it."""

from __future__ import annotations

import concurrent.futures
import functools
import logging
import queue
import threading
import weakref

import pytest
import torch

from leaklab.heap.paths import describe_path
from leaklab.heap.roles import Role, roles_by_name, roles_of_object
from leaklab.model import RootPath, Status, Step


class Net(torch.nn.Module):
    """A module whose name does not tell."""

    def __init__(self):
        super().__init__()
        self._webhooks = {"site": print}


class Recent(logging.Handler):
    """A handler whose name does not tell."""


class Liar:
    @property
    def __class__(self):
        return torch.nn.Module


@functools.lru_cache
def cached(number):
    return number


def roles_along(*objects):
    return describe_path(objects, "test", "x", [Status.EXPECTED] * len(objects)).roles


@pytest.mark.parametrize(
    ("thing", "expected"),
    [
        (Net(), Role.MODULE),
        (torch.ones(1), Role.TENSOR),
        (torch.optim.SGD([torch.ones(1)]), Role.OPTIMIZER),
        (threading.Thread(), Role.THREAD),
        (queue.Queue(), Role.QUEUE),
        (concurrent.futures.ThreadPoolExecutor(), Role.WORKERS),
        (cached, Role.CACHE),
        ((n for n in ()), Role.SUSPENDED),
        (Recent(), Role.LOGGING),
        (ValueError(), Role.EXCEPTION),
        (Net, Role.CLASS),
        (weakref.finalize(Net(), print), Role.CALLBACKS),
        (print, None),
        ([], None),
        (Liar(), None),
    ],
)
def test_the_type_of_an_object_tells_its_role(thing, expected):
    assert roles_of_object(thing) == (frozenset() if expected is None else {expected})


@pytest.mark.parametrize(
    ("owner", "store"),
    [
        (Net(), "_forward_hooks"),
        (Net(), "_backward_pre_hooks"),
        (Net(), "_load_state_dict_post_hooks"),
        (torch.optim.SGD([torch.ones(1)]), "_optimizer_step_pre_hooks"),
    ],
)
def test_what_torch_calls_from_is_a_store_of_hooks(owner, store):
    assert Role.HOOKS in roles_along(owner, vars(owner)[store])[-1]


def test_a_dict_of_another_owner_is_no_store_of_hooks():
    class Site:
        def __init__(self):
            self._forward_hooks = {}

    site = Site()
    assert Role.HOOKS not in roles_along(site, site._forward_hooks)[-1]


def test_state_and_groups_belong_to_an_optimizer_only():
    optimizer, other = torch.optim.SGD([torch.ones(1)]), Recent()
    other.state = {}
    assert Role.OPTIMIZER_STATE in roles_along(optimizer, optimizer.state)[-1]
    assert Role.OPTIMIZER_STATE in roles_along(optimizer, optimizer.param_groups)[-1]
    assert Role.OPTIMIZER_STATE not in roles_along(other, other.state)[-1]


def test_handlers_of_a_logger_are_called_back_and_records_of_a_handler_are_not():
    logger, handler = logging.getLogger("leaklab.test_roles"), Recent()
    handler.buffer = [1]
    assert Role.CALLBACKS in roles_along(logger, logger.handlers)[-1]
    assert Role.CALLBACKS not in roles_along(handler, handler.buffer)[-1]


def test_a_record_tells_by_names_what_it_can():
    steps = [("opt", "torch.optim.sgd.SGD"), (".state", "dict"), ("[0]", "traceback"), ("._forward_hooks", "dict")]
    path = RootPath("x", tuple(Step(reference, kind, "", Status.EXPECTED) for reference, kind in steps))
    assert roles_by_name(path) == (
        {Role.OPTIMIZER}, {Role.OPTIMIZER_STATE}, {Role.TRACEBACK}, {Role.HOOKS},
    )  # fmt: skip
