"""The built wheel, installed where there is no checkout: everything that its commands read at run time has
come with it.

The environment has the wheel and sees the packages that the tests run with; it does not see this checkout.
What its processes open is recorded by an audit hook: nothing of the checkout may be among it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import etl_assets
from etl_assets_tests.e2e.dagster_ui import dagster_ui

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(etl_assets.__file__).parents[1]
BUILT_FROM = ("etl_assets", "README.md", "pyproject.toml", "setup.cfg")
NOT_IN_A_WHEEL = shutil.ignore_patterns("__pycache__", "*.pyc")
WATCH = """
import os, sys

def watch(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], (str, bytes)):
        path = os.path.abspath(os.fsdecode(arguments[0]))
        if path.startswith({root!r} + os.sep) and not path.startswith({packages!r}):
            log = os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(log, os.fsencode(path) + b"\\n")
            os.close(log)

sys.addaudithook(watch)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A wheel in an environment of its own.

    Attributes:
        wheel: The file.
        bin: Where the environment's commands are.
        package: Where the package is in it.
        opened: What any process of it has opened of the checkout, a line each; no file if nothing.
        home: Home folder that the commands share.
    """

    wheel: Path
    bin: Path
    package: Path
    opened: Path
    home: Path

    @property
    def environ(self) -> dict[str, str]:
        """The environment without anything that could lead to the checkout."""
        return {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
        }

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment, far from the checkout."""
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            env={**self.environ, "ETL_ASSETS_HOME": str(self.home)},
            cwd=self.home.parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )


def build(folder: Path) -> Path:
    """The wheel, built from a copy: a build writes beside what it builds from, and takes along what an older
    one left there.
    """
    source = folder / "source"
    source.mkdir()
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=NOT_IN_A_WHEEL)
        else:
            shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-index"]
    pip += ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder / "dist"), str(source)]
    subprocess.run(pip, check=True, timeout=300)
    shutil.rmtree(source)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build(folder)
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=120)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install"]
    subprocess.run([*pip, "--quiet", "--no-index", "--no-deps", str(wheel)], check=True, timeout=300)
    (packages,) = (environment / "lib").glob("python3*/site-packages")
    # The folder alone: Python does not follow the .pth files in it, by which the checkout is installed there.
    shared = sysconfig.get_paths()["purelib"]
    (packages / "shared.pth").write_text(f"{shared}\nimport watch_the_checkout\n")
    opened = folder / "opened"
    # The shared packages may be in the checkout's own .venv.
    watch = WATCH.format(root=str(ROOT), packages=str(ROOT / ".venv") + os.sep, log=str(opened))
    (packages / "watch_the_checkout.py").write_text(watch)
    (folder / "work").mkdir()
    return Installed(
        wheel=wheel,
        bin=environment / "bin",
        package=packages / "etl_assets",
        opened=opened,
        home=folder / "work" / "home",
    )


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(installed):
    names = {name for name in zipfile.ZipFile(installed.wheel).namelist() if ".dist-info/" not in name}
    files = (file for file in (ROOT / "etl_assets").rglob("*") if file.is_file())
    wanted = {str(file.relative_to(ROOT)) for file in files if "__pycache__" not in file.parts}
    assert names == wanted


def test_the_package_is_that_of_the_wheel(installed):
    done = installed.run("python", "-c", "import etl_assets; print(etl_assets.__file__)")
    assert done.stdout.strip() == str(installed.package / "__init__.py"), done.stderr


def test_what_is_opened_of_the_checkout_is_noticed(installed):
    done = installed.run("python", "-c", f"open({str(ROOT / 'setup.cfg')!r}).close()")
    assert done.returncode == 0, done.stderr
    assert installed.opened.read_text().splitlines() == [str(ROOT / "setup.cfg")]
    installed.opened.unlink()


def test_a_demo_runs_in_an_empty_home_and_the_doctor_finds_nothing_wrong(installed):
    assert not installed.home.exists()
    demo = installed.run("etl-assets", "demo", "--events", "500", "--days", "2", "--json")
    assert demo.returncode == 0, demo.stderr
    figures = json.loads(demo.stdout)
    assert figures["accepted"] >= 490
    assert sum(figures["orders_by_status"].values()) > 0

    doctor = installed.run("etl-assets", "doctor", "--json")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert [each for each in json.loads(doctor.stdout) if each["status"] == "fail"] == []
    assert not installed.opened.exists(), installed.opened.read_text()


def test_the_parts_of_the_set_up_that_pip_does_not_bring_are_found(installed):
    setup = installed.run("etl-assets", "setup", "--check")
    assert setup.returncode == 0, setup.stderr
    assert "ready: Java" in setup.stdout
    assert not installed.opened.exists(), installed.opened.read_text()


def test_the_ui_loads_the_definitions_of_the_wheel(installed):
    with dagster_ui(
        installed.home, executable=installed.bin / "etl-assets", environ=installed.environ
    ) as api:
        assert api.ready()
    assert not installed.opened.exists(), installed.opened.read_text()
