"""A run of a project's pipelines, by the command that a user types, and what other commands then know of
it.
"""

from __future__ import annotations

import datetime as dt
import json

import pytest

from etl_assets_tests.components.dagster_project import BROKEN, FILMS, RATINGS, component, dagster_project

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_files_become_rows_and_dead_letters_that_all_commands_know(tmp_path):
    project = dagster_project(tmp_path / "shop")
    project.write("films", component(FILMS))
    project.write("ratings", component(RATINGS))
    project.write("cinemas", component(BROKEN))
    project.land("films", "a.csv", "film,title\n1,Solaris\n2,Stalker\n")
    project.land("film_ratings", "a.csv", "rating_id,film,stars\n1,1,5\n2,7,4\n3,1,9\n")
    today = dt.datetime.now(dt.UTC).date().isoformat()
    chosen = " or ".join(
        f"key:{name}" for name in ("films_source", "films", "film_ratings_source", "film_ratings")
    )
    # 1. The process of the run finds the declarations by itself.
    output = project.shell("dg", "launch", "--assets", chosen, "--partition", today)
    assert "RUN_SUCCESS" in output
    # 2. Commands that know nothing of Dagster's project read and carry on the same tables.
    query = "select rating_id, stars, title from film_ratings order by 1"
    assert json.loads(project.shell("etl-assets", "sql", query, "--format", "json")) == [
        {"rating_id": 1, "stars": 5, "title": "Solaris"},
        {"rating_id": 2, "stars": 4, "title": None},
    ]
    project.land("film_ratings", "b.csv", "rating_id,film,stars\n4,2,3\n")
    project.shell("etl-assets", "run")
    assert json.loads(project.shell("etl-assets", "sql", query, "--format", "json"))[2:] == [
        {"rating_id": 4, "stars": 3, "title": "Stalker"}
    ]
    (dead,) = json.loads(project.shell("etl-assets", "dead-letters", "list", "--json"))
    assert (dead["stage"], dead["state"]) == ("film_ratings", "open")
    # 3. What has been read is not read again, here by a run of the instance that commands use.
    instance = {"DAGSTER_HOME": str(project.home / "dagster")}
    chosen = "key:film_ratings_source or key:film_ratings"
    again = project.shell("dg", "launch", "--assets", chosen, "--partition", today, more=instance)
    assert "film_ratings: 0 inserted, 0 updated" in again
    assert len(json.loads(project.shell("etl-assets", "sql", query, "--format", "json"))) == 3
