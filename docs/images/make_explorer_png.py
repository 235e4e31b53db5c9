"""Keep the pictures that the browser test of the explorer takes; needs the `test` extra and Chromium.

Run it as ``python docs/images/make_explorer_png.py``.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

FOLDER = Path(__file__).parent
TEST = FOLDER.parent.parent / "tests" / "browser" / "test_explorer.py"
STEPS = "graph_is_drawn or node_is_opened or dark_theme or memory_is_walked or objects_are_searched or both_themes"
NAMES = {
    "explorer-light.png": "explorer-light.png",
    "explorer-dark.png": "explorer-dark.png",
    "explorer-memory-light-1500.png": "explorer-memory.png",
}
COLOURS = 256  # fewer of them turn the red of a verdict into the yellow of a node


def main() -> None:
    """Run the test's first steps, in light and in dark, and write their pictures with a palette beside this file."""
    with tempfile.TemporaryDirectory() as shots:
        wanted = {"LEAKLAB_SHOTS": shots, "LEAKLAB_REQUIRE_BROWSER": "1"}
        command = [sys.executable, "-m", "pytest", "-q", TEST, "-k", STEPS]
        subprocess.run(command, env=os.environ | wanted, check=True)  # noqa: S603 - nothing in it is anybody's input
        for shot, name in NAMES.items():
            with Image.open(Path(shots, shot)) as image:
                flat = image.convert("RGB").quantize(COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
            flat.save(FOLDER / name, optimize=True)


if __name__ == "__main__":
    main()
