"""The language of ``leaklab.find``: conditions on objects, read by a parser of its own and never run as Python.

::

    condition   either {"or" either}            either   each {"and" each}
    each        "not" each | compared           compared value {comparison value} | "(" condition ")"
    comparison  == != < <= > >= | ["not"] "in" | ["not"] "like"
    value       property | property [ number ] | held_by ( text ) | text | number [unit] | True | False | ( values )
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from leaklab.errors import QueryError

Scalar: TypeAlias = str | int | float | bool
Value: TypeAlias = Scalar | tuple[Scalar, ...]
_Check: TypeAlias = Callable[[object], bool]

PROPERTIES: Final[dict[str, str]] = {
    "type": "text",
    "module": "text",
    "bytes": "number",
    "exclusive": "number",
    "shape": "shape",
    "ndim": "number",
    "numel": "number",
    "dtype": "text",
    "device": "text",
    "requires_grad": "flag",
    "age": "text",
}
"""What can be asked of an object, and what it is compared with."""
UNITS: Final[dict[str, int]] = {
    "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
    "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
}  # fmt: skip
HELD_BY: Final = "held_by"
_WORDS = ("and", "or", "not", "in", "like", "True", "False")
_ORDERED = ("<", "<=", ">", ">=")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<text>'[^']*'|\"[^\"]*\")"
    r"|(?P<name>[^\W\d]\w*)|(?P<sign>==|!=|<=|>=|[-<>()\[\],])|(?P<end>\Z))"
)
MOST_CHARACTERS = 4_000
_MOST_NESTED = 50
_MOST = 1 << 62


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that stands in the query; *at* is its position, from 0."""

    value: Value
    at: int


@dataclass(frozen=True, slots=True)
class Property:
    """A property of an object, or one entry of its shape."""

    name: str
    index: int | None
    at: int

    @property
    def kind(self) -> str:
        """What it is compared with."""
        return "number" if self.index is not None else PROPERTIES[self.name]

    def __str__(self) -> str:
        return self.name if self.index is None else f"{self.name}[{self.index}]"


@dataclass(frozen=True, slots=True)
class PropertyTest:
    """Two values and what is between them; the left one is a property."""

    left: Property
    sign: str
    right: Property | Literal


