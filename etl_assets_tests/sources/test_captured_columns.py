"""Captured tables whose columns change under writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from etl_assets.sources.captures.discovery import Discovery
from etl_assets.sources.captures.table_states import change_state
from etl_assets_tests.sources.captured import Captured, step_of


@pytest.fixture
def shop(postgres_server, tmp_path) -> Iterator[Captured]:
    found = Captured.create(postgres_server, tmp_path)
    yield found
    found.close()


def test_rows_that_were_written_with_a_new_column_before_discovery_have_its_values(shop, spark):
    shop.make_tables("film")
    shop.discover()
    shop.settle("film")
    shop.load("film")
    shop.execute(
        "ALTER TABLE film ADD note int DEFAULT 7",
        "INSERT INTO film VALUES (10, 'ten', 1, 3)",
        "UPDATE film SET note = 4 WHERE id = 1",
    )
    shop.ingest("film")
    shop.load("film")
    assert shop.discover().changed == ("public.film",)
    assert shop.phases()["film"] == "init"
    shop.settle("film")
    shop.load("film", spark)
    held = {row["id"]: (row["title"], row["n"], row["note"]) for row in shop.home.rows("shop_film")}
    assert held == shop.source("film")


def test_where_columns_are_followed_nothing_is_copied_again(shop):
    shop.declare(added_columns="follow")
    shop.make_tables("film")
    shop.discover()
    shop.settle("film")
    shop.execute("ALTER TABLE film ADD note int DEFAULT 7")
    assert shop.discover().changed == ("public.film",)
    assert shop.phases()["film"] == "ready"


def test_a_process_that_does_not_know_a_new_column_reads_nothing_of_the_table(shop):
    shop.make_tables("film")
    shop.discover()
    shop.settle("film")
    with closing(shop.opened("film")) as before:
        shop.execute("ALTER TABLE film ADD note int DEFAULT 7")
        shop.discover()
        positions = shop.positions("film")
        assert before.plan(positions, max_bytes=1 << 20, max_records=1_000) is None
        with closing(shop.opened("film")) as after:
            assert after.plan(positions, max_bytes=1 << 20, max_records=1_000) is not None


def test_a_process_that_does_not_know_a_new_column_loads_nothing_of_a_new_copy(shop, spark):
    shop.make_tables("film")
    shop.discover()
    shop.settle("film")
    shop.load("film")
    before = step_of(shop.home, "shop_film", spark=spark)
    shop.execute("ALTER TABLE film ADD note int DEFAULT 7")
    shop.discover()
    shop.settle("film")
    assert before.run([]).commits == 0
    shop.load("film", spark)
    assert before.run([]).commits == 0
    assert {row["id"]: row["note"] for row in shop.home.rows("shop_film")} == {1: 7, 2: 7, 3: 7}


def test_a_table_is_copied_again_although_its_step_goes_on_meanwhile(shop, monkeypatch):
    shop.make_tables("film")
    shop.discover()
    shop.settle("film")
    shop.execute("ALTER TABLE film ADD note int DEFAULT 7")
    describe = Discovery._described

    def described(self: Discovery, *arguments: Any) -> Any:
        found = describe(self, *arguments)
        state = arguments[-1]
        change_state(self.reader.states, "shop", state.table, lambda each: replace(each, rows_copied=99))
        return found

    monkeypatch.setattr(Discovery, "_described", described)
    shop.discover()
    assert shop.phases()["film"] == "init"


def test_a_column_that_came_while_the_table_was_in_error_has_its_values_once_it_is_corrected(shop):
    shop.make_tables("film")
    shop.discover()
    shop.settle("film")
    shop.execute("ALTER TABLE film DROP CONSTRAINT film_pkey")
    assert shop.discover().errored == ("public.film",)
    shop.execute("ALTER TABLE film ADD stars int DEFAULT 5", "ALTER TABLE film ADD PRIMARY KEY (id)")
    shop.discover()
    shop.settle("film")
    stars = {row["id"]: row.get("stars") for row in shop.records("film") if row.get("id")}  # the newest ones
    assert stars == {1: 5, 2: 5, 3: 5}
