"""The peers: other people's loaders, each from its own packages in a virtual environment of its own.

Environments are made on first use from the pinned lists in requirements/, and kept in the bench folder, never
in the repository; another list makes another environment.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "requirements"
_INSTALL_SECONDS = 900
_COMPLETE = "complete"


class Peer(StrEnum):
    """A peer; its value names its list of requirements."""

    DLT = "dlt"
    DELTA_RS = "delta-rs"
    DAGSTER = "dagster"


class PeerUnavailable(Exception):
    """A peer's packages cannot be installed; the message says which, why and what to do."""


def python_of(peer: Peer, folder: Path) -> str:
    """The Python of a peer's environment in the bench folder, made if need be.

    Raises:
        PeerUnavailable: the packages cannot be had.
    """
    requirements = REQUIREMENTS / f"{peer}.txt"
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:8]
    environment = folder / "peers" / f"{peer}-{digest}"
    python = environment / "bin" / "python"
    if not (environment / _COMPLETE).exists():
        print(f"  installing {peer} into {environment}, once ...", file=sys.stderr)
        shutil.rmtree(environment, ignore_errors=True)
        _run(peer, [sys.executable, "-m", "venv", str(environment)])
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
        _run(peer, [*pip, "--retries", "2", "--no-deps", "--requirement", str(requirements)])
        (environment / _COMPLETE).touch()
    return str(python)


def _run(peer: Peer, command: list[str]) -> None:
    advice = (
        "see that the package registry can be reached (pip's own settings are used), or leave this case out"
    )
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(
            f"{peer} was not installed within {_INSTALL_SECONDS} seconds: {advice}"
        ) from None
    if done.returncode != 0:
        raise PeerUnavailable(f"{peer} cannot be installed: {advice}\n{done.stderr[-2_000:]}")
