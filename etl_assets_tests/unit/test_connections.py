"""Connections in the platform file: what may be written, and secrets that do not stand in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict
from pydantic import TypeAdapter

from etl_assets.errors import SettingsError, SinkRefused
from etl_assets.pipelines.sink_specs import PostgresSinkSpec, SinkSpec
from etl_assets.pipelines.source_specs import SqlLoad, SqlSource
from etl_assets.settings import load_settings
from etl_assets.settings.connections import CONNECTION_TYPES, PostgresConnection, type_of
from etl_assets.sinks.open_sink import open_sink
from etl_assets.sinks.postgres.open import open_postgres
from etl_assets.sources.sql.connect import query_database
from etl_assets.sources.sql.postgres import PostgresQuery


def _loaded(home: Path, text: str):
    home.mkdir(exist_ok=True)
    (home / "platform.yaml").write_text(text)
    return load_settings({"ETL_ASSETS_HOME": str(home)})


POSTGRES = """
connections:
  warehouse:
    type: postgres
    host: localhost
    database: shop
    password: {password}
    write: [analytics.*]
"""


def test_a_connection_allows_what_it_lists_and_nothing_else(tmp_path: Path):
    found = _loaded(tmp_path, POSTGRES.format(password="${PG_PASSWORD}")).connections["warehouse"]
    assert isinstance(found, PostgresConnection)
    assert found.allows("analytics.film_rating")
    assert not found.allows("public.film_rating")
    assert not PostgresConnection(type="postgres", host="h", database="d").allows("analytics.film_rating")


def test_no_pattern_leads_out_of_a_folder(tmp_path: Path):
    found = _loaded(tmp_path, "connections: {out: {type: folder, path: out, write: '*'}}").connections["out"]
    assert found.allows("films/day")
    assert not found.allows("films/../../etc")


def test_a_secret_is_a_reference_and_its_value_is_read_when_it_is_used(tmp_path: Path):
    settings = _loaded(tmp_path, POSTGRES.format(password="${PG_PASSWORD}"))
    (secret,) = settings.connections["warehouse"].secrets()
    assert secret.value({"PG_PASSWORD": "hunter2-long"}) == "hunter2-long"
    with pytest.raises(SettingsError, match="PG_PASSWORD"):
        secret.value({})


def test_a_secret_in_a_file_is_read_each_time_and_ends_before_its_line_feed(tmp_path: Path):
    file = tmp_path / "password"
    settings = _loaded(tmp_path, POSTGRES.format(password=f"${{file:{file}}}"))
    (secret,) = settings.connections["warehouse"].secrets()
    for content, value in (
        ("hunter2-long\n", "hunter2-long"),
        ("two words\r\n", "two words"),
        (" a\n\n", " a\n"),
    ):
        file.write_bytes(content.encode())
        assert secret.value() == value


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"hunter2\xff", "is not text"),
        (b"hunter2" * 10_000, "has more than 65,536 bytes"),
    ],
)
def test_a_file_without_a_secret_is_named_and_its_content_is_not_shown(tmp_path: Path, content, says):
    file = tmp_path / "password"
    settings = _loaded(tmp_path, POSTGRES.format(password=f"${{file:{file}}}"))
    (secret,) = settings.connections["warehouse"].secrets()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError) as refused:
        secret.value()
    assert f"the file {file}" in str(refused.value)
    assert says in str(refused.value)
    assert "hunter2" not in f"{refused.value} {refused.value.fix}"


@pytest.mark.parametrize("path", ["password", "file:", "file:password", "file:~/password", "file:/a}b"])
def test_a_secret_has_the_whole_path_of_its_file(tmp_path: Path, path):
    with pytest.raises(SettingsError, match="password"):
        _loaded(tmp_path, POSTGRES.format(password=f"'${{{path}}}'" if path != "password" else "password"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (POSTGRES.format(password="hunter2"), "password"),
        (POSTGRES.format(password="${PG}").replace("host: localhost", "host: me:hunter2@db"), "host"),
        (POSTGRES.format(password="${PG}").replace("type: postgres", "type: postgresql"), "postgres"),
        (POSTGRES.format(password="${PG}").replace("database:", "databse:"), "database"),
        ("connections: {a: {type: search, urls: ['http://u:hunter2@host/']}}", "url"),
    ],
)
def test_a_wrong_connection_is_named_and_no_value_of_it_is_shown(tmp_path: Path, text: str, names: str):
    with pytest.raises(SettingsError) as caught:
        _loaded(tmp_path, text)
    assert names in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_each_type_has_a_name_of_its_own():
    names = [type_of(each) for each in CONNECTION_TYPES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("connection", "sink", "says"),
    [
        (POSTGRES, "{type: postgres, connection: warehouse, table: public.films}", "does not allow to write"),
        (POSTGRES, "{type: postgres, connection: warehuose, table: analytics.films}", "did you mean"),
        (
            "connections: {warehouse: {type: folder, path: out, write: ['*']}}",
            "{type: postgres, connection: warehouse, table: analytics.films}",
            "no connection 'warehouse' of type postgres",
        ),
    ],
)
def test_what_a_connection_does_not_allow_is_refused_at_each_delivery(tmp_path: Path, connection, sink, says):
    """Whatever validation said: the platform file may have changed since."""
    settings = _loaded(tmp_path, connection.replace("{password}", "${PG_PASSWORD}"))
    spec = TypeAdapter(SinkSpec).validate_python(yaml.safe_load(sink))
    with pytest.raises(SinkRefused) as refused:
        open_sink(spec, settings, pipeline="films")
    assert says in f"{refused.value} {refused.value.fix}"


def test_sources_and_sinks_notice_a_postgresql_that_the_network_no_longer_reaches(tmp_path, monkeypatch):
    monkeypatch.setenv("PG_PASSWORD", "hunter2-long")
    settings = _loaded(tmp_path, POSTGRES.format(password="${PG_PASSWORD}"))
    asked: dict[str, Any] = {}
    monkeypatch.setattr("psycopg.connect", lambda **options: asked.update(options))
    sink = PostgresSinkSpec(type="postgres", connection="warehouse", table="analytics.films")
    open_postgres(sink, settings.connections["warehouse"], settings, "films")
    source = SqlSource(
        type="sql", connection="warehouse", query="SELECT 1 AS a", load=SqlLoad.FULL, id=("a",)
    )
    database = query_database(source, settings)
    assert isinstance(database, PostgresQuery)
    read_by: dict[str, Any] = {**conninfo_to_dict(database.address)}
    for options in (asked, read_by):
        assert int(options["tcp_user_timeout"]) == 60_000
        assert int(options["keepalives_idle"]) + 4 * int(options["keepalives_interval"]) <= 60
