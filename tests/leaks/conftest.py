"""Start the checks of all selected cases at once, so that two run while the tests ask for them one by one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from checking import Checks


@pytest.fixture(scope="session")
def checks(request: pytest.FixtureRequest) -> Iterator[Checks]:
    running = Checks()
    for item in request.session.items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if "case" in parameters and "checks" in getattr(item, "fixturenames", ()):
            case = parameters["case"]
            running.begin(case, case.fixed if "repaired" in item.name else case.cell)
    yield running
    running.close()
