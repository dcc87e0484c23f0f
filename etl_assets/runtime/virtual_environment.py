"""The virtual environment that pip installs into: creating one, before anything is installed.

Belongs here: code that runs on the machine's own Python with its standard library alone. Does not belong
here: the content of the environment (`deploy/requirements.txt`) and its installation (the Makefile).
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
    """Create an environment of the running Python, with pip. An existing one is removed.

    Debian has a part of `venv` in a package of its own, which is installed first where that is allowed.

    Raises:
        RuntimeMissing: this Python is too old, or lacks that part.
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
    """Return whether this Python has all of `venv`.

    A new process checks, which sees what was just installed.
    """
    probe = [sys.executable, "-c", "import ensurepip, venv"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0
