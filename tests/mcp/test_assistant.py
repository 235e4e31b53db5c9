"""The official client goes an assistant's whole way, and asks what nobody should: each failure is one sentence."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("mcp.client.client", reason="needs leaklab[mcp], the official SDK")

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters

import leaklab
from leaklab.errors import LeaklabError
from leaklab.mcp.tools import LIMIT_BYTES, Tools

pytestmark = pytest.mark.untraced
HELD = [bytearray(3_000_000)]


class Answer(NamedTuple):
    text: str
    is_error: bool


class Assistant:
    """Asks a server; every answer is small."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self._portal, self._client = portal, client

    def __call__(self, tool: str, **arguments: Any) -> Answer:
        result = self._portal.call(self._client.call_tool, tool, arguments)
        (content,) = result.content
        assert len(content.text.encode()) <= LIMIT_BYTES
        return Answer(content.text, bool(result.is_error))

    def fails(self, tool: str, **arguments: Any) -> str:
        """Return the sentence with which the call fails."""
        answer = self(tool, **arguments)
        assert answer.is_error, answer.text
        assert answer.text.strip()
        assert "\n" not in answer.text
        assert "Traceback" not in answer.text
        return answer.text

    def descriptions(self) -> dict[str, str]:
        listed = self._portal.call(self._client.list_tools)
        return {tool.name: tool.description or "" for tool in listed.tools}


IMPATIENT = "import sys, leaklab.mcp.server as s; s._GRACE_SECONDS = 2; from leaklab.cli import main; sys.exit(main())"


def parameters(folder: Path, *command: str) -> StdioServerParameters:
    # One thread: the programs are tiny, and threads that wait for work would take it from other tests.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    arguments = [*command, "mcp", "--root", str(folder)]
    return StdioServerParameters(command=sys.executable, args=arguments, env=environment, cwd=folder)


def served(folder: Path, seconds: float, *command: str) -> Iterator[Assistant]:
    server = parameters(folder, *(command or ("-m", "leaklab")))
    server.args += ["--timeout", str(seconds)]
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Client(server)) as client:
        yield Assistant(portal, client)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def ask(folder: Path) -> Iterator[Assistant]:
    yield from served(folder, 200)


def notebook(*cells: str) -> str:
    """Return a notebook of these code cells."""
    made = [
        {"cell_type": "code", "id": f"c{n}", "source": text, "metadata": {}, "outputs": [], "execution_count": None}
        for n, text in enumerate(cells)
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


class Case(NamedTuple):
    """A program that leaks; what an assistant asks; the line that it changes.

    Attributes:
        is_quick: Whether it is asked by day. At night: a plain function, and a notebook's cell without a magic.
    """

    file: str
    text: str
    asked: dict[str, Any]
    before: str
    after: str
    is_quick: bool = True


CASES = [
    Case(
        "train.py",
        "import torch\nhistory = []\nnet = torch.nn.Linear(64, 1)\n\n\ndef step():\n"
        "    loss = net(torch.randn(32, 64)).pow(2).mean()\n    loss.backward()\n    history.append(loss)\n",
        {"function": "step"},
        "    history.append(loss)",
        "    history.append(loss.item())",
        is_quick=False,
    ),
    Case(
        "server.py",
        "class Server:\n    def __init__(self):\n        self.answers = {}\n        self.last = None\n\n"
        "    def handle(self):\n        answer = [bytearray(4000)]\n        self.answers[id(answer)] = answer\n"
        "        self.last = answer\n\n\nserver = Server()\n",
        {"function": "server.handle"},
        "        self.answers[id(answer)] = answer",
        "        self.answers = {id(answer): answer}",
    ),
    Case(
        "script.py",
        "import torch\n\nnet = torch.nn.Linear(8, 512)\nseen = globals().setdefault('seen', [])\n"
        "out = net(torch.ones(64, 8))\nseen.append(out)\nprint(len(seen), 'of', __file__)\n",
        {},
        "seen.append(out)",
        "seen[:] = [out.detach()]",
    ),
    Case(
        "hooks.ipynb",
        notebook(
            "%matplotlib inline\nimport torch\nnet = torch.nn.Linear(32, 512)",
            "big = torch.ones(400)\nhandle = net.register_forward_hook(lambda *a: big.sum() and None)\n"
            "out = net(torch.ones(4, 32)).detach()\n",
        ),
        {"cell": 2},
        "out = net(torch.ones(4, 32)).detach()\\n",
        "out = net(torch.ones(4, 32)).detach()\\nhandle.remove()\\n",
        is_quick=False,
    ),
    Case(
        "bus.ipynb",
        notebook(
            "%matplotlib inline\nclass Bus:\n    def __init__(self):\n        self.listeners = []\n"
            "    def emit(self, word):\n"
            "        for one in self.listeners:\n            one(word)\nbus = Bus()",
            "%%leakcheck --name bus\nrows = [bytearray(5000)]\nbus.listeners.append(lambda word: len(rows[0]))\n"
            "bus.emit('x')",
            "raise RuntimeError('the cells below the one that is checked are not run')",
        ),
        {"cell": 2},
        "bus.emit('x')",
        "bus.emit('x')\\nbus.listeners.pop()",
    ),
]


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.file, marks=() if case.is_quick else pytest.mark.nightly) for case in CASES],
)
def test_an_assistant_checks_reads_proposes_tries_and_verifies(ask, folder, case):
    file = folder / case.file
    file.write_text(case.text)
    found = ask("check", path=case.file, **case.asked, seconds=5).text
    assert found.startswith("# leak: `")
    assert "\n## What would count as cured\n" in found or "read_more(" in found
    before = found.rpartition("This report is called ")[2].partition(".")[0]
    assert ask("read_report", report=before).text[:80] == found[:80]

    changed = case.text.replace(case.before, case.after)
    assert changed != case.text
    old, new = (
        json.loads(text)["cells"][case.asked["cell"] - 1]["source"] if "cell" in case.asked else text
        for text in (case.text, changed)
    )
    tried = ask("try_change", report=before, change=diff(old, new)).text
    assert tried.startswith("cured: "), tried
    assert file.read_text() == case.text

    file.write_text(changed)
    verified = ask("check", path=case.file, **case.asked, seconds=5).text
    assert verified.startswith("# clean: "), verified
    after = verified.rpartition("This report is called ")[2].partition(".")[0]
    assert "fixed" in ask("compare", before=before, after=after).text


