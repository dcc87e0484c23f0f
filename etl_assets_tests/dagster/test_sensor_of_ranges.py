"""The sensors of sources that are read in ranges, on a real broker and a real database.

They ask for a run while records are unread, say so when there are none, and start nothing while the source
does not answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg
import pytest

from etl_assets.sensors.sources import source_sensors
from etl_assets.settings import load_settings
from etl_assets.sources.kafka import source as kafka_source
from etl_assets.stack.server import free_port
from etl_assets_tests.commands.home import Home
from etl_assets_tests.sources.shop import Shop
from etl_assets_tests.sources.topics import SOURCE, Topic, today


@dataclass(kw_only=True)
class Lab:
    """A source with its installation, and its sensor as the daemon evaluates it: with the last cursor."""

    home: Home
    instance: dg.DagsterInstance
    ingest: Callable[[], Any]
    add: Callable[[int], Any]
    nothing: str
    down: str
    table: str = SOURCE
    cursor: str | None = field(default=None)

    def tick(self) -> dg.SensorResult:
        settings = load_settings({"ETL_ASSETS_HOME": str(self.home.path)})
        (sensor,) = source_sensors(
            settings, [each for each in settings.catalog().pipelines if each.name == "people"]
        )
        context = dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, definitions=dg.Definitions(sensors=[sensor])
        )
        result = sensor(context)
        assert isinstance(result, dg.SensorResult)
        self.cursor = self.cursor if result.cursor is None else result.cursor
        return result

    def keys(self) -> list[str | None]:
        return [request.run_key for request in self.tick().run_requests or ()]

    def connect(self, **changed: Any) -> None:
        """Change the only connection in the platform file."""
        file = self.home.path / "platform.yaml"
        settings = json.loads(file.read_text("utf-8"))
        (connection,) = settings["connections"].values()
        connection.update(changed)
        file.write_text(json.dumps(settings), "utf-8")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def of_kafka(fixture: Callable[[str], Any], instance: dg.DagsterInstance) -> tuple[Lab, dict[str, Any], Any]:
    brokers = fixture("kafka_server").url
    topic = Topic.create(brokers, fixture("tmp_path"), partitions=2)
    lab = Lab(
        home=topic.home,
        instance=instance,
        ingest=topic.ingest,
        add=lambda number: topic.send([{"id": str(number), "age": number}], partition=number % 2),
        nothing=f"no unread records in the topic {topic.name} at ",
        down=f"the brokers of the topic {topic.name} do not answer",
    )
    down = {"bootstrap_servers": [f"127.0.0.1:{free_port()}"]}
    return lab, down, {"bootstrap_servers": [brokers]}


def of_sql(
    fixture: Callable[[str], Any], instance: dg.DagsterInstance, **source: Any
) -> tuple[Lab, dict[str, Any], Any]:
    server = fixture("postgres_server")
    shop = Shop.create(server, fixture("tmp_path"))
    fixture("request").addfinalizer(shop.session.close)
    shop.declare(
        query="SELECT film_id, title, updated_at FROM film",
        incremental_key="updated_at",
        incremental_id_key="film_id",
        columns={"film_id": "bigint", "title": "string", "updated_at": "timestamp"},
        **source,
    )
    lab = Lab(
        home=shop.pipeline.home,
        instance=instance,
        ingest=shop.ingest,
        add=lambda number: shop.add(number, number),
        nothing="no unread records in the query over the connection shop",
        down="does not answer",
    )
    return lab, {"port": free_port()}, {"port": server.port}


def of_sql_without_records(
    fixture: Callable[[str], Any], instance: dg.DagsterInstance
) -> tuple[Lab, dict[str, Any], Any]:
    lab, down, up = of_sql(fixture, instance, keep_records=False)
    home = lab.home
    return replace(lab, table="people", ingest=lambda: Topic("", "", home).load(None)), down, up


@pytest.mark.parametrize("of", [of_kafka, of_sql, of_sql_without_records])
def test_a_run_is_asked_for_new_records_and_none_for_nothing_or_while_the_source_is_down(
    of, request, instance, monkeypatch
):
    monkeypatch.setattr(kafka_source, "ANSWER_SECONDS", 1.0)
    lab, down, up = of(request.getfixturevalue, instance)
    lab.add(1)
    (first,) = lab.keys()
    assert first is not None
    assert first.startswith(f"{lab.table}:")
    assert first.endswith("@-1#0")
    assert lab.keys() == [first], "Dagster starts one run for a key, however often it is asked for"
    lab.ingest()
    idle = lab.tick()
    assert not idle.run_requests
    assert lab.nothing in str(idle.skip_reason)

    lab.add(2)
    lab.connect(**down)
    for _ in range(2):
        refused = lab.tick()
        assert not refused.run_requests
        assert lab.down in str(refused.skip_reason)
    lab.connect(**up)
    (after,) = lab.keys()
    assert after not in (None, first)
    lab.ingest()
    assert lab.keys() == []
    if lab.table == SOURCE:
        assert {row["partition_date"] for row in lab.home.rows(SOURCE)} <= {today()}
