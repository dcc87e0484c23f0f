"""What can go wrong with a capture: each thing has its named error, and a way out that loses nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest

from etl_assets.captures import roll_back
from etl_assets.errors import SourceLost, SourceRefused, StorageFailed
from etl_assets.sources.captures.connect import close_readers, table_states
from etl_assets.sources.captures.table_states import change_state
from etl_assets_tests.sources.captured import CAPTURE, Captured


@pytest.fixture
def shop(postgres_server, tmp_path) -> Iterator[Captured]:
    found = Captured.create(postgres_server, tmp_path)
    found.make_tables("film", "actor")
    found.discover()
    found.settle("film", "actor")
    yield found
    found.close()


def follow(shop: Captured, *tables: str) -> None:
    for table in tables:
        shop.ingest(table)
        assert shop.held(table) == shop.source(table)


def test_a_dropped_publication_is_named_and_loses_nothing_after_another_copy(shop):
    shop.execute("DROP PUBLICATION shop", "UPDATE film SET n = 7", "DELETE FROM actor WHERE id = 1")
    for _ in range(2):  # from version 18 on the server itself says nothing
        with pytest.raises(SourceLost, match="the publication shop was dropped"):
            shop.ingest("film")
        shop.discover()  # makes it again, which brings nothing back
    shop.declare(on_lost="copy")
    shop.look()
    shop.settle("film", "actor")
    follow(shop, "film", "actor")


def test_another_server_behind_the_connection_is_refused(shop):
    state = shop.reader.spool.state()
    assert state is not None
    shop.reader.spool.write_state(replace(state, system="another"))
    shop.execute("UPDATE film SET n = 7")
    with pytest.raises(SourceRefused, match="leads to another PostgreSQL server"):
        shop.ingest("film")
    shop.reader.spool.write_state(state)
    follow(shop, "film")


def test_a_spool_that_cannot_be_written_confirms_nothing(shop, monkeypatch):
    from etl_assets.sources.captures import spool

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    shop.execute("UPDATE film SET n = 7")
    before = shop.confirmed()
    with monkeypatch.context() as disk:
        disk.setattr(spool, "write_durably", full)
        with pytest.raises(StorageFailed, match="changes cannot be written into"):
            shop.look()
    assert shop.confirmed() == before
    follow(shop, "film")


def test_a_table_that_takes_nothing_up_is_in_error_and_the_others_go_on(shop):
    shop.declare(max_spool_bytes=1_048_576)
    shop.execute(
        "INSERT INTO film SELECT i, repeat('x', 40), i FROM generate_series(10, 30000) i",
        "UPDATE actor SET n = 7",
    )
    shop.look()
    error = shop.states()["film"].error
    assert error is not None
    assert "bytes of changes in the spool that it did not take up" in error.reason
    follow(shop, "actor")
    roll_back(shop.settings, CAPTURE, "public.film", copies=True)
    shop.settle("film")
    follow(shop, "film")


def test_a_table_that_was_set_back_is_in_error_until_it_is_copied_again(shop):
    shop.execute("UPDATE film SET n = 7")
    shop.ingest("film")
    close_readers(shop.settings.home)
    folder = shop.home.folder(f"{CAPTURE}_film_source")
    assert folder is not None
    shutil.rmtree(folder)
    with pytest.raises(SourceLost, match="they were committed, and the table was then set back"):
        shop.ingest("film")
    change_state(table_states(shop.settings), CAPTURE, "public.film", lambda each: each)
    roll_back(shop.settings, CAPTURE, "public.film", copies=True)
    shop.settle("film")
    follow(shop, "film", "actor")


@pytest.mark.parametrize(
    "statements",
    [
        (
            "ALTER PUBLICATION shop DROP TABLE film",
            "UPDATE film SET n = 7",
            "ALTER PUBLICATION shop ADD TABLE film",
        ),
        (
            "ALTER PUBLICATION shop SET (publish = 'insert')",
            "DELETE FROM film WHERE id = 1",
            "ALTER PUBLICATION shop SET (publish = 'insert, update, delete, truncate')",
        ),
        ("UPDATE film SET n = 7",),
    ],
    ids=["dropped and added", "operations", "neither"],
)
def test_changes_of_a_time_without_the_publication_are_found_by_another_copy(shop, statements):
    shop.execute(*statements)
    follow(shop, "actor")
    shop.ingest("film")
    shop.discover()
    assert (shop.phases()["film"] == "ready") is (len(statements) == 1)
    shop.settle("film", "actor")
    follow(shop, "film", "actor")
