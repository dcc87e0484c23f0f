"""A table of PostgreSQL followed by the commands that a user types: runs that are killed, and the next."""

from __future__ import annotations

import pytest

from etl_assets.failpoints import Failpoint
from etl_assets_tests.sources.followed import Followed

pytestmark = [pytest.mark.spark, pytest.mark.kill]


def test_a_killed_run_is_completed_and_the_table_has_the_rows_of_the_source(postgres_server, tmp_path):
    films = Followed.create(postgres_server, tmp_path)
    home = films.pipeline.home

    def rows() -> dict[int, tuple[str, str]]:
        return {row["film_id"]: (row["title"], row["rating"]) for row in home.rows("people")}

    try:
        # 1. A copy that dies after its commit, and is followed by changes of the rows that it has.
        films.execute("INSERT INTO film SELECT n, 'film ' || n, 'PG' FROM generate_series(1, 6) n")
        died = home.start("run", failpoint=f"{Failpoint.TABLE_AFTER_COMMIT}@people_source").ended(240)
        assert died.code != 0, died
        films.execute(
            "UPDATE film SET title = 'one' WHERE film_id = 1",
            "DELETE FROM film WHERE film_id = 2",
            "UPDATE film SET film_id = 30 WHERE film_id = 3",
        )
        done = home.start("run").ended(240)
        assert done.code == 0, done
        assert rows() == films.films()
        # 2. A run that dies before it confirms, and a truncate.
        films.execute("TRUNCATE film", "INSERT INTO film VALUES (2, 'back', 'R'), (7, 'seven', NULL)")
        died = home.start("run", failpoint=Failpoint.SOURCE_BEFORE_CONFIRM.value).ended(240)
        assert died.code != 0, died
        films.execute("DELETE FROM film WHERE film_id = 7", "INSERT INTO film VALUES (8, 'eight', 'G')")
        done = home.start("run").ended(240)
        assert done.code == 0, done
        assert rows() == films.films() == {2: ("back", "R"), 8: ("eight", "G")}
        again = home.start("run").ended(240)
        assert "nothing to do" in again.out + again.err, again
    finally:
        films.close()
