"""Say where a function was written: the notebook's cell and line, or file and line."""

from __future__ import annotations

import re
import sys
import types
from typing import Any

from leaklab.explain.references.functions import code_words

_CELL_FILE = re.compile(r"<ipython-input-(\d+)-\w+>")


def place_of(function: object) -> str:
    """Return ``<lambda> at Cell In[7], line 3``; empty for what has no code in Python."""
    if type(function) is types.MethodType:
        function = function.__func__
    if type(function) is not types.FunctionType:
        return ""
    code = function.__code__
    return f"{code_words(code)} at {_file_words(code.co_filename)}, line {code.co_firstlineno}"


def _file_words(filename: str) -> str:
    numbered = _CELL_FILE.fullmatch(filename)
    if numbered is not None:
        return f"Cell In[{numbered[1]}]"
    return _cell_of_notebook(filename) or filename


def _cell_of_notebook(filename: str) -> str:
    """Return ``Cell In[7]`` for a file that the notebook made up for a cell, empty for any other."""
    get_shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", None)
    compiler = getattr(get_shell() if callable(get_shell) else None, "compile", None)
    naming = getattr(compiler, "format_code_name", None)
    words = naming(filename) if callable(naming) else None
    return " ".join(map(str, words)) if type(words) is tuple else ""
