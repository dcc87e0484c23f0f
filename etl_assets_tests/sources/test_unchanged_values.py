"""Updates that lack long values, as PostgreSQL logs them without REPLICA IDENTITY FULL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from etl_assets.errors import SourceRefused
from etl_assets.failpoints import Failpoint
from etl_assets_tests.sources.followed import Followed


@pytest.fixture
def films(postgres_server, tmp_path) -> Iterator[Followed]:
    found = Followed.create(postgres_server, tmp_path)
    found.execute(
        "ALTER TABLE film REPLICA IDENTITY DEFAULT",
        "ALTER TABLE film ALTER title SET STORAGE EXTERNAL",
    )
    yield found
    found.close()


def held(films: Followed) -> dict[Any, Any]:
    rows = films.pipeline.home.rows("people")
    return {row["film_id"]: (row["title"], row["rating"]) for row in rows}


def follow(films: Followed) -> None:
    films.ingest()
    films.pipeline.load(None)
    assert held(films) == films.films()


def long(films: Followed, *ids: int) -> None:
    for each in ids:
        films.execute(f"INSERT INTO film VALUES ({each}, repeat('{each}', 5000), 'R')")


def lacking(films: Followed) -> list[Any]:
    return [each["film_id"] for each in films.records() if each.get("postgres.unavailable")]


def test_an_update_keeps_a_long_value_that_it_does_not_change(films):
    long(films, 1, 2, 3)
    follow(films)
    films.execute("UPDATE film SET rating = 'PG' WHERE film_id < 3")
    follow(films)
    assert lacking(films) == [1, 2]
    films.execute("UPDATE film SET title = repeat('new', 3000) WHERE film_id = 1")
    films.execute("UPDATE film SET rating = 'G'", "UPDATE film SET rating = 'X' WHERE film_id = 1")
    long(films, 4)
    films.execute("UPDATE film SET rating = NULL WHERE film_id = 4")
    films.execute("UPDATE film SET title = NULL WHERE film_id = 2", "UPDATE film SET rating = 'N'")
    follow(films)
    films.execute("DELETE FROM film WHERE film_id = 3")
    long(films, 3)
    films.execute("UPDATE film SET rating = 'again' WHERE film_id = 3")
    follow(films)
    films.execute("TRUNCATE film")
    long(films, 3)
    films.execute("UPDATE film SET rating = 'after' WHERE film_id = 3")
    follow(films)


def test_a_changed_key_takes_the_long_value_from_the_row_of_the_key_before(films):
    long(films, 1, 2)
    follow(films)
    films.execute("UPDATE film SET film_id = 10 WHERE film_id = 1")
    follow(films)
    # A chain in one batch, in one transaction, and a key that another row takes.
    films.execute(
        "UPDATE film SET film_id = 11 WHERE film_id = 10",
        "UPDATE film SET film_id = 12, rating = 'PG' WHERE film_id = 11",
        "BEGIN; UPDATE film SET film_id = 3 WHERE film_id = 2; UPDATE film SET film_id = 4 WHERE film_id = 3;"
        " INSERT INTO film VALUES (3, 'short', NULL); COMMIT",
    )
    long(films, 2)
    films.execute(
        "BEGIN; UPDATE film SET film_id = 99 WHERE film_id = 2",
        "UPDATE film SET film_id = 2 WHERE film_id = 4",
        "UPDATE film SET film_id = 4 WHERE film_id = 99; COMMIT",
    )
    follow(films)
    assert lacking(films)[-3:] == [99, 2, 4]
    films.execute("UPDATE film SET film_id = film_id + 1000")
    follow(films)


@pytest.mark.kill
@pytest.mark.parametrize("failpoint", [Failpoint.TABLE_BEFORE_COMMIT, Failpoint.TABLE_AFTER_COMMIT])
def test_values_are_kept_when_the_step_dies_around_the_commit_of_rows_or_tombstones(films, failpoint):
    long(films, 1, 2)
    follow(films)
    for table in ("people", "people_tombstones"):
        films.execute(
            "UPDATE film SET film_id = film_id + 10, rating = 'PG'", "UPDATE film SET film_id = film_id + 10"
        )
        films.ingest()
        films.load_and_die(f"{failpoint}@{table}")
        follow(films)


def test_transforms_need_whole_rows_and_say_so(films):
    long(films, 1)
    films.declare(
        transforms=[{"type": "map", "columns": {"size": {"type": "int", "expression": "length(title)"}}}]
    )
    with pytest.raises(SourceRefused, match=r"transforms take whole rows.*title, rating") as refused:
        films.ingest()
    assert refused.value.fix == "ALTER TABLE public.film REPLICA IDENTITY FULL"
    assert films.confirmed() is None


def test_a_required_column_that_an_update_lacks_is_not_missing(films):
    columns = {
        "film_id": "bigint",
        "title": {"type": "string", "required": True, "not_empty": True},
        "rating": "string",
    }
    films.declare(columns=columns)
    long(films, 1)
    follow(films)
    films.execute("UPDATE film SET rating = 'PG'")
    follow(films)
    assert not films.pipeline.home.rows("people_rejects")
