"""The same surroundings for every guard."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from making import FAKE_DOT, RECORDS
from matplotlib.figure import Figure
from PIL import Image

PIXEL = Image.new("RGBA", (1, 1))


@pytest.fixture(scope="session")
def fake_dot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fake_graphviz")
    (folder / "dot").write_text(FAKE_DOT)
    (folder / "dot").chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def neutral_surroundings(fake_dot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw with stand-ins for Graphviz and for the pixels of plots, in the folder of the records."""
    monkeypatch.setenv("PATH", f"{fake_dot}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(RECORDS)
    monkeypatch.setattr(Figure, "savefig", lambda _figure, file, **_options: PIXEL.save(file, "PNG"))
