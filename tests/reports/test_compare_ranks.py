"""Reports of ranks side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

import leaklab

RECORDS = Path(__file__).parents[1] / "guards" / "records"


@pytest.mark.parametrize("name", ["ranks_seven.json", "ranks_of_loops.json", "ranks_hostile.json"])
def test_what_ranks_have_in_common_with_themselves_is_still_there(name):
    report = leaklab.load(RECORDS / name)
    compared = leaklab.compare(report, report)
    assert str(compared).splitlines()[0].endswith(f": {len(report.leaks)} still there")
