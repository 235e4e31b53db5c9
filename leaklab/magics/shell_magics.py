"""What the magics know of the shell that they are registered in."""

from __future__ import annotations

from typing import Any

from IPython.core.magic import Magics


class ShellMagics(Magics):
    """Magics that read and set the user's variables."""

    @property
    def _namespace(self) -> dict[str, Any]:
        shell: Any = self.shell
        namespace: dict[str, Any] = shell.user_ns
        return namespace
