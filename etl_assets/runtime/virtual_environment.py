"""The virtual environment that pip installs into: creating one, before anything is installed.

Belongs here: what the machine's own Python runs, with nothing but its standard library. Does not belong here: what goes
into the environment (`deploy/requirements.txt`) and how (the Makefile).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from etl_assets.errors import RuntimeMissing
from etl_assets.runtime import system_packages

OLDEST_PYTHON = (3, 11)


def create(folder: Path, say: Callable[[str], None]) -> None:
    """A fresh environment of the running Python, with pip; what was there is removed.

    Debian keeps a part of `venv` in a package of its own: it is installed first where that is allowed.

    Raises:
        RuntimeMissing: This Python is too old, or lacks that part.
    """
    name = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    if sys.version_info < OLDEST_PYTHON:
        raise RuntimeMissing(
            f"{sys.executable} is {name}, and 3.11 or newer is needed",
            fix="run `make setup PYTHON=/path/to/a/newer/python3`",
        )
    if not can_create():
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        if not system_packages.install([package], say) or not can_create():
            command = system_packages.install_command({"apt-get": package})
            raise RuntimeMissing(
                f"{sys.executable} ({name}) has no working `venv` module",
                fix=f"run `{command}`, then `make setup` again" if command else f"install a complete {name}",
            )
    say(f"==> creating {folder} with {name}")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)


def can_create() -> bool:
    """Whether this Python has all of `venv`; asked in a new process, which sees what was installed just now."""
    probe = [sys.executable, "-c", "import ensurepip, venv"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0
