"""The public face of leaklab is the noted one: names, signatures, fields, options, formats of files."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import inspect
import json
import re
import typing
import warnings
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import numpy as np
import pytest
from making import GOLDEN, PUBLIC, RECORDS, WRITES, all_causes, assert_golden, load, names, paths_of, rebuilt
from shell import open_shell

import leaklab
from leaklab.cli import main

PAGES = {"api.txt", "causes.txt", "commands.txt", "errors.txt", "json_fields.txt", "magics.txt"}
SHOWS = ("__call__", "__enter__", "__exit__", "__iter__", "__str__", "_ipython_display_", "_repr_mimebundle_",
         "_repr_png_", "_render_traceback_")  # fmt: skip


def is_ours(kind: Any) -> bool:
    return inspect.isclass(kind) and kind.__module__.partition(".")[0] == "leaklab"


def words_of(annotation: Any) -> str:
    """Return an annotation without the modules in it."""
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)


def value_words(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(str(value) if isinstance(value, PurePath) else value))


def signature(function: Any) -> str:
    """Return the signature of *function*, every type by its bare name."""
    told, kinds = [], inspect.Parameter
    parameters = list(inspect.signature(function).parameters.values())
    for number, one in enumerate(parameters):
        if one.kind is kinds.KEYWORD_ONLY and not any(
            before.kind in (kinds.KEYWORD_ONLY, kinds.VAR_POSITIONAL) for before in parameters[:number]
        ):
            told.append("*")
        sign = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}.get(one.kind, "")
        annotation = words_of(one.annotation)
        default = "" if one.default is kinds.empty else f" = {value_words(one.default)}"
        told.append(f"{sign}{one.name}{': ' if annotation else ''}{annotation}{default}")
    returned = words_of(inspect.signature(function).return_annotation)
    return f"({', '.join(told)}){' -> ' if returned else ''}{returned}"


def class_lines(kind: type, attributes: set[str]) -> Iterator[str]:
    """Yield what is public of a class, wherever in its tree it is defined; *attributes* are those of its instances."""
    if issubclass(kind, enum.Enum):
        yield from (f"  {member.name} = {member.value!r}" for member in kind)
        return
    fields = {field.name: field for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}
    for name, field in fields.items():
        default = "" if field.default is dataclasses.MISSING else f" = {value_words(field.default)}"
        yield f"  field {name}: {words_of(field.type)}{default}"
    ours = [base for base in kind.__mro__ if is_ours(base)]
    members = {name: value for base in reversed(ours) for name, value in vars(base).items()}
    if not fields and "__init__" in members:
        yield f"  made by {signature(kind)}"
    yield from (f"  attribute {name}" for name in sorted(attributes - set(members)))
    for name, value in sorted(members.items()):
        is_of_another = inspect.isfunction(value) and value.__module__.partition(".")[0] != "leaklab"
        if not (name.startswith("_") or name in fields or inspect.ismemberdescriptor(value) or is_of_another):
            yield f"  {member_words(name, value)}"
    special = [name for name in SHOWS if name in members]
    if special:
        yield f"  also {', '.join(special)}"


def member_words(name: str, value: Any) -> str:
    if inspect.isfunction(value):
        return f"{name}{signature(value)}"
    if isinstance(value, (classmethod, staticmethod)):
        return f"{type(value).__name__} {name}{signature(value.__func__)}"
    getter = getattr(value, "fget", None) or getattr(value, "func", None)  # of a property, of a cached one
    if getter is None:
        return f"{name}: {type(value).__name__}"
    return f"property {name}: {words_of(inspect.signature(getter).return_annotation)}"


def given_back() -> list[Any]:
    """What users get from public functions: reports of stored records, and what those give in turn."""
    views = [load(name) for name in names("*") if name.endswith((".npz", ".pickle")) or name.startswith(
        ("check_", "notebook_", "whyalive_", "autograd_", "ranks_", "kernel_"))]  # fmt: skip
    views += [rebuilt(name) for name in names("memdiff_*") + names("run_*")]
    check, notebook = load("check_two_leaks.json"), load("notebook_before.json")
    snapshot = load("cuda_oom.pickle")
    views += [check.compare(check), notebook.compare(notebook), check.plot(), check.graph()]
    views += [load("whyalive_held.json").graph(), load("autograd_tensor.json").graph(), snapshot.plot()]
    views += [leaklab.compare_cuda_snapshots([snapshot, snapshot]), leaklab.record_cuda(), leaklab.watch("block")]
    return views


def classes_within(views: list[Any]) -> dict[type, set[str]]:
    """The classes of leaklab in *views*, in their fields and properties, each with the attributes of its instances."""
    found: dict[type, set[str]] = {}
    seen: dict[int, Any] = {}  # kept: an address is used
    waiting = list(views)
    while waiting:
        value = waiting.pop()
        if isinstance(value, (tuple, list)):
            waiting += value
        elif is_ours(type(value)) and id(value) not in seen:
            seen[id(value)] = value
            kind = type(value)
            own = {name for name in getattr(value, "__dict__", ()) if not name.startswith("_")}
            found.setdefault(kind, set())
            if not isinstance(value, enum.Enum):
                found[kind] |= own if kind.__name__ != "ReportFigure" else set()
                waiting += [getattr(value, name) for name in own | readable(kind)]
    for kind in list(found):
        found.update({named: found.get(named, set()) for named in named_by(kind)})
    return found


def readable(kind: type) -> set[str]:
    """The public fields and properties of a class; not those that draw."""
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    members = {name: value for base in kind.__mro__ if is_ours(base) for name, value in vars(base).items()}
    made = {name for name, value in members.items() if isinstance(value, property) or hasattr(value, "func")}
    return {name for name in fields | made if not name.startswith("_")} - {"svg", "markup"}


def named_by(kind: type) -> set[type]:
    """The classes of leaklab in the types of a record's fields."""
    if not dataclasses.is_dataclass(kind):
        return set()
    waiting, found = list(typing.get_type_hints(kind).values()), set()
    while waiting:
        hint = waiting.pop()
        waiting += typing.get_args(hint)
        found |= {hint} if is_ours(hint) else set()
    return found


