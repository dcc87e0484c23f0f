"""What may be installed on a machine, and what is said where it may not."""

from __future__ import annotations

import subprocess

import pytest

from etl_assets.errors import RuntimeMissing
from etl_assets.runtime import system_packages, virtual_environment

PACKAGES = {"apt-get": "deb-java", "brew": "brewed-java"}


@pytest.fixture
def machine(monkeypatch):
    """A machine with these programs, this user, and these commands that fail; gives the commands run."""

    def make(*programs: str, user_id: int = 1000, failing: str = "nothing"):
        ran = []

        def run(command, **_):
            ran.append(" ".join(command))
            code = 1 if failing in ran[-1] else 0
            return subprocess.CompletedProcess(command, code, stdout="  Candidate: 17", stderr="")

        monkeypatch.setattr(system_packages.shutil, "which", lambda name: name if name in programs else None)
        monkeypatch.setattr(system_packages.os, "geteuid", lambda: user_id)
        monkeypatch.setattr(system_packages.subprocess, "run", run)
        return ran

    return make


def test_the_command_is_the_machines_own(machine):
    machine("apt-get")
    assert (
        system_packages.install_command(PACKAGES) == "sudo apt-get update && sudo apt-get install -y deb-java"
    )
    machine("apt-get", user_id=0)
    assert system_packages.install_command(PACKAGES) == "apt-get update && apt-get install -y deb-java"
    machine("brew")
    assert system_packages.install_command(PACKAGES) == "brew install brewed-java"
    machine()
    assert system_packages.install_command(PACKAGES) is None


def test_root_installs(machine):
    ran = machine("apt-get", user_id=0)
    assert system_packages.install(["deb-java"], print)
    assert ran[-1].endswith("install -y --no-install-recommends deb-java")


def test_a_user_whose_sudo_would_ask_installs_nothing(machine):
    ran = machine("apt-get", "sudo", failing="sudo -n true")
    assert not system_packages.install(["deb-java"], print)
    assert ran == ["sudo -n true"]


def test_a_machine_without_apt_installs_nothing(machine):
    ran = machine("brew", user_id=0)
    assert not system_packages.install(["deb-java"], print)
    assert ran == []


def test_a_package_source_that_is_down_does_not_stop_the_installation(machine):
    machine("apt-get", user_id=0, failing="update")
    assert system_packages.install(["deb-java"], print)


def test_a_python_without_venv_is_told_with_the_package_it_lacks(machine, monkeypatch, tmp_path):
    machine("apt-get")
    monkeypatch.setattr(virtual_environment, "can_create", lambda: False)
    with pytest.raises(RuntimeMissing, match="no working `venv` module") as raised:
        virtual_environment.create(tmp_path / "venv", print)
    assert "-venv`" in raised.value.fix
