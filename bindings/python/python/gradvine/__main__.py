"""The command line: ``python -m gradvine``, or the script ``gradvine``."""

from __future__ import annotations

import sys

from . import _gradvine


def main() -> int:
    """Runs the command with the arguments of this process; returns the exit code."""
    return _gradvine.command(sys.executable, ["-m", "gradvine"], sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