@dataclass(frozen=True, slots=True)
class HeldBy:
    """The path to the object begins at this name."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part holds."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One part or more holds."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: Condition


Condition: TypeAlias = PropertyTest | HeldBy | AllOf | AnyOf | Not


def parse(text: str) -> Condition | None:
    """Return the condition in *text*, None for an empty one.

    Raises:
        QueryError: one sentence with the position and what is known instead.
        TypeError: if *text* is no text.
    """
    if type(text) is not str:
        msg = f'where must be a str such as "bytes > 1 MiB", not {type(text).__name__}'
        raise TypeError(msg)
    if not text.strip():
        return None
    if len(text) > MOST_CHARACTERS:
        msg = f"where has {len(text):,} characters; at most {MOST_CHARACTERS:,} are allowed"
        raise QueryError(msg)
    parser = _Parser(text)
    condition = parser.condition()
    parser.expect_end()
    return condition


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while True:
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            refuse(at, f"{text[at]!r} has no meaning in a condition; put texts in quotes")
        kind = str(match.lastgroup)
        found.append(_Token(kind, match[kind], match.start(kind)))
        if kind == "end":
            return found
        at = match.end()


def refuse(at: int, problem: str) -> NoReturn:
    """Raise the error for what stands at the position *at*.

    Raises:
        QueryError: always.
    """
    msg = f"where, character {at + 1}: {problem}"
    raise QueryError(msg)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return the names that are known, and which of them *name* may be meant for."""
    near = difflib.get_close_matches(name, known, 1, 0.6)
    return f"did you mean {near[0]}? known are: {', '.join(known)}" if near else f"known are: {', '.join(known)}"


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._place = 0
        self._depth = 0

    @property
    def _now(self) -> _Token:
        return self._tokens[self._place]

    def _take(self, *texts: str, kinds: Sequence[str] = ("name", "sign")) -> _Token | None:
        token = self._now
        if token.kind not in kinds or (texts and token.text not in texts):
            return None
        self._place += 1
        return token

    def _expect(self, sign: str) -> None:
        if self._take(sign) is None:
            refuse(self._now.at, f"{sign!r} is missing before {_named(self._now)}")

    def expect_end(self) -> None:
        """Refuse what stands behind a condition."""
        if self._now.kind != "end":
            refuse(
                self._now.at, f"{_named(self._now)} follows a complete condition; join two conditions by 'and' or 'or'"
            )

    def condition(self) -> Condition:
        """Return what stands here, up to where no ``or`` follows."""
        self._depth += 1
        if self._depth > _MOST_NESTED:
            refuse(self._now.at, f"conditions are nested deeper than {_MOST_NESTED}")
        parts = [self._joined()]
        while self._take("or"):
            parts.append(self._joined())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _joined(self) -> Condition:
        parts = [self._each()]
        while self._take("and"):
            parts.append(self._each())
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _each(self) -> Condition:
        negations = 0
        while self._take("not"):
            negations += 1
        part = self._compared()
        return Not(part) if negations % 2 else part

    def _compared(self) -> Condition:
        if self._now.text == "(" and self._now.kind == "sign" and not self._is_tuple():
            self._place += 1
            inner = self.condition()
            self._expect(")")
            return inner
        left = self._value()
        if isinstance(left, HeldBy):
            return left
        parts: list[Condition] = []
        while (sign := self._sign()) is not None:
            right = self._value()
            if isinstance(right, HeldBy):
                refuse(right.at, "held_by(...) is a condition already; do not compare it")
            parts.append(_compare(left, sign, right))
            left = right
        if parts:
            return parts[0] if len(parts) == 1 else AllOf(tuple(parts))
        if isinstance(left, Property) and left.kind == "flag":
            return PropertyTest(left, "==", Literal(value=True, at=left.at))
        what = f"{left} is a {left.kind}" if isinstance(left, Property) else f"{left.value!r} is a value"
        refuse(left.at, f"{what}, not a condition; compare it: bytes > 1 MiB, dtype == 'float32'")

    def _sign(self) -> str | None:
        is_negated = self._now.text == "not" and self._tokens[self._place + 1].text in ("in", "like")
        self._place += is_negated
        token = self._take("==", "!=", "<", "<=", ">", ">=", "in", "like")
        if token is None:
            return None
        return f"not {token.text}" if is_negated else token.text

    def _is_tuple(self) -> bool:
        """Return whether the bracket that opens here holds values: a shape, or what something is one of."""
        first, second = self._tokens[self._place + 1], self._tokens[min(self._place + 2, len(self._tokens) - 1)]
        if first.text in (")", "-"):
            return True
        is_value = first.kind in ("number", "text") or first.text in ("True", "False")
        if first.kind == "number" and second.text in UNITS:
            second = self._tokens[min(self._place + 3, len(self._tokens) - 1)]
        return is_value and second.text in (",", ")")

    def _value(self) -> Property | Literal | HeldBy:
        token = self._now
        if token.kind == "text":
            self._place += 1
            return Literal(token.text[1:-1], token.at)
        if token.kind == "number" or token.text == "-":
            return Literal(self._number(), token.at)
        if token.text in ("(", "[") and token.kind == "sign":
            return self._items()
        if token.kind != "name" or token.text in _WORDS[:5]:
            refuse(token.at, f"a property or a value is missing before {_named(token)}")
        self._place += 1
        if token.text in ("True", "False", "true", "false"):
            return Literal(token.text.lower() == "true", token.at)
        if token.text == HELD_BY:
            return self._held_by(token)
        if token.text not in PROPERTIES:
            refuse(token.at, f"no property is called {token.text}; {did_you_mean(token.text, [*PROPERTIES, HELD_BY])}")
        return Property(token.text, self._index(token), token.at)

    def _index(self, token: _Token) -> int | None:
        if self._take("[") is None:
            return None
        if PROPERTIES[token.text] != "shape":
            refuse(token.at, f"{token.text} has no entries; only shape has: shape[0] == 32")
        at, index = self._now.at, self._number()
        if type(index) is not int:
            refuse(at, "the entry of a shape is a whole number")
        self._expect("]")
        return index

    def _held_by(self, token: _Token) -> HeldBy:
        self._expect("(")
        name = self._take(kinds=("text",))
        if name is None:
            refuse(self._now.at, "held_by asks for the name of a variable in quotes: held_by('history')")
        self._expect(")")
        return HeldBy(name.text[1:-1], token.at)

    def _items(self) -> Literal:
        start = self._now
        close = ")" if start.text == "(" else "]"
        self._place += 1
        items: list[Scalar] = []
        while self._take(close) is None:
            item = self._value()
            if not isinstance(item, Literal) or isinstance(item.value, tuple):
                refuse(start.at, "only numbers or texts may stand in these brackets")
            items.append(item.value)
            if self._take(",") is None and self._now.text != close:
                refuse(self._now.at, f"',' or {close!r} is missing before {_named(self._now)}")
        return Literal(tuple(items), start.at)

    def _number(self) -> int | float:
        sign = -1 if self._take("-") else 1
        token = self._take(kinds=("number",))
        if token is None:
            refuse(self._now.at, f"a number is missing before {_named(self._now)}")
        text = token.text.replace("_", "")
        number: int | float = float(text) if re.search(r"[.eE]", text) else int(text)
        unit = self._now
        if unit.kind == "name" and unit.text not in _WORDS:
            if unit.text not in UNITS:
                refuse(unit.at, f"no unit is called {unit.text}; {did_you_mean(unit.text, list(UNITS))}")
            self._place += 1
            number *= UNITS[unit.text]
        return sign * (number if number < _MOST else math.inf)  # as large as nothing is, and no trouble to numpy


