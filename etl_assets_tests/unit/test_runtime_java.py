"""Finding a Java that Spark can run on."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl_assets.errors import RuntimeMissing
from etl_assets.runtime import java as java_module
from etl_assets.runtime import system_packages
from etl_assets.runtime.java import ensure_java, find_java, parse_properties

JAVA_17 = """\
Picked up JAVA_TOOL_OPTIONS: -Xmx1g
Property settings:
    java.class.path =
    java.home = /usr/lib/jvm/java-17-openjdk-amd64
    java.library.path = /usr/java/packages/lib
        /usr/lib/x86_64-linux-gnu/jni
    java.specification.version = 17
    java.version = 17.0.15

openjdk version "17.0.15" 2025-04-15
"""


@pytest.fixture(autouse=True)
def _no_other_java(monkeypatch):
    monkeypatch.setattr(java_module, "USUAL_PLACES", ())


def fake_java(home: Path, specification: str, release: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    lines = (
        f"java.home = {home}",
        f"java.specification.version = {specification}",
        f"java.version = {release}",
    )
    program.write_text("#!/bin/sh\n" + "".join(f"echo '    {line}' >&2\n" for line in lines))
    program.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("specification", "release", "version"),
    [("1.8", "1.8.0_402", 8), ("11", "11.0.22", 11), ("17", "17.0.15", 17), ("25", "25-ea", 25)],
)
def test_the_version_of_every_numbering_is_read(specification, release, version):
    text = JAVA_17.replace("version = 17.0.15", f"version = {release}").replace(
        "version = 17\n", f"version = {specification}\n"
    )
    java = parse_properties(text)
    assert java is not None
    assert (java.version, java.release) == (version, release)
    assert java.executable == Path("/usr/lib/jvm/java-17-openjdk-amd64/bin/java")


@pytest.mark.parametrize(
    "text", ["", "No Java runtime present, requesting install.", "java.home = /x", JAVA_17[:150]]
)
def test_what_does_not_say_its_version_is_no_java(text):
    assert parse_properties(text) is None


def test_java_home_comes_before_the_path(tmp_path):
    wanted, other = fake_java(tmp_path / "a", "21", "21.0.1"), fake_java(tmp_path / "b", "17", "17.0.15")
    java = find_java({"JAVA_HOME": str(wanted), "PATH": str(other / "bin")})
    assert (java.home, java.version) == (wanted, 21)


def test_an_old_or_broken_java_is_passed_over(tmp_path):
    old, new = fake_java(tmp_path / "old", "1.8", "1.8.0_402"), fake_java(tmp_path / "new", "17", "17.0.15")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).home == new
    (old / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).home == new


def test_only_an_old_java_is_an_error_that_names_it_and_the_fix(tmp_path):
    old = fake_java(tmp_path / "old", "11", "11.0.22")
    with pytest.raises(RuntimeMissing, match=r"11\.0\.22") as raised:
        find_java({"JAVA_HOME": str(old), "PATH": ""})
    assert "JAVA_HOME" in raised.value.fix


def test_where_nothing_may_be_installed_the_error_stays(monkeypatch):
    monkeypatch.setattr(system_packages, "install", lambda packages, say: False)
    with pytest.raises(RuntimeMissing, match="no Java 17 or newer"):
        ensure_java(print, {"PATH": ""})


def test_an_installed_java_is_found_by_the_second_look(monkeypatch, tmp_path):
    def install(packages, say):
        fake_java(tmp_path / "installed", "17", "17.0.15")
        return True

    monkeypatch.setattr(system_packages, "install", install)
    java = ensure_java(print, {"PATH": str(tmp_path / "installed" / "bin")})
    assert java.home == tmp_path / "installed"
