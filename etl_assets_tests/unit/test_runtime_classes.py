"""The archive of classes: used where it fits, made once, and never in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etl_assets.runtime import classes
from etl_assets.runtime.classes import archive_file, archive_options, ensure_archive
from etl_assets.runtime.java import Java

JAVA = Java(home=Path("/usr/lib/jvm/some"), version=17, release="17.0.15")


@pytest.fixture
def jars(tmp_path: Path) -> tuple[Path, ...]:
    jar = tmp_path / "delta.jar"
    jar.write_bytes(b"classes")
    return (jar,)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(_: Java, file: Path) -> None:
        file.write_bytes(b"archive")

    monkeypatch.setattr(classes, "_record", record)


def test_without_an_archive_the_jvm_is_told_nothing(jars):
    assert archive_options(JAVA, jars) == ()


@pytest.mark.usefixtures("recorded")
def test_an_archive_is_recorded_once_and_then_used(jars):
    said: list[str] = []
    file = ensure_archive(JAVA, jars, said.append)
    assert file is not None
    assert f"-XX:SharedArchiveFile={file}" in archive_options(JAVA, jars)
    told = len(said)
    assert ensure_archive(JAVA, jars, said.append) == file
    assert len(said) == told
    assert sorted(path.name for path in file.parent.iterdir()) == sorted([file.name, "delta.jar"])


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("change", ["another Java", "a touched jar", "a larger jar"])
def test_an_archive_of_something_else_is_not_looked_for(jars, change):
    ensure_archive(JAVA, jars, lambda _: None)
    java = JAVA
    if change == "another Java":
        java = Java(home=JAVA.home, version=17, release="17.0.16")
    elif change == "a touched jar":
        os.utime(jars[0], (1, 1))
    else:
        found = jars[0].stat()
        jars[0].write_bytes(b"more classes")
        os.utime(jars[0], ns=(found.st_atime_ns, found.st_mtime_ns))
    assert archive_options(java, jars) == ()


def test_a_recording_that_failed_is_told_and_not_tried_again_until_somebody_wants_it(jars, monkeypatch):
    tries: list[Path] = []

    def fail(_: Java, file: Path) -> str:
        file.write_bytes(b"half of it")
        tries.append(file)
        return "no space left on device"

    monkeypatch.setattr(classes, "_record", fail)
    said: list[str] = []
    assert ensure_archive(JAVA, jars, said.append) is None
    assert "no space left on device" in said[-1]
    mark = archive_file(JAVA, jars).with_suffix(".failed")
    assert {path.name for path in jars[0].parent.iterdir()} == {"delta.jar", mark.name}
    assert ensure_archive(JAVA, jars, said.append) is None
    assert str(mark) in said[-1]
    assert len(tries) == 1
    mark.unlink()
    ensure_archive(JAVA, jars, said.append)
    assert len(tries) == 2
    other = Java(home=JAVA.home, version=17, release="17.0.16")
    ensure_archive(other, jars, said.append)
    assert len(tries) == 3


@pytest.mark.usefixtures("recorded")
def test_jars_in_a_folder_for_reading_only_need_no_archive(jars, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(jars[0].parent))

    # By the call, not by the folder's mode, which says nothing to root.
    monkeypatch.setattr(classes.tempfile, "TemporaryDirectory", refuse)
    said: list[str] = []
    assert ensure_archive(JAVA, jars, said.append) is None
    assert "Permission denied" in said[-1]


def test_the_archive_of_a_container_image_is_the_same_where_its_layers_were_unpacked(jars):
    os.utime(jars[0], ns=(0, 1_700_000_000_123_456_789))
    recorded = archive_file(JAVA, jars)
    os.utime(jars[0], ns=(0, 1_700_000_000_000_000_000))  # all that a layer keeps
    assert archive_file(JAVA, jars) == recorded


@pytest.mark.usefixtures("recorded")
def test_archives_of_earlier_installations_go_but_for_those_used_last(jars):
    folder = jars[0].parent
    other = Java(home=JAVA.home, version=17, release="17.0.16")
    ages = {f"classes-{age}.jsa": 1_000 - age for age in range(5)} | {archive_file(other, jars).name: 1}
    for name, used in ages.items():
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (used, used))
    assert archive_options(other, jars)
    ensure_archive(JAVA, jars, lambda _: None)
    left = {path.name for path in folder.glob("*.jsa")}
    assert left == {archive_file(JAVA, jars).name, archive_file(other, jars).name, "classes-0.jsa"}
