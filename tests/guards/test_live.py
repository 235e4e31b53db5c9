"""A leak of today is found, named and explained as it was when its record was made."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from making import HERE, RECORDS
from programs_of_records import PROGRAMS

import leaklab

TODAY = {
    # A leak of graphs is told by what the holder refers to, no longer by all that the graphs keep.
    "torch.Tensor (8, 16) float32 cpu and 2 other kinds": "torch.Tensor () float32 cpu",
    "encode cache": "a dict in encode",
}
"""What was said otherwise when the records were made."""


@pytest.fixture(scope="module")
def found_today() -> dict[str, Any]:
    """The checks of today, made in a process of their own: what else the tests keep alive is none of theirs."""
    folder = str(Path(leaklab.__file__).parent.parent)
    command = [sys.executable, str(HERE / "programs_of_records.py"), *PROGRAMS]
    environment = {**os.environ, "PYTHONPATH": folder}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, timeout=300)
    return json.loads(done.stdout)


def told(check: dict[str, Any]) -> Any:
    """What a check says, without the figures, positions and numbers of hooks that differ from run to run.

    Nor with the advice, which is tried today: `tests/cures` say what it must be.
    """
    leaks = [
        {
            **{name: leak[name] for name in ("what", "holder", "holders", "cause", "fingerprint", "unit", "sites")},
            "path": [[step["reference"], step["kind"], step["status"]] for step in leak["path"]["steps"]],
            "root": leak["path"]["root"],
        }
        for leak in check["leaks"]
    ]
    whole = {"outcome": check["verdict"]["outcome"], "leaks": leaks, "format": check["format"]}
    return json.loads(re.sub(r"\[\d+\]", "[#]", json.dumps(whole)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_leak_is_explained_as_it_was(found_today, name):
    record = json.loads((RECORDS / f"check_{name}.json").read_text("utf-8"))
    expected = told(record)
    for leak in expected["leaks"]:
        leak["what"] = TODAY.get(leak["what"], leak["what"])
        leak["holders"] = [TODAY.get(holder, holder) for holder in leak["holders"]]
    assert told(found_today[name]) == expected
