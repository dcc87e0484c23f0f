"""What Spark's JVMs are told, and that the user's options hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl_assets.resources import jvm
from etl_assets.resources.jvm import driver_options, launcher_options, starts_quickly
from etl_assets.runtime.java import Java
from etl_assets.settings import JvmStart

JAVA = Java(home=Path("/usr/lib/jvm/some"), version=17, release="17.0.15")
ARCHIVE = ("-XX:SharedArchiveFile=/cache/classes-1.jsa",)
OWN = "spark.driver.extraJavaOptions"
SERIAL, FIRST_COMPILER = "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"


@pytest.fixture(autouse=True)
def _archive(monkeypatch):
    monkeypatch.setattr(jvm, "delta_jars", tuple)
    monkeypatch.setattr(jvm, "archive_options", lambda *_: ARCHIVE)


@pytest.mark.parametrize(
    ("start", "input_bytes", "quick"),
    [
        (JvmStart.AUTO, 2_500_000, True),
        (JvmStart.AUTO, 250_000_000, False),
        (JvmStart.AUTO, None, False),
        (JvmStart.QUICK, 250_000_000, True),
        (JvmStart.FULL, 10, False),
    ],
)
def test_a_run_is_short_if_its_input_is_known_to_be_small_or_the_user_says_so(start, input_bytes, quick):
    assert starts_quickly(start, input_bytes) is quick


def test_a_short_run_compiles_little_and_all_runs_use_the_archive():
    assert {*ARCHIVE, SERIAL, FIRST_COMPILER} <= set(driver_options(JAVA, {}, {}, quick=True))
    assert not {SERIAL, FIRST_COMPILER} & set(driver_options(JAVA, {}, {}, quick=False))
    assert set(ARCHIVE) <= set(driver_options(JAVA, {}, {}, quick=False))


@pytest.mark.parametrize("where", ["setting", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"])
def test_two_collectors_would_not_start_so_the_users_stands_alone(where):
    config = {OWN: "-XX:+UseZGC"} if where == "setting" else {}
    environ = {} if where == "setting" else {where: "-XX:+UseZGC"}
    options = driver_options(JAVA, config, environ, quick=True)
    assert SERIAL not in options
    assert FIRST_COMPILER in options
    assert (SERIAL in launcher_options(environ)) is (where == "setting")


@pytest.mark.parametrize(
    "own", ["-XX:SharedArchiveFile=/mine", "-XX:ArchiveClassesAtExit=/new", "-Xshare:off"]
)
def test_an_archive_of_the_users_own_stands_alone(own):
    assert not set(ARCHIVE) & set(driver_options(JAVA, {OWN: own}, {}, quick=False))


def test_executors_elsewhere_get_none_of_it():
    (only,) = driver_options(JAVA, {"spark.master": "spark://host:7077"}, {}, quick=True)
    assert only.startswith("-Dlog4j2")
