"""A path begins at what has a name of its own, whichever module the search came from."""

from __future__ import annotations

import json
import logging

import pytest

from leaklab.heap.found_by_name import begin_at_name
from leaklab.heap.shortest_paths import Start

LOGGER = logging.getLogger("leaklab.test_found_by_name")
ELSEWHERE = Start(1, "module 'elsewhere'", "elsewhere", 4)
HANDLERS = LOGGER.handlers
UNLISTED = logging.Logger("leaklab.unlisted")  # noqa: LOG001 - to be found by no name


@pytest.mark.parametrize(
    ("thing", "root", "expression"),
    [
        (LOGGER, "module 'logging'", "logging.getLogger('leaklab.test_found_by_name')"),
        (logging.root, "module 'logging'", "logging.root"),
        (LOGGER.manager, "module 'logging'", "logging.root.manager"),
        (json.JSONDecoder, "module 'json.decoder'", "json.decoder.JSONDecoder"),
        (json.dumps, "module 'json'", "json.dumps"),
    ],
    ids=["logger", "root logger", "manager", "class", "function"],
)
def test_what_has_a_name_is_called_by_it(thing, root, expression):
    left_out, start = begin_at_name(ELSEWHERE, [{}, [], thing, []], 4)
    assert (left_out, start.words, start.expression) == (2, root, expression)


def test_the_last_name_wins():
    assert begin_at_name(ELSEWHERE, [{}, json.JSONDecoder, LOGGER, HANDLERS], 4)[0] == 2


def test_a_variable_of_the_user_stays_where_the_path_begins():
    variable = Start(1, "notebook variable", "log", 0, is_variable=True)
    assert begin_at_name(variable, [[], LOGGER, HANDLERS], 3) == (0, variable)


def test_a_path_that_came_from_the_home_of_a_class_stays():
    home = Start(1, "module 'json.decoder'", "json.decoder", 4)
    assert begin_at_name(home, [vars(json.decoder), json.JSONDecoder, []], 3) == (0, home)


@pytest.mark.parametrize(
    ("thing", "n_old"),
    [
        (LOGGER, 1),
        (UNLISTED, 3),
        (type("JSONDecoder", (), {}), 3),
        (lambda: 0, 3),
        (dict, 3),
    ],
    ids=["made by a run", "an unlisted logger", "a class of another home", "a lambda", "a built-in class"],
)
def test_what_cannot_be_found_by_its_name_is_left(thing, n_old):
    assert begin_at_name(ELSEWHERE, [{}, thing, []], n_old) == (0, ELSEWHERE)