def diff(old: str, new: str) -> str:
    import difflib

    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "a/this cell", "b/this cell", lineterm="", n=1)
    return "\n".join(lines)


def test_every_tool_says_what_it_runs(ask):
    described = ask.descriptions()
    assert sorted(described) == [
        "check", "compare", "cuda_snapshots", "find", "heap_shape", "read_more", "read_report", "try_change",
        "why_alive",
    ]  # fmt: skip
    assert all("Runs" in words or "it is read" in words for words in described.values())


def test_a_saved_heap_is_asked_and_nothing_runs(ask, folder):
    leaklab.snapshot(references=True).save(folder / "now.heap")
    assert "objects" in ask("heap_shape", path="now.heap").text
    assert "HELD" in ask("find", path="now.heap", where="bytes > 2 MiB").text
    assert ask("why_alive", path="now.heap", expression="HELD").text.startswith("ALIVE")


def test_a_whole_notebook_runs_once_with_its_own_checks(ask, folder):
    text = notebook("%load_ext leaklab\nrows = []", "%%leakcheck -n 16 --no-cure\nrows.append([bytearray(900)])")
    (folder / "whole.ipynb").write_text(text)
    answer = ask("check", path="whole.ipynb")
    assert "1 check: 1 leak" in answer.text
    assert "one cell" in ask.fails("try_change", report=answer.text.split("called ")[-1].partition(".")[0], change="x")


def test_a_program_is_asked_why_something_is_alive(ask, folder):
    (folder / "held.py").write_text("rows = [[1, 2, 3]]\nprint('x' * 10 ** 6)\n")
    assert "rows" in ask("why_alive", path="held.py", expression="rows[0]").text


def test_what_lies_outside_of_the_folder_is_not_read(ask, folder, tmp_path):
    tools = Tools(folder, tmp_path, 10)
    secret = tmp_path / "secret.py"
    secret.write_text("raise ValueError('secret')")
    (folder / "link.py").symlink_to(secret)
    (folder / "up").symlink_to(tmp_path)
    (folder / "circle.py").symlink_to(folder / "circle.py")
    for name in (
        "link.py",
        "up/secret.py",
        str(secret),
        f"../{tmp_path.name}/secret.py",
        "circle.py",
        "a\0b",
        "x" * 9999,
    ):
        for ask_for in (tools.check, tools.read_report, tools.heap_shape, lambda name: tools.cuda_snapshots([name])):
            with pytest.raises(LeaklabError, match="in the folder of this server"):
                ask_for(name)
    sentence = ask.fails("check", path="link.py")
    assert "in the folder of this server" in sentence
    assert "'secret'" not in sentence
    assert "in the folder of this server" in ask.fails("read_report", report=str(secret))
    assert "in the folder of this server" in ask.fails("cuda_snapshots", paths=["up/secret.py"])
    assert "check has made no report" in ask.fails("try_change", report="../report-1", change="x")
    assert "there is no answer" in ask.fails("read_more", answer="../answer", offset=0)
    assert "there is no file 'no.py'" in ask.fails("check", path="no.py")
    os.mkfifo(folder / "pipe.py")
    assert "there is no file" in ask.fails("check", path="pipe.py")


