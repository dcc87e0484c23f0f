"""Captures: many tables of one database by one slot, their phases, and what dies in between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etl_assets_tests.sources.captured import Captured


@pytest.fixture
def shop(postgres_server, tmp_path) -> Iterator[Captured]:
    found = Captured.create(postgres_server, tmp_path)
    yield found
    found.close()


def test_two_tables_are_copied_and_then_followed_by_one_slot(shop):
    shop.make_tables("film", "actor")
    assert shop.discover().added == ("public.actor", "public.film")
    assert set(shop.phases().values()) == {"init"}
    shop.ingest("film")
    shop.execute("UPDATE film SET title = 'two' WHERE id = 2", "DELETE FROM actor WHERE id = 1")
    shop.settle("film", "actor")
    shop.execute(
        "INSERT INTO film VALUES (9, 'nine', 9)",
        "BEGIN; DELETE FROM actor; INSERT INTO actor VALUES (7, 'seven', 7); DELETE FROM film WHERE id = 1; COMMIT",
        "UPDATE actor SET id = 8 WHERE id = 7",
    )
    for table in ("film", "actor"):
        shop.ingest(table)
        assert shop.held(table) == shop.source(table)
        assert shop.ingest(table).commits == 0
    slots = shop.session.execute(
        "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s", [shop.name]
    )
    assert slots.fetchone() == (1,)
    assert shop.states()["film"].rows_copied == 3
