"""Packages of the machine's package manager: the command that installs one, and running it where allowed.

Belongs here: package managers and the right to use them. Does not belong here: which package is needed, and
why (`java.py`, `virtual_environment.py`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence

_COMMANDS = {
    "apt-get": "{sudo}apt-get update && {sudo}apt-get install -y {package}",
    "dnf": "{sudo}dnf install -y {package}",
    "zypper": "{sudo}zypper install -y {package}",
    "pacman": "{sudo}pacman -S --noconfirm {package}",
    "apk": "{sudo}apk add {package}",
    "brew": "brew install {package}",
}
_APT_LOCK_WAIT_SECONDS = 120


def install_command(packages: Mapping[str, str]) -> str | None:
    """Return the command line that installs a package on this machine; None without a known package manager.

    Args:
        packages: Name of the package by package manager.
    """
    sudo = "" if os.geteuid() == 0 else "sudo "
    for manager, package in packages.items():
        if shutil.which(manager):
            return _COMMANDS[manager].format(sudo=sudo, package=package)
    return None


def install(choices: Sequence[str], say: Callable[[str], None]) -> bool:
    """Install the first of these packages that this release of Debian or Ubuntu has.

    Runs only as root or with a sudo that asks for no password; otherwise the user decides.

    Returns:
        Whether apt-get installed it.
    """
    as_root = _root_prefix() if shutil.which("apt-get") else None
    if as_root is None:
        return False
    apt_get = [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    apt_get += ["-o", f"DPkg::Lock::Timeout={_APT_LOCK_WAIT_SECONDS}"]
    # One broken package source must not block the others; a real failure shows in the installation.
    _run([*apt_get, "update"])
    package = next(filter(_is_available, choices), choices[0])
    say(f"==> installing {package} with apt-get (about a minute)")
    done = _run([*apt_get, "install", "-y", "--no-install-recommends", package])
    if done.returncode != 0:
        say(done.stdout + done.stderr)
    return done.returncode == 0


def _root_prefix() -> list[str] | None:
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "-n"]
    return sudo if shutil.which("sudo") and _run([*sudo, "true"]).returncode == 0 else None


def _is_available(package: str) -> bool:
    policy = _run(["apt-cache", "policy", package]).stdout
    return "Candidate:" in policy and "Candidate: (none)" not in policy


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
