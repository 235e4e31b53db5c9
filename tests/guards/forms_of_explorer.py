"""What the explorer sends to its page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forms import form, on
from making import load, parts, paths_of

import leaklab


def explored(report: Any) -> str:
    """What the explorer sends to its page."""
    explorer = leaklab.explore(report, namespace={})
    try:
        return f"{json.dumps(explorer.widget.record, indent=1)}\n#### repr\n{explorer!r}\n"
    finally:
        explorer.close()


for file in ("check_bounded", "check_hostile", "check_two_leaks"):
    on(f"{file}.explorer.json", lambda file=file: load(f"{file}.json"), explored)


Ask = Callable[..., Any]


@contextmanager
def asking(report: Any, namespace: dict[str, Any]) -> Iterator[Ask]:
    """Give a function that asks as the page does and returns the answer."""
    explorer = leaklab.explore(report, namespace=namespace)
    widget = explorer.widget
    sent: list[dict[str, Any]] = []
    widget.send = lambda content, _buffers=None: sent.append(content)

    def ask(what: str, **arguments: Any) -> Any:
        sent.clear()
        widget._handle_custom_msg({"id": 7, "ask": what, **arguments}, [])
        accepted, answer = sent
        assert accepted == {"answer": 7, "accepted": True}
        assert answer.pop("answer") == 7
        return answer

    try:
        yield ask
    finally:
        explorer.close()


def variables() -> dict[str, Any]:
    import torch

    graph = torch.ones(3, requires_grad=True) * 2
    return {"last": [graph], "trainer": [1], "fixed": load("check_two_leaks_one_fixed.json")}


QUESTIONS: tuple[dict[str, Any], ...] = (
    {"ask": "compare", "with": "fixed"},
    {"ask": "compare", "with": "nobody"},
    {"ask": "look", "target": 0},
    {"ask": "look", "target": 0, "change": "open", "key": "nothing"},
    {"ask": "explain", "target": 0},
    {"ask": "explain", "target": 99},
    {"ask": "values", "target": 0},
    {"ask": "autograd", "target": 0},
    {"ask": "autograd", "target": 1},
    {"ask": "put", "target": 0, "name": "x"},
    {"ask": "put", "target": 0, "name": "1x"},
    {"ask": "export", "path": ""},
    {"ask": "export", "path": "(FOLDER)/report.html"},
    {"ask": "export", "path": "(FOLDER)/report.html", "sure": False},
    {"ask": "export", "path": "(FOLDER)/missing/report.html"},
    {"ask": "export_heap", "path": "heap.html"},
    {"ask": "release"},
    {"ask": "again"},
    {"ask": "draw", "dot": "digraph { a -> b }"},
    {"ask": "search", "kind": "list", "where": ""},
    {"ask": "inspect", "target": "object 1 0"},
    {"ask": "nonsense"},
)


@form("explorer_answers.txt")
def _answers(folder: Path) -> str:
    """To each question of the page the answer, without the addresses and sizes of this process."""
    told = {}
    with asking(load("check_two_leaks.json"), variables()) as ask:
        for question in QUESTIONS:
            arguments = json.loads(json.dumps(question).replace("(FOLDER)", str(folder)))
            answer = ask(arguments.pop("ask"), **arguments)
            told[json.dumps(question)] = json.dumps(answer, indent=1).replace(str(folder.resolve()), "(FOLDER)")
    return of_any_process(parts(**told))


def of_any_process(text: str) -> str:
    text = re.sub(r"object \d{6,}", "object (ADDRESS)", text)
    text = re.sub(r"[\d,]+ objects looked at; leaklab [^\"]*", "(N) objects looked at; (VERSIONS)", text)
    return re.sub(r"of [\d,]+ objects", "of (N) objects", text)


@form("explorer_memory.txt")
def _memory(_folder: Path) -> str:
    """What the page gets of the whole heap: one tensor as it is, of the rest the fields."""
    with asking(load("check_two_leaks.json"), variables()) as ask:
        memory = ask("memory")
        found = ask("search", kind="torch.Tensor", where="numel == 3 and held_by('last')")
        number = found["found"].pop("numbers")[0]
        inspected = ask("inspect", target=f"object 1 {number}")
        assert inspected["inspected"].pop("number") == number
        inspected["inspected"].pop("numbers")
        wrong = ask("search", kind="", where="bytes >")
        again = ask("memory", again=True)
        late = ask("inspect", target=f"object 1 {number}")
    (host,) = (root for name, root in memory["memory"]["devices"] if name == "host")
    told = {
        "memory": fields_of({**memory["memory"], "devices": [["host", host[:-1]]]}),
        "a row": fields_of(host[-1][0][:-1]),
        "moments": f"{memory['memory']['moment']}, then {again['memory']['moment']}",
    }
    answers = {"found": found, "inspected": inspected, "wrong": wrong, "too late": late}
    return of_any_process(parts(**told, **{name: json.dumps(one, indent=1) for name, one in answers.items()}))


@form("explorer_living_heap.txt")
def _living_heap(_folder: Path) -> str:
    """The fields of what the page gets where no report is explored."""
    kept = variables()
    explorer = leaklab.explore(namespace=kept)
    try:
        return fields_of(explorer.widget.record)
    finally:
        explorer.close()


def fields_of(value: Any) -> str:
    found: dict[str, set[str]] = {}
    for path, kind in paths_of(value, ""):
        found.setdefault(path, set()).add(kind)
    return "".join(f"{path}: {' | '.join(sorted(kinds))}\n" for path, kinds in sorted(found.items()))
