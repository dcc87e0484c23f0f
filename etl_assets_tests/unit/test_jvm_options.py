"""What Spark's JVMs are told, and that the user's options hold."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.resources import jvm
from etl_assets.resources.jvm import (
    driver_options,
    jvm_settings,
    launcher_options,
    option_string,
    starts_quickly,
    works_here,
)
from etl_assets.resources.platform import input_bytes
from etl_assets.resources.spark import spark_config
from etl_assets.runtime.java import Java
from etl_assets.settings import JvmStart, Settings, SparkSettings

JAVA = Java(home=Path("/usr/lib/jvm/some"), version=17, release="17.0.15")
ARCHIVE = ("-XX:SharedArchiveFile=/cache/classes-1.jsa",)
JARS = "/jars/a.jar,/jars/b.jar"
OWN = "spark.driver.extraJavaOptions"
LEVEL = "-XX:GCTimeRatio=3"
SERIAL, FIRST_COMPILER = "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"


@pytest.fixture(autouse=True)
def _archive(monkeypatch):
    monkeypatch.setattr(jvm, "delta_jars", lambda: tuple(map(Path, JARS.split(","))))
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


def test_a_long_run_takes_more_of_the_heap_only_when_it_needs_it_with_the_collector_that_is_ours_to_tell():
    assert LEVEL in driver_options(JAVA, {}, {}, quick=False)
    assert LEVEL not in driver_options(JAVA, {}, {}, quick=True)
    assert LEVEL not in driver_options(JAVA, {OWN: "-XX:+UseParallelGC"}, {}, quick=False)
    assert LEVEL not in driver_options(JAVA, {"spark.master": "spark://host:7077"}, {}, quick=False)


@pytest.mark.parametrize("where", ["setting", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"])
def test_two_collectors_would_not_start_so_the_users_stands_alone(where):
    config = {OWN: "-XX:+UseZGC"} if where == "setting" else {}
    environ = {} if where == "setting" else {where: "-XX:+UseZGC"}
    options = driver_options(JAVA, config, environ, quick=True)
    assert SERIAL not in options
    assert FIRST_COMPILER in options
    assert (SERIAL in launcher_options(environ)) is (where == "setting")


@pytest.mark.parametrize(
    ("own", "ours", "quick"),
    [("-XX:GCTimeRatio=9", LEVEL, False), ("-XX:TieredStopAtLevel=4", FIRST_COMPILER, True)],
)
def test_an_option_of_the_environment_which_a_jvm_reads_before_ours_holds_all_the_same(own, ours, quick):
    assert ours in driver_options(JAVA, {}, {}, quick=quick)
    assert ours not in driver_options(JAVA, {}, {"JDK_JAVA_OPTIONS": own}, quick=quick)


@pytest.mark.parametrize(
    "own", ["-XX:SharedArchiveFile=/mine", "-XX:ArchiveClassesAtExit=/new", "-Xshare:off"]
)
def test_an_archive_of_the_users_own_stands_alone(own):
    assert not set(ARCHIVE) & set(driver_options(JAVA, {OWN: own}, {}, quick=False))


def test_a_runs_input_is_what_lies_in_the_landing_folders_of_its_days(tmp_path):
    settings = Settings(home=tmp_path)
    for day, content in ((1, b"12345"), (2, b"1234567"), (3, b"9")):
        folder = settings.landing_path / f"2026-01-0{day}"
        folder.mkdir(parents=True)
        (folder / "a.jsonl").write_bytes(content)
        (folder / "b.jsonl").write_bytes(b"10 bytes..")
    (settings.landing_path / "2026-01-04").write_bytes(b"this cannot be listed")
    domain = settings.placement().place(PlacementClass.INGEST)
    assert input_bytes(settings, domain, [dt.date(2026, 1, 1), dt.date(2026, 1, 2)]) == 32
    assert input_bytes(settings, domain, [dt.date(2026, 1, 9)]) == 0
    assert input_bytes(settings, domain, [dt.date(2026, 1, 3), dt.date(2026, 1, 4)]) is None
    assert input_bytes(settings, domain, []) is None


CLUSTER = {"spark.master": "spark://host:7077"}
OPTIONS, CLASS_PATH = "spark.driver.defaultJavaOptions", "spark.driver.extraClassPath"


def settings_of(config, environ=None):
    return jvm_settings(JAVA, config, environ or {}, quick=True)


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host:443"])
def test_a_clusters_driver_uses_the_archive_and_compiles_as_ever_and_executors_are_sent_jars(master):
    settings = settings_of({"spark.master": master})
    assert set(settings) == {OPTIONS, CLASS_PATH, "spark.jars"}
    assert set(ARCHIVE) <= set(settings[OPTIONS].split())
    assert not {SERIAL, FIRST_COMPILER} & set(settings[OPTIONS].split())
    assert settings["spark.jars"] == JARS


def test_an_engine_in_this_process_has_no_executors_to_send_to():
    assert set(settings_of({})) == {OPTIONS, CLASS_PATH}


@pytest.mark.parametrize(
    ("config", "here"),
    [({}, True), ({"spark.master": "local[2]"}, True), (CLUSTER, False), ({"spark.remote": "sc://h"}, False)],
)
def test_neither_a_cluster_nor_a_connect_server_works_here(config, here):
    assert works_here(config) is here


def test_jars_of_the_user_come_after_deltas_and_do_not_take_their_place():
    settings = settings_of({**CLUSTER, "spark.jars": "/opt/x.jar,/jars/b.jar", CLASS_PATH: "/opt/*"})
    assert settings["spark.jars"] == f"{JARS},/opt/x.jar"
    assert settings[CLASS_PATH] == "/jars/a.jar:/jars/b.jar:/opt/*"


@pytest.mark.parametrize("where", ["SPARK_CONF_DIR", "SPARK_HOME"])
def test_what_an_administrator_has_set_stays(tmp_path, where):
    folder = tmp_path if where == "SPARK_CONF_DIR" else tmp_path / "conf"
    folder.mkdir(exist_ok=True)
    (folder / "spark-defaults.conf").write_text(
        f"# {OPTIONS} -Dnot.this\n\n"
        f"{OPTIONS}   -Dproxy=p -XX:OnOutOfMemoryError='kill -9 %p' \n"
        f"{CLASS_PATH}=/opt/vendor/*\n"
        f"spark.jars : /opt/vendor.jar\n"
        f"spark.driver.extraJavaOptions: -XX:+UseZGC\n",
        "utf-8",
    )
    environ = {where: str(tmp_path)}
    settings = settings_of(CLUSTER, environ)
    assert settings[OPTIONS].endswith(f"{ARCHIVE[0]} -Dproxy=p -XX:OnOutOfMemoryError='kill -9 %p'")
    assert settings[CLASS_PATH].endswith(":/opt/vendor/*")
    assert settings["spark.jars"] == f"{JARS},/opt/vendor.jar"
    assert "-Dnot.this" not in settings[OPTIONS]
    assert FIRST_COMPILER in (local := settings_of({}, environ))[OPTIONS]
    assert SERIAL not in local[OPTIONS], "there is a collector, of the administrator's"
    of_the_session = settings_of({**CLUSTER, OPTIONS: "-Dmine"}, environ)[OPTIONS]
    assert of_the_session.endswith(f"{ARCHIVE[0]} -Dmine"), "a session's own setting comes before the file's"


def test_an_option_with_a_space_in_it_stays_one_option():
    assert option_string(["-XX:SharedArchiveFile=/my jars/a.jsa", SERIAL]) == (
        f'"-XX:SharedArchiveFile=/my jars/a.jsa" {SERIAL}'
    )
    assert option_string(['-Da="b\\c"']) == '"-Da=\\"b\\\\c\\""'


@pytest.mark.parametrize(("memory", "page"), [("512m", 1 << 20), ("2g", 1 << 20), ("32g", 8 << 20)])
def test_a_task_takes_memory_in_small_pages_of_which_it_may_have_enough_for_all_of_the_heap(memory, page):
    settings = SparkSettings(driver_memory=memory)
    found = spark_config(settings)
    assert found["spark.buffer.pageSize"] == str(page)
    assert page * 8192 >= settings.driver_memory_bytes
    assert "spark.buffer.pageSize" not in spark_config(SparkSettings(master="spark://host:7077"))
    own = SparkSettings(config={"spark.buffer.pageSize": "4m"})
    assert spark_config(own)["spark.buffer.pageSize"] == "4m"
