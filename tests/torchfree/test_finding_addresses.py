"""Types are numbered, and few addresses found among many, as one look at each would have it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaklab.runtime.addresses import KindTable, addresses_of, kinds_of, positions_of

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