def _named(token: _Token) -> str:
    return "the end" if token.kind == "end" else repr(token.text)


_TURNED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _compare(left: Property | Literal, sign: str, right: Property | Literal) -> PropertyTest:
    """Return the comparison with a property on its left, refused where it makes no sense."""
    if isinstance(left, Literal):
        if isinstance(right, Literal):
            refuse(left.at, f"this compares two values, not a property; {did_you_mean('', list(PROPERTIES))}")
        if sign not in _TURNED:
            refuse(left.at, f"put a property to the left of {sign!r}: dtype in ('float32', 'float16')")
        left, sign, right = right, _TURNED[sign], left
    kind = left.kind
    if isinstance(right, Property):
        if kind != "number" or right.kind != "number":
            refuse(right.at, "two properties can be compared only where both are numbers")
        if sign not in _TURNED:
            refuse(right.at, f"put values to the right of {sign!r}, not a property")
        return PropertyTest(left, sign, right)
    wanted = _wanted(kind, sign)
    if wanted is None:
        refuse(left.at, f"{left} is a {kind}, to which {sign!r} does not apply")
    is_right, words = wanted
    if not is_right(right.value):
        refuse(right.at, f"{left} is compared with {words}, not with {_shown(right.value)}")
    return PropertyTest(left, sign, right)


def _shown(value: Value) -> str:
    return repr(value) if not isinstance(value, tuple) else f"({', '.join(map(repr, value))})"


def _is_text(value: object) -> bool:
    return type(value) is str


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _is_shape(value: object) -> bool:
    return isinstance(value, tuple) and all(type(item) is int for item in value)


def _wanted(kind: str, sign: str) -> tuple[_Check, str] | None:
    """Return what stands on the right of *sign* behind a property of this kind; None where nothing may."""
    if sign in ("in", "not in"):
        one = {"text": _is_text, "number": _is_number}.get(kind)
        words = f"some {kind}s in brackets"
        return None if one is None else (lambda value: isinstance(value, tuple) and all(map(one, value)), words)
    if sign in ("like", "not like"):
        return (_is_text, "a pattern in quotes, such as 'torch.*'") if kind == "text" else None
    if sign in _ORDERED and kind != "number":
        return None
    return {
        "text": (_is_text, "a text in quotes"),
        "number": (_is_number, "a number"),
        "shape": (_is_shape, "whole numbers in brackets, such as (32, 10) or (3,)"),
        "flag": (lambda value: type(value) is bool, "True or False"),
    }[kind]
