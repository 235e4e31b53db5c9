"""Take a magic's line apart: options first, then an expression that is left exactly as it was written."""

from __future__ import annotations

import difflib
import re
from typing import Any

from IPython.core.error import UsageError

from leaklab.render.wording import shorten

_WORD = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[^\s"'])+)""")
_EXPRESSION_LIMIT = 120
_MESSAGE_LIMIT = 200


def split_line(magic: Any, line: str) -> tuple[str, str]:
    """Return the options at the beginning of *line*, and the rest.

    A parser of options would take ``-1`` in ``losses[-1]``, or the quotes of a key, for its own. So only what begins
    with a dash is an option, with its value if it takes one, up to the first word that is neither; ``--`` ends them.

    Args:
        magic: The method, decorated by ``magic_arguments``.
        line: What stands behind its name.
    """
    known = magic.parser._option_string_actions  # noqa: SLF001 - argparse has no public table of its options
    end = 0
    while (match := _WORD.match(line, end)) and match[1].startswith("-"):
        word = match[1]
        if word == "--":
            return line[:end], line[match.end() :].strip()
        name, has_value, _ = word.partition("=")
        if not word.startswith("--"):
            name, has_value = word[:2], word[2:]  # -n3
        if name not in known and word not in known:
            break
        end = match.end()
        takes_value = (known.get(word) or known[name]).nargs != 0
        if takes_value and not has_value and (value := _WORD.match(line, end)):
            end = value.end()
    return line[:end], line[end:].strip()


def evaluated(expression: str, namespace: dict[str, Any]) -> list[Any]:
    """Return the value of *expression* in *namespace*, as the only item of a list: nothing else of ours has it.

    Raises:
        UsageError: one sentence, if there is no expression, it is none, or it raises. It keeps no frame of the user's.
    """
    shown = shorten(expression, _EXPRESSION_LIMIT)
    code = None
    try:
        code = compile(expression, "<expression>", "eval")
    except (SyntaxError, ValueError) as error:
        problem = f"{shown!r} is no Python expression: {getattr(error, 'msg', error)}; options stand before it"
        if expression.startswith("-"):
            problem = f"{expression.split(maxsplit=1)[0]!r} is no option, and {shown!r} is no Python expression"
    if code is None:
        raise UsageError(problem)
    try:
        return [eval(code, namespace)]  # noqa: S307 - evaluating the user's expression is the purpose
    except NameError as error:
        problem = _no_name(shown, getattr(error, "name", None), str(error), namespace)
    except Exception as error:  # noqa: BLE001 - of whatever type the user's code raises
        problem = f"cannot evaluate {shown!r}: it raised {_named(error)}"
    # Raised out here: inside, it would carry the first error, whose frames hold what the expression made.
    raise UsageError(problem)


def _no_name(shown: str, name: str | None, message: str, namespace: dict[str, Any]) -> str:
    if name is None or name in namespace:
        return f"cannot evaluate {shown!r}: {message}"
    close = difflib.get_close_matches(name, [key for key in namespace if type(key) is str], 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"cannot evaluate {shown!r}: there is no variable {name!r}{hint}"


def _named(error: Exception) -> str:
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the user's own __str__
        message = ""
    return shorten(": ".join(filter(None, (type(error).__name__, message))), _MESSAGE_LIMIT)