def test_public_names_and_signatures():
    lines = ["# leaklab.__all__"]
    public = {name: getattr(leaklab, name) for name in leaklab.__all__}
    for name, value in sorted(public.items()):
        lines.append(f"class {name}" if inspect.isclass(value) else f"{name}{signature(value)}")
    lines += ["", "# old names that still work", *(f"{old} = {new}" for old, new in sorted(leaklab._OLD_NAMES.items()))]
    classes = {value: set() for value in public.values() if inspect.isclass(value)}
    classes |= classes_within(given_back())
    classes[typing.get_type_hints(leaklab.cut_cycles)["return"]] = set()
    lines += ["", "# what is public of these classes, and of all that they give"]
    for kind in sorted(classes, key=lambda kind: (kind.__name__, sorted(vars(kind)))):
        if not issubclass(kind, BaseException):
            lines += ["", f"class {kind.__name__}", *class_lines(kind, classes[kind])]
    assert_golden(PUBLIC / "api.txt", "\n".join(lines) + "\n")


def test_errors():
    kinds = [value for name in leaklab.__all__ if is_ours(value := getattr(leaklab, name))]
    errors = [kind for kind in kinds if issubclass(kind, BaseException)]
    lines = [f"{kind.__name__} is a {', '.join(base.__name__ for base in kind.__mro__[1:-1])}" for kind in errors]
    assert_golden(PUBLIC / "errors.txt", "\n".join(lines) + "\n")


def test_causes():
    """Each slug with its words, as reports say them."""
    fields = json.loads((RECORDS / "check_graph_kept.json").read_text("utf-8"))
    lines = []
    for slug in all_causes():
        fields["leaks"][0]["cause"] = slug
        text = str(leaklab.LeakReport.from_json(json.dumps(fields)))
        lines.append(re.search(r"\n  cause +(.*)", text)[1])
    assert_golden(PUBLIC / "causes.txt", "\n".join(lines) + "\n")


def test_fields_of_files():
    forms: dict[str, dict[str, set[str]]] = {}
    files = [*RECORDS.glob("*.json"), *GOLDEN.glob("compare_*.json")]
    for file in sorted(files):
        value = json.loads(file.read_text("utf-8"))
        title = f"{value.get('format', 'a training run (no format of its own)')}, schema {value['schema']}"
        for path, kind in paths_of(value, ""):
            forms.setdefault(title, {}).setdefault(path, set()).add(kind)
    lines = []
    for title, fields in sorted(forms.items()):
        lines += [f"# {title}", *(f"{path}: {' | '.join(sorted(kinds))}" for path, kinds in sorted(fields.items())), ""]
    with np.load(RECORDS / "moment_after.npz") as file:
        lines.append("# a moment, .npz")
        lines += [f"{name}: {file[name].dtype}" for name in sorted(file.files)]
        for name in ("header", "words"):
            packed = json.loads(file[name].tobytes())
            lines += sorted({f"{name}{path}: {kind}" for path, kind in paths_of(packed, "")})
    assert_golden(PUBLIC / "json_fields.txt", "\n".join(lines) + "\n")