HOSTILE = {
    "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)": "was killed by SIGKILL",
    "import os\nos._exit(7)": "ended its process with 7",
    "import sys\nsys.exit('enough')": "SystemExit: enough",
    "import ctypes\nctypes.string_at(0)": "was killed by SIGSEGV",
    "def f(:": "SyntaxError",
    "raise ValueError('a\\n\\nb' * 10000)": "ValueError: a b",
    "class E(Exception):\n    def __str__(self): raise self\nraise E": "E",
    "import os\nos.killpg(0, 9)": "was killed by SIGKILL",
}
CHECKED = ["import os\nos._exit(7)", "import sys\nsys.exit('enough')", "def f(:"]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_program_that_ends_itself_is_told_in_one_sentence(ask, folder, text):
    (folder / "hostile.py").write_text(text)
    assert HOSTILE[text] in ask.fails("why_alive", path="hostile.py", expression="1")
    assert len(ask.descriptions()) == 9


@pytest.mark.parametrize(
    "text", [pytest.param(text, marks=() if text in CHECKED else pytest.mark.nightly) for text in HOSTILE]
)
def test_so_is_one_that_ends_itself_while_it_is_checked(ask, folder, text):
    (folder / "hostile.py").write_text(text)
    assert HOSTILE[text] in ask.fails("check", path="hostile.py")


def test_an_empty_program_is_told_in_one_sentence(ask, folder):
    (folder / "empty.py").write_text("")
    assert "is empty" in ask.fails("check", path="empty.py")


def test_wrong_arguments_are_told_in_one_sentence(ask, folder):
    (folder / "fine.py").write_text("def f(): pass\nasync def g(): pass\nx = 3\n")
    assert "has no function 'missing'" in ask.fails("check", path="fine.py", function="missing")
    assert "needs a function to call" in ask.fails("check", path="fine.py", function="x")
    assert "coroutine" in ask.fails("check", path="fine.py", function="g")
    assert "path: " in ask.fails("check", path=3)
    assert "path: " in ask.fails("check")
    assert "has no code cell 5" in ask.fails("check", path="fine.py", cell=5)
    assert ask.fails("find", path="fine.py", where="bytes >")
    assert ask.fails("compare", before="fine.py", after="fine.py")
    assert ask.fails("heap_shape", path="fine.py")
    assert "Unknown tool" in ask.fails("nothing")


def test_a_huge_answer_comes_in_parts_of_which_nothing_is_lost(ask, folder):
    (folder / "many.py").write_text("import torch\nrows = [torch.zeros(n) for n in range(1, 3000)]\n")
    answer = ask("find", path="many.py", where="type == 'torch.Tensor'")
    (folder / "huge.py").write_text(f"{'word' * 900} = [[1]]\n{'x' * 3000} = {'word' * 900}[0]\n")
    first = ask("why_alive", path="huge.py", expression="x" * 3000)
    assert "read_more(" in first.text + answer.text
    told, n_parts = first.text, 1
    while "read_more(" in told.rpartition("\n")[2]:
        more = told.rpartition("\n")[2]
        name, offset = more.split('"')[1], int(more.partition("offset=")[2].partition(")")[0])
        told = ask("read_more", answer=name, offset=offset).text
        n_parts += 1
    assert n_parts > 1
    assert "objects looked at" in told


def test_a_program_that_hangs_is_ended_and_the_next_call_is_answered(folder):
    (folder / "hang.py").write_text(
        textwrap.dedent("""\
        import subprocess, sys, time
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        while True:
            try:
                time.sleep(1)
            except BaseException:
                pass
        """)
    )
    for impatient in served(folder, 12, "-c", IMPATIENT):
        told = impatient.fails("why_alive", path="hang.py", expression="1")
        assert "did not end within 12 s and was killed" in told
        assert "there is no answer called 'any'" in impatient.fails("read_more", answer="any", offset=0)


def test_without_the_package_the_extra_is_named(folder):
    import subprocess

    code = "import sys; sys.modules['mcp'] = None; from leaklab.cli import main; sys.exit(main(['mcp']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 1
    assert "pip install 'leaklab[mcp]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    from leaklab.cli import main

    assert main(["mcp", "--root", str(tmp_path / "no")]) == 1


def test_a_client_that_cancels_ends_the_program(folder):
    (folder / "slow.py").write_text("import time\nopen('started', 'w').close()\ntime.sleep(300)\n")

    async def cancelled() -> None:
        async with Client(parameters(folder, "-m", "leaklab")) as client:
            with anyio.move_on_after(60) as scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(client.call_tool, "check", {"path": "slow.py"})
                    while not (folder / "started").exists():  # noqa: ASYNC110 - of another process
                        await anyio.sleep(0.2)
                    group.cancel_scope.cancel()
            assert not scope.cancelled_caught
            (folder / "slow.py").write_text("x = [1]")
            result = await client.call_tool("why_alive", {"path": "slow.py", "expression": "x"})
            assert not result.is_error

    anyio.run(cancelled)
