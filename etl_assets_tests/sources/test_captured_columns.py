"""Captured tables whose columns change under writes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etl_assets_tests.sources.captured import Captured


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
    shop.settle("film")
    shop.load("film", spark)
    held = {row["id"]: (row["title"], row["n"], row["note"]) for row in shop.home.rows("shop_film")}
    assert held == shop.source("film")
