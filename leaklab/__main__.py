"""``python -m leaklab``: the same as the ``leaklab`` command."""

import sys

from leaklab.cli import main

if __name__ == "__main__":
    sys.exit(main())
