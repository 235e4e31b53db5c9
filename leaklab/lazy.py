"""Names that a package gives out without importing them: each is imported where it is first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, table: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` (PEP 562) of *package*: what users import from it.

    Inside leaklab every import names the module itself, so that ``lint-imports`` sees it.

    Args:
        package: The ``__name__`` of the package.
        table: The names that each module of the package gives out, separated by blanks. A name that is a module of
            the package, too, cannot be given out: once imported, the module would be found instead.
    """
    homes = {name: module for module, names in table.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in homes:
            msg = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(msg)
        # Not kept in the package: a test that replaces the module's name is seen here, too.
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return find
