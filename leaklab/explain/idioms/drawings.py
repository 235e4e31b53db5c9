"""What every run draws into the same axes: what earlier runs have drawn goes before the next run draws."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from leaklab.cure.case import Case
from leaklab.cure.ends import statements
from leaklab.cure.live import newest
from leaklab.cure.source import Proposal, SourceText
from leaklab.explain.counterparts import DRAWN
from leaklab.explain.idioms.inverses import live_owner
from leaklab.runtime.objects import type_name


def drawn_anew(case: Case) -> Iterator[Proposal]:
    """Yield how what earlier runs have drawn into axes goes before the next run draws: at its end it is to be seen."""
    kind = type_name(type(newest(case.held)))
    drawn = next((name for of, name in DRAWN if kind.startswith(of)), "")
    for source, statement in statements(case) if drawn else ():
        call = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if not type_name(type(live_owner(case, source, call))).startswith("matplotlib.axes."):
            continue
        place, outer = source.text_of(call.func.value), [statement, *source.loops_around(statement)][-1]
        first = next(one for one in source.siblings(outer) if one is outer or _calls_method_of(source, one, place))
        patch, every = case.patch(), f"{place}.{drawn}"
        patch.before(source, first, [f"for old in list({every}):", "    old.remove()"])
        yield from case.proposal(f"Before it is drawn, remove what earlier runs have drawn: all of `{every}`.", patch)
        return


def _calls_method_of(source: SourceText, statement: ast.stmt, place: str) -> bool:
    calls = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(isinstance(one, ast.Attribute) and source.text_of(one.value) == place for one in calls)
