"""The switch that the program has for letting go, and that the run leaves off: ``epoch(close=False)``."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from leaklab.cure.case import Case, name_of
from leaklab.cure.ends import call_site, statements
from leaklab.cure.source import FUNCTIONS, Proposal, SourceText
from leaklab.explain.counterparts import OF_RESULTS, UNDO_FUNCTIONS

Function = ast.FunctionDef | ast.AsyncFunctionDef
_LESS = frozenset({"str", "repr", "detach", "item", "tolist", "clone"})
"""What makes less of a value, where the switch chooses between both."""
_ENDS = UNDO_FUNCTIONS | {*OF_RESULTS, "clear", "discard", "add_done_callback"}
"""What lets go of something."""


def switched_on(case: Case) -> Iterator[Proposal]:
    """Yield how the run asks a function to let go, which has a parameter for that: ``epoch(close=True)``.

    The parameter is False unless it is given, and what stands under it ends what leaks, or keeps less of it.
    """
    concerned: dict[ast.AST, set[str]] = defaultdict(set)  # the names in the lines of each function that leak
    of: dict[ast.AST, SourceText] = {}
    for source, statement in statements(case):
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)} | {case.name}
        for one in source.above(statement):
            concerned[one] |= names
            of[one] = source
    for function, source in of.items():
        if not isinstance(function, FUNCTIONS):
            continue
        for flag in _switches(function, concerned[function]):
            site = call_site(case, source, function)
            calls = [] if site is None else [one for one in ast.walk(site.statement) if isinstance(one, ast.Call)]
            call = next((one for one in calls if name_of(one.func) == function.name), None)
            if site is None or call is None or flag in site.names:
                continue
            if any(word.arg in (flag, None) for word in call.keywords):
                continue
            text = site.source.text_of(call)
            given = f"{text[:-1].rstrip().rstrip(',')}, " if call.args or call.keywords else text[:-1]
            words = f"The program has a switch for that: `{flag}=True`."
            yield from case.instead(words, site.source, call, f"{given}{flag}=True)")
            return


def _switches(function: Function, concerned: set[str]) -> Iterator[str]:
    """Yield the parameters of *function* that are False unless given, and under which one of *concerned* is let go."""
    given = [*function.args.posonlyargs, *function.args.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = []
    pairs += zip(reversed(given), reversed(function.args.defaults), strict=False)
    pairs += zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    off = {arg.arg for arg, value in pairs if isinstance(value, ast.Constant) and value.value is False}
    for node in ast.walk(function):
        if not isinstance(node, (ast.If, ast.IfExp)) or not isinstance(node.test, ast.Name) or node.test.id not in off:
            continue
        under = node.body if isinstance(node, ast.If) else [node.body]
        parts = [one for part in under for one in ast.walk(part)]
        calls = {name_of(one.func) for one in parts if isinstance(one, ast.Call)}
        is_deleted = any(isinstance(one, ast.Delete) for one in parts)
        lets_go = bool(calls & _LESS) if isinstance(node, ast.IfExp) else bool(calls & _ENDS) or is_deleted
        if lets_go and any(getattr(one, "id", None) in concerned for one in parts):
            yield node.test.id