def action_line(action: argparse.Action) -> str:
    """Return an option or argument with all that argparse was told of it."""
    name = ", ".join(action.option_strings) or action.dest
    told = {
        "takes": "nothing" if action.nargs == 0 else action.nargs,
        "metavar": action.metavar,
        "choices": action.choices and ", ".join(map(str, action.choices)),
        "default": None if action.default in (None, argparse.SUPPRESS) else value_words(action.default),
    }
    facts = "; ".join(f"{key} {value}" for key, value in told.items() if value is not None)
    return f"  {name} [{facts}]: {' '.join((action.help or '').split())}"


def test_magics_and_their_options():
    lines = []
    with open_shell() as run:
        from IPython import get_ipython

        shell = get_ipython()
        loaded = {kind: dict(magics) for kind, magics in shell.magics_manager.magics.items()}
        run("%unload_ext leaklab")
        plain = shell.magics_manager.magics
        ours = {kind: sorted(set(magics) - set(plain[kind])) for kind, magics in loaded.items()}
        lines += [f"{kind} magics: {', '.join(found)}" for kind, found in ours.items()]
        for name in sorted({*ours["line"], *ours["cell"]}):
            magic = loaded["line"].get(name) or loaded["cell"][name]
            parser = getattr(magic, "parser", None)  # one has words of its own instead
            told = magic.__doc__ if parser is None else parser.description
            lines += ["", f"# {name}", inspect.cleandoc(told or ""), ""]
            lines += [action_line(action) for action in parser._actions] if parser else []
        run("%load_ext leaklab")
        lines += ["", "# %config LeakLab"]
        (configured,) = [one for one in shell.configurables if type(one).__name__ == "LeakLab"]
        for name, trait in sorted(type(configured).class_traits(config=True).items()):
            lines.append(f"  {name}: {type(trait).__name__}, default {trait.default_value!r}: {trait.help}")
        lines += ["", "# completions"]
        for typed in ("%%leakcheck --", "%leakreport --", "%memdiff --", "%whyalive --", "%autograd --", "%leaks --"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PendingDeprecationWarning)  # other front ends ask this way
                _, found = shell.complete(None, typed, len(typed))
            lines.append(f"  {typed!r}: {', '.join(sorted(one for one in found if one.startswith('-')))}")
    assert_golden(PUBLIC / "magics.txt", "\n".join(lines) + "\n")


class _CaughtError(Exception):
    """Ends the command once its parser is known."""


def parser_of_the_command(monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    """Return the parser that the command line is about to be parsed with."""
    caught = []

    def catch(parser, *_arguments):
        caught.append(parser)
        raise _CaughtError

    with monkeypatch.context() as patched:
        patched.setattr(argparse.ArgumentParser, "parse_args", catch)
        with pytest.raises(_CaughtError):
            main(["demo"])
    return caught[0]


def command_lines(command: argparse.ArgumentParser) -> Iterator[str]:
    """Yield what a command says of itself, its options, and the same of each command below it."""
    yield from (" ".join(command.description.split()), "")
    for action in command._actions:
        if not isinstance(action, argparse._SubParsersAction):
            yield action_line(action)
            continue
        words = {choice.dest: choice.help for choice in action._choices_actions}
        for name, below in sorted(action.choices.items()):
            yield from ("", f"# {below.prog}: {words[name]}", *command_lines(below))


def test_commands_and_their_options(monkeypatch):
    parser = parser_of_the_command(monkeypatch)
    (commands,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    lines = [f"# {parser.prog}", " ".join(parser.description.split()), ""]
    lines += [action_line(action) for action in parser._actions if action is not commands]
    words = {choice.dest: choice.help for choice in commands._choices_actions}
    for name, command in sorted(commands.choices.items()):
        lines += ["", f"# {command.prog}: {words[name]}", *command_lines(command)]
    assert_golden(PUBLIC / "commands.txt", "\n".join(lines) + "\n")


def test_no_page_is_left_over():
    if WRITES:
        pytest.skip("pages are written")
    assert {path.name for path in PUBLIC.iterdir()} == PAGES
