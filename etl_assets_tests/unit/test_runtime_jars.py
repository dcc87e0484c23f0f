"""Delta's jars come whole or not at all.

Ivy is played by a fake Java that leaves files where Ivy would.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from configparser import ConfigParser
from pathlib import Path

import pytest

from etl_assets.errors import RuntimeMissing
from etl_assets.runtime import jars as jars_module
from etl_assets.runtime.jars import DELTA_JARS, Jar, delta_jars, ensure_jars, jars_folder
from etl_assets.runtime.java import Java

ROOT = Path(__file__).parents[2]
CONTENT = b"what a jar holds"
JAR = Jar(
    group="org.example",
    artifact="small",
    version="1.0",
    size_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


@pytest.fixture(autouse=True)
def _one_small_jar(monkeypatch):
    monkeypatch.setattr(jars_module, "DELTA_JARS", (JAR,))


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "jars"


def java_that(home: Path, script: str) -> Java:
    """A Java whose `-retrieve DIR/pattern` runs a script inside DIR."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    find_folder = 'while [ "$1" != -retrieve ]; do shift; done; cd "$(dirname "$2")"\n'
    program.write_text(f"#!/bin/sh\n{find_folder}{script}\n")
    program.chmod(0o755)
    return Java(home=home, version=17, release="17.0.15")


@pytest.fixture
def good_java(tmp_path) -> Java:
    return java_that(tmp_path / "good", f"printf '{CONTENT.decode()}' > {JAR.file_name}")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_missing_jar_is_told_with_the_command_that_brings_it(folder):
    with pytest.raises(RuntimeMissing, match=r"small-1\.0\.jar is not there") as raised:
        delta_jars(folder)
    assert "etl-assets setup" in raised.value.fix


def test_a_jar_of_another_size_is_refused_at_use(folder):
    folder.mkdir()
    (folder / JAR.file_name).write_bytes(CONTENT[:-1])
    with pytest.raises(RuntimeMissing, match="has 15 bytes instead of 16"):
        delta_jars(folder)


def test_a_jar_of_other_content_is_refused_by_the_thorough_check(folder):
    folder.mkdir()
    (folder / JAR.file_name).write_bytes(CONTENT.swapcase())
    assert delta_jars(folder) == (folder / JAR.file_name,)
    with pytest.raises(RuntimeMissing, match="SHA-256"):
        delta_jars(folder, thorough=True)


def test_set_up_fetches_what_is_missing_and_leaves_nothing_else(folder, good_java):
    assert ensure_jars(good_java, print, folder) == (folder / JAR.file_name,)
    assert names(folder) == [JAR.file_name]
    assert (folder / JAR.file_name).read_bytes() == CONTENT


def test_set_up_replaces_a_damaged_jar(folder, good_java):
    folder.mkdir()
    (folder / JAR.file_name).write_bytes(CONTENT.swapcase())
    ensure_jars(good_java, print, folder)
    assert (folder / JAR.file_name).read_bytes() == CONTENT


def test_set_up_asks_nobody_when_the_jars_are_whole(folder, good_java, tmp_path):
    ensure_jars(good_java, print, folder)
    ensure_jars(java_that(tmp_path / "broken", "exit 1"), print, folder)


def test_a_corrupt_download_never_gets_into_place(folder, tmp_path):
    corrupt = java_that(tmp_path / "corrupt", f"printf 'what a Jar holds' > {JAR.file_name}")
    with pytest.raises(RuntimeMissing, match="SHA-256"):
        ensure_jars(corrupt, print, folder)
    assert names(folder) == []


def test_without_a_network_it_says_what_to_put_where(folder, tmp_path):
    offline = java_that(
        tmp_path / "offline",
        "echo ':: problems summary ::'; echo '....Host maven.example not found. url=u'; exit 1",
    )
    with pytest.raises(RuntimeMissing, match=r"Host maven\.example not found") as raised:
        ensure_jars(offline, print, folder)
    for part in (str(folder), JAR.coordinates, JAR.file_name, JAR.sha256, "ETL_ASSETS_IVY_SETTINGS"):
        assert part in raised.value.fix


def test_a_folder_that_cannot_be_written_is_named(tmp_path, good_java):
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeMissing, match="could not be put into") as raised:
        ensure_jars(good_java, print, tmp_path / "file" / "jars")
    assert "ETL_ASSETS_JARS" in raised.value.fix


def test_a_set_up_that_is_killed_leaves_no_jar_and_the_next_one_mends_it(folder, tmp_path, good_java):
    java_that(tmp_path / "killer", f"printf 'what a' > {JAR.file_name}; kill -9 $PPID; sleep 0.2")
    program = (
        "import sys; from pathlib import Path; from etl_assets.runtime.java import Java;"
        "from etl_assets.runtime.jars import ensure_jars;"
        "ensure_jars(Java(home=Path(sys.argv[1]), version=17, release='17'), print, Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "killer"), str(folder)]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert killed.returncode == -9
    assert [name for name in names(folder) if name.endswith(".jar")] == []
    (left,) = folder.iterdir()
    os.utime(left, (0, 0))
    ensure_jars(good_java, print, folder)
    assert names(folder) == [JAR.file_name]


def test_set_ups_at_the_same_time_do_not_disturb_each_other(folder, tmp_path):
    slow = java_that(tmp_path / "slow", f"sleep 0.2; printf '{CONTENT.decode()}' > {JAR.file_name}")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: ensure_jars(slow, print, folder), range(4)))
    assert found == [(folder / JAR.file_name,)] * 4
    assert names(folder) == [JAR.file_name]


def test_the_folder_is_told_by_the_environment_or_is_in_the_cache():
    assert jars_folder({"ETL_ASSETS_JARS": "/srv/jars", "XDG_CACHE_HOME": "/c"}) == Path("/srv/jars")
    assert jars_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/etl-assets/jars")
    assert jars_folder({}) == Path.home() / ".cache" / "etl-assets" / "jars"


def test_the_jars_are_of_the_version_of_the_python_package():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    for jar in DELTA_JARS:
        assert f"delta-spark=={jar.version}" in setup["options"]["install_requires"].split()


def test_set_up_runs_before_anything_is_installed():
    program = "import sys, etl_assets.runtime.__main__ as m; sys.exit(m.main(['--help']))"
    command = [sys.executable, "-S", "-E", "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
