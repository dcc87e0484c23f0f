"""Captured tables whose columns change, by each policy of the capture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from deltalake import DeltaTable

from etl_assets.captures import roll_back
from etl_assets.errors import SourceSchemaChanged, SourceUnavailable
from etl_assets.failpoints import Failpoint
from etl_assets.sources.captures.connect import close_readers
from etl_assets.sources.captures.discovery import Discovery
from etl_assets_tests.sources.captured import CAPTURE, Captured, step_of
from etl_assets_tests.sources.topics import today

POLICIES = ("reject", "add", "widen", "quarantine")


@pytest.fixture
def shop(postgres_server, tmp_path) -> Iterator[Captured]:
    found = Captured.create(postgres_server, tmp_path)
    yield found
    found.close()


@pytest.fixture
def direct(postgres_server, tmp_path) -> Iterator[Captured]:
    found = Captured.create(postgres_server, tmp_path, keep_records=False)
    yield found
    found.close()


def followed(shop: Captured, policy: str, *tables: str, **more: Any) -> None:
    """Let tables be ready in a capture with a policy, which copies nothing again of its own."""
    if not shop.keeps_records:
        more["keep_records"] = False
    shop.declare(schema_changes=policy, added_columns="follow", **more)
    shop.make_tables(*tables)
    shop.discover()
    shop.settle(*tables)


def rows(shop: Captured, *columns: str) -> dict[int, Any]:
    return {row["id"]: tuple(row[each] for each in columns) for row in shop.home.rows("shop_film")}


def ingested(shop: Captured) -> int:
    before = len(shop.records("film"))
    shop.ingest("film")
    return len(shop.records("film")) - before


def take_up(shop: Captured, spark: Any) -> None:
    """Run the steps of the table as a run does."""
    step_of(shop.home, shop.read_into("film"), spark=spark).run([today()])
    if shop.keeps_records:
        shop.load("film", spark)


def refused(shop: Captured) -> SourceSchemaChanged:
    """Take up what is before a change of columns, and return the error that it is."""
    with suppress(SourceSchemaChanged):
        shop.ingest("film")
    roll_back(shop.settings, CAPTURE, "public.film")
    with pytest.raises(SourceSchemaChanged) as caught:
        shop.ingest("film")
    return caught.value


CHANGES = {
    "ADD note int": "note was added",
    "DROP title": "title was dropped",
    "RENAME title TO name": "title was renamed to name",
    "ALTER n TYPE bigint": "n is int8 instead of int4",
    "ALTER n TYPE text": "n is text instead of int4",
}
TAKEN_BY = {
    "ADD note int": "add widen quarantine",
    "DROP title": "add widen quarantine",
    "RENAME title TO name": "add widen quarantine",
    "ALTER n TYPE bigint": "widen quarantine",
    "ALTER n TYPE text": "quarantine",
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_columns_is_taken_by_the_policy_or_its_table_stands_still_before_it(shop, change, policy):
    followed(shop, policy, "film", "actor")
    shop.execute("UPDATE film SET n = 7 WHERE id = 1")
    shop.execute(
        f"ALTER TABLE film {change}", "UPDATE film SET n = '8' WHERE id = 2", "UPDATE actor SET n = 9"
    )
    shop.look()
    shop.discover()
    if policy in TAKEN_BY[change]:
        shop.ingest("film")
        assert shop.phases() == {"film": "ready", "actor": "ready"}
        return
    error = refused(shop)
    assert CHANGES[change] in error.message
    assert f"`schema_changes: {policy}` of the capture shop" in error.message
    assert "etl-assets cdc rollback shop public.film --copy" in error.fix
    assert shop.states()["film"].ended_by() == "etl-assets cdc rollback shop public.film"
    assert shop.held("film")[1] == ("film 1", 7)  # it has what was before
    shop.ingest("actor")
    assert shop.phases() == {"film": "errored", "actor": "ready"}
    assert shop.held("actor") == shop.source("actor")


def test_a_table_goes_on_where_it_stood_once_the_policy_takes_the_change(shop, spark):
    followed(shop, "reject", "film")
    shop.execute(
        "UPDATE film SET n = 7 WHERE id = 1",
        "ALTER TABLE film ADD note int",
        "UPDATE film SET note = 4 WHERE id = 2",
    )
    assert "set `schema_changes: add`" in refused(shop).fix
    shop.execute("DELETE FROM film WHERE id = 3", "INSERT INTO film VALUES (4, 'four', 4, 4)")
    shop.look()
    shop.discover()
    shop.declare(schema_changes="add", added_columns="follow")
    roll_back(shop.settings, CAPTURE, "public.film")
    assert shop.discover().changed == ("public.film",)
    assert ingested(shop) == 3
    shop.load("film", spark)
    assert rows(shop, "title", "n", "note") == shop.source("film")
    assert shop.states()["film"].copies == 0


def test_another_copy_takes_the_columns_as_they_are(shop, spark):
    followed(shop, "reject", "film")
    shop.execute("ALTER TABLE film ADD note int DEFAULT 5", "UPDATE film SET note = 4 WHERE id = 2")
    refused(shop)
    assert roll_back(shop.settings, CAPTURE, "public.film", copies=True).phase == "init"
    shop.settle("film")
    shop.load("film", spark)
    assert rows(shop, "title", "n", "note") == shop.source("film")
    shop.execute("ALTER TABLE film DROP note", "UPDATE film SET n = 1 WHERE id = 2")
    assert "note was dropped" in refused(shop).message


def test_a_copy_waits_until_its_pipeline_has_the_columns(shop):
    followed(shop, "reject", "film")
    shop.declare(schema_changes="reject", exclude=["public.actor"])
    shop.execute("CREATE TABLE late (id bigint PRIMARY KEY, n int)", "INSERT INTO late VALUES (1, 1)")
    shop.discover()
    shop.execute("ALTER TABLE late ADD note int DEFAULT 5")
    shop.ingest("late")
    assert shop.phases()["late"] == "init"
    shop.discover()
    shop.settle("late")
    assert [each["note"] for each in shop.records("late")] == [5]


def test_what_is_stored_as_before_is_no_change(shop):
    followed(shop, "reject", "film")
    shop.execute("ALTER TABLE film ALTER title TYPE text", "UPDATE film SET title = repeat('x', 50)")
    shop.discover()
    shop.ingest("film")
    assert shop.held("film") == shop.source("film")


def test_a_change_while_the_table_is_copied_stops_the_copy_until_it_is_taken(shop):
    shop.declare(schema_changes="reject", max_batch_records=100)
    shop.make_tables("film", rows=20_000)
    shop.discover()
    shop.ingest("film", max_batches=1)
    assert shop.phases() == {"film": "data_sync"}
    shop.execute("UPDATE film SET n = 0 WHERE id = 20000", "ALTER TABLE film ADD note int")
    assert "note was added" in refused(shop).message
    shop.declare(schema_changes="add", added_columns="follow", max_batch_records=20_000)
    roll_back(shop.settings, CAPTURE, "public.film")
    shop.discover()
    shop.settle("film")
    assert shop.held("film") == {key: row[:2] for key, row in shop.source("film").items()}
    assert shop.states()["film"].copies == 0


@pytest.mark.parametrize("fixture", ["shop", "direct"])
def test_rows_with_a_type_that_the_table_cannot_hold_are_dead_letters_until_it_is_copied_again(
    request, fixture, spark
):
    shop: Captured = request.getfixturevalue(fixture)
    followed(shop, "quarantine", "film")
    shop.execute(
        "UPDATE film SET n = 7 WHERE id = 1",
        "ALTER TABLE film ALTER n TYPE text",
        "UPDATE film SET n = 'many' WHERE id = 2",
        "DELETE FROM film WHERE id = 3",
    )
    shop.look()
    shop.discover()
    take_up(shop, spark)
    assert rows(shop, "title", "n") == {1: ("film 1", 7), 2: ("film 2", 2)}
    name = "shop_film_source_rejects" if shop.keeps_records else "shop_film_rejects"
    (letter,) = shop.home.rows(name)
    assert letter["reason"] == "SchemaChanged"
    assert "n is text instead of int4" in letter["error"]
    assert "etl-assets cdc rollback shop public.film --copy" in letter["error"]
    assert shop.phases() == {"film": "ready"}
    roll_back(shop.settings, CAPTURE, "public.film", copies=True)
    for _ in range(3):
        take_up(shop, spark)
        shop.look()
    assert shop.phases() == {"film": "ready"}
    assert rows(shop, "title", "n") == shop.source("film")


def test_a_type_never_becomes_narrower(shop, spark):
    followed(shop, "widen", "film")
    shop.execute("ALTER TABLE film ALTER n TYPE bigint", "UPDATE film SET n = 5000000000 WHERE id = 1")
    shop.discover()
    shop.ingest("film")
    shop.load("film", spark)
    shop.execute(
        "UPDATE film SET n = 5 WHERE id = 1", "ALTER TABLE film ALTER n TYPE int", "UPDATE film SET n = n + 1"
    )
    assert shop.discover().changed == ()
    shop.ingest("film")
    shop.load("film", spark)
    assert rows(shop, "title", "n") == shop.source("film")


def test_a_copy_that_is_asked_for_while_the_server_is_away_waits_for_the_columns(shop, monkeypatch):
    followed(shop, "reject", "film")
    shop.execute("ALTER TABLE film ADD note int DEFAULT 5", "UPDATE film SET note = 4 WHERE id = 2")
    refused(shop)
    shop.discover()

    def away(*arguments: Any) -> None:
        raise SourceUnavailable("the server is away", fix="wait")

    with monkeypatch.context() as patch:
        patch.setattr(Discovery, "run", away)
        roll_back(shop.settings, CAPTURE, "public.film", copies=True)
    shop.ingest("film")
    assert shop.phases() == {"film": "init"}
    shop.discover()
    shop.settle("film")
    assert {each["id"]: each["note"] for each in shop.records("film")[-3:]} == {1: 5, 2: 4, 3: 5}


@pytest.mark.kill
@pytest.mark.parametrize("fixture", ["shop", "direct"])
def test_a_run_killed_when_the_rows_of_a_former_type_were_removed_is_completed_by_the_next(request, fixture):
    shop: Captured = request.getfixturevalue(fixture)
    followed(shop, "widen", "film")
    if shop.keeps_records:
        shop.load("film")
    version = DeltaTable(str(shop.home.folder("shop_film"))).version()
    shop.execute("ALTER TABLE film ALTER n TYPE text", "UPDATE film SET n = 'many' WHERE id = 2")
    roll_back(shop.settings, CAPTURE, "public.film", copies=True)
    close_readers(shop.home.path)
    failpoint = f"{Failpoint.TABLE_AFTER_COMMIT}@shop_film"
    done = shop.home.call("run", failpoint=failpoint)
    assert done.code != 0, done
    assert DeltaTable(str(shop.home.folder("shop_film"))).version() == version + 1
    assert rows(shop, "title", "n") == {}  # it died with the first of its commits
    for _ in range(2):
        done = shop.home.call("run")
        assert done.code == 0, done
    assert rows(shop, "title", "n") == shop.source("film")
