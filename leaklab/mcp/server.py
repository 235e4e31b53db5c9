"""The server: it speaks with the client, and lets a process of its own answer each call, one at a time."""

from __future__ import annotations

import functools
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import ValidationError

from leaklab.mcp.tools import ANSWER, CALL, TOOLS, Tools
from leaklab.version import __version__

_CHILD = "from leaklab.mcp.tools import main; main()"
_GRACE_SECONDS = 15.0
"""So long an interrupted program may still say what was seen of it."""
_INSTRUCTIONS = (
    "Find memory leaks of Python and PyTorch programs and prove what ends them: check a program, read its report, try"
    " a change, write it into the file, check again, compare both reports. All paths lie in one folder. A program that"
    " you name is run by check, try_change, why_alive and find; nothing else runs anything."
)


class _ToolServer(MCPServer[Any]):
    """A server that says every failure in one sentence."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            words = str(error).removeprefix(f"Error executing tool {name}: ")
            if isinstance(error.__cause__, ValidationError):
                words = "; ".join(f"{one['loc'][0]}: {one['msg']}" for one in error.__cause__.errors())
            raise ToolError(" ".join(words.split())) from error.__cause__


class _Calls:
    """Has calls answered by a child each.

    Args:
        root: The folder of the programs.
        store: That of the reports.
        seconds: What a call may take.
    """

    def __init__(self, root: Path, store: Path, seconds: float) -> None:
        self._root, self._store, self._seconds = root, store, seconds
        self._turn = anyio.Lock()  # two programs at once would measure each other's processor

    def tool(self, called: Callable[..., str]) -> Callable[..., Awaitable[str]]:
        """Return *called*, with its name, its parameters and its description, so that a child answers it."""

        @functools.wraps(called)
        async def answered(**arguments: Any) -> str:
            async with self._turn:
                return await self._answer(called.__name__, arguments)

        return answered

    async def _answer(self, tool: str, arguments: dict[str, Any]) -> str:
        call = {"tool": tool, "arguments": arguments, "root": str(self._root), "seconds": self._seconds}
        file = self._store / ANSWER
        file.unlink(missing_ok=True)
        (self._store / CALL).write_text(json.dumps(call), encoding="utf-8")
        process = await anyio.open_process(
            [sys.executable, "-c", _CHILD],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # what a program prints is no answer
            stderr=subprocess.DEVNULL,
            cwd=self._store,
            start_new_session=True,
        )
        try:
            is_late = await self._wait(process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and whatever the program has started
            with anyio.CancelScope(shield=True):
                await process.aclose()
        answer = json.loads(file.read_bytes()) if file.is_file() else {"error": self._ended(process, is_late=is_late)}
        if "text" not in answer:
            raise ToolError(answer["error"])
        return str(answer["text"])

    async def _wait(self, process: Process) -> bool:
        """Wait until *process* has answered; return whether it took too long, and was interrupted."""
        with anyio.move_on_after(self._seconds):
            await process.wait()
            return False
        process.send_signal(signal.SIGINT)
        with anyio.move_on_after(_GRACE_SECONDS):
            await process.wait()
        return True

    def _ended(self, process: Process, *, is_late: bool) -> str:
        if is_late:
            return f"the program did not end within {self._seconds:g} s and was killed: allow more with --timeout"
        status = process.returncode or 0
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended its process with {status}"
        return f"the program {how}, so there is no answer; was there enough memory?"


def serve(root: Path, seconds: float) -> None:
    """Answer the client on standard input and output, until it goes.

    Args:
        root: No file outside of this folder is read.
        seconds: What a call may take.
    """
    with tempfile.TemporaryDirectory(prefix="leaklab-mcp-", ignore_cleanup_errors=True) as name:
        store = Path(name)
        server = _ToolServer("leaklab", version=__version__, instructions=_INSTRUCTIONS, log_level="ERROR")
        calls = _Calls(root.resolve(), store, seconds)
        tools = Tools(root, store, seconds)
        for tool in (getattr(tools, name) for name in TOOLS):
            description = inspect.cleandoc(tool.__doc__)
            server.add_tool(calls.tool(tool), description=description, structured_output=False)
        server.run()
