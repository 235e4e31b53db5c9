"""An instance whose ``__dict__`` has been made refers to it, also where the collector does not say so (3.13)."""

from __future__ import annotations

import sys

import pytest

from leaklab.runtime.referents import contents_of, get_referents, is_own_dict, referents_of


class Report:
    """Its dict is made when it is updated, as that of pytest's reports is."""

    def __init__(self, **more):
        self.when, self.lines = "call", [1]
        self.__dict__.update(more)


class Slotted:
    __slots__ = ("__dict__", "first")

    def __init__(self):
        self.first = self.second = ("both", [])
        vars(self)


def made(kind):
    thing = kind()
    return thing, vars(thing)


@pytest.mark.parametrize("kind", [Report, Slotted])
@pytest.mark.parametrize("n_asked", [1, 2, 100])
def test_the_dict_is_reported_once_and_each_value_once_by_either(kind, n_asked):
    thing, own = made(kind)
    found = get_referents(*[thing] * n_asked)
    assert [one is own for one in found].count(True) == n_asked
    in_slots = [thing.first] if kind is Slotted else []
    whole = [*own.values(), own, kind, *in_slots]
    assert sorted(map(id, contents_of(thing))) == sorted(map(id, whole))
    assert sorted(map(id, get_referents(thing) + get_referents(own))) == sorted(map(id, whole))


def test_an_instance_whose_dict_nobody_has_read_reports_its_values():
    thing = Report.__new__(Report)
    thing.when, thing.lines = "call", [1]
    found = get_referents(thing)
    is_made_at_once = sys.version_info < (3, 11)
    assert any(is_own_dict(thing, one) for one in found) == is_made_at_once
    assert any(one is thing.lines for one in found) != is_made_at_once


def test_a_dict_that_is_an_attribute_is_no_dict_of_the_instance():
    thing = Report.__new__(Report)
    thing.cache = {"a": []}
    own, cache = vars(thing), thing.cache
    assert [is_own_dict(thing, one) for one in (own, cache)] == [True, False]
    assert [one is own for one in get_referents(thing)].count(True) == 1
    assert [one is cache for one in contents_of(thing)].count(True) == 1


def test_a_dict_that_was_taken_away_with_its_values_is_reported_once():
    """More attributes than the instance has room for: the values move into the dict, and the instance reports it."""
    thing = Report(**{f"name{i}": [i] for i in range(100)})
    assert [one is vars(thing) for one in get_referents(thing)].count(True) == 1


def test_owners_are_right_in_bulk_beside_made_dicts():
    things = [one for _ in range(40) for one in ([[]], Report(extra=[]), Report.__new__(Report))]
    _referents, addresses, owners = referents_of(list(things))
    marker = addresses[-1]
    for place, thing in enumerate(things):
        of_thing = addresses[(owners == place) & (addresses != marker)]
        assert of_thing.tolist() == [id(one) for one in get_referents(thing)]
