"""A table of PostgreSQL followed by the commands that a user types: runs that are killed, and the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etl_assets.failpoints import Failpoint
from etl_assets_tests.sources.followed import Followed

pytestmark = [pytest.mark.spark, pytest.mark.kill]


@pytest.fixture
def films(postgres_server, tmp_path) -> Iterator[Followed]:
    found = Followed.create(postgres_server, tmp_path)
    found.execute("INSERT INTO film SELECT n, 'film ' || n, 'PG' FROM generate_series(1, 6) n")
    died(found, f"{Failpoint.TABLE_AFTER_COMMIT}@people_source")
    yield found
    found.close()


def died(films: Followed, failpoint: str) -> None:
    done = films.pipeline.home.start("run", failpoint=failpoint).ended(240)
    assert done.code != 0, done


def run_again(films: Followed) -> str:
    """What a run says after which the table has the rows of the source."""
    done = films.pipeline.home.start("run").ended(240)
    assert done.code == 0, done
    rows = films.pipeline.home.rows("people")
    assert {row["film_id"]: (row["title"], row["rating"]) for row in rows} == films.films()
    return done.out + done.err


def test_a_copy_that_was_killed_is_completed_and_followed_by_the_next_run(films):
    films.execute(
        "UPDATE film SET title = 'one' WHERE film_id = 1",
        "TRUNCATE film",
        "INSERT INTO film VALUES (2, 'back', 'R'), (7, 'seven', NULL), (8, 'eight', 'G')",
        "DELETE FROM film WHERE film_id = 7",
        "UPDATE film SET film_id = 30 WHERE film_id = 8",
    )
    run_again(films)


@pytest.mark.full
def test_runs_that_are_killed_again_and_again_lose_nothing(films):
    films.execute(
        "UPDATE film SET title = 'one' WHERE film_id = 1",
        "DELETE FROM film WHERE film_id = 2",
        "UPDATE film SET film_id = 30 WHERE film_id = 3",
    )
    run_again(films)
    films.execute("TRUNCATE film", "INSERT INTO film VALUES (2, 'back', 'R'), (7, 'seven', NULL)")
    died(films, Failpoint.SOURCE_BEFORE_CONFIRM.value)
    films.execute("DELETE FROM film WHERE film_id = 7", "INSERT INTO film VALUES (8, 'eight', 'G')")
    run_again(films)
    assert "nothing to do" in run_again(films)
