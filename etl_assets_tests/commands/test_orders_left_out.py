"""An installation that leaves the orders pipeline out, by its commands in fresh processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etl_assets_tests.commands.expected import DAY, NEXT_DAY, TABLES, event, land, lines, tables
from etl_assets_tests.commands.home import Home, StepOutcome

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

RATINGS = "id,film,stars\n1,Alien,5\n2,Brazil,4\n2,Brazil,3\n,Casablanca,5\n"
PIPELINE = """\
name: film_ratings
source: {type: files, path: "incoming/*.csv", id: [id, stars]}
columns:
  id: {type: bigint, required: true}
  film: string
  stars: int
table: {keys: [id]}
"""


def succeeded(done: StepOutcome) -> str:
    assert done.code == 0, str(done)
    assert "Traceback" not in done.err, str(done)
    return done.out


def asked(home: Home, *arguments: str) -> Any:
    return json.loads(succeeded(home.call(*arguments, "--json")))


def listed(home: Home) -> dict[str, Any]:
    return {table["name"]: table for table in asked(home, "tables")}


def test_one_pipeline_of_ones_own_and_nothing_else(tmp_path: Path):
    home = Home(path=tmp_path / "home").begin(pipelines={"built_in": []})
    (home.path / "incoming").mkdir()
    (home.path / "incoming" / "first.csv").write_text(RATINGS)
    succeeded(
        home.call("pipelines", "new", "film_ratings", "--from", str(home.path / "incoming" / "first.csv"))
    )
    (home.path / "pipelines" / "film_ratings.yaml").write_text(PIPELINE)

    figures = asked(home, "run")
    assert figures["film_ratings_source"] == {"read": 4, "accepted": 3, "rejected": 1, "inserted": 3}
    assert figures["film_ratings"] == {"read": 3, "inserted": 2, "ignored": 1}
    assert set(figures) == {"film_ratings_source", "film_ratings", "dead_letters"}

    assert {name: table["rows"] for name, table in listed(home).items() if table["rows"]} == {
        "film_ratings_source": 3,
        "film_ratings_source_rejects": 1,
        "film_ratings": 2,
        "dead_letters": 1,
    }
    rows = asked(home, "sql", "select id, stars from film_ratings order by id")
    assert rows == [{"id": 1, "stars": 5}, {"id": 2, "stars": 3}]
    told = asked(home, "trace", "[2, 3]")
    assert (told["line"], [row["stars"] for row in told["rows"]], told["left_out"]) == (4, [3], False)
    assert asked(home, "trace", "[2, 4]")["left_out"]

    findings = asked(home, "doctor")
    assert {finding["status"] for finding in findings} == {"ok"}
    assert "landing folder" not in {finding["check"] for finding in findings}
    assert not (home.path / "landing").exists()
    assert {path.name for path in (home.path / "data" / "tables").iterdir()} == {
        "film_ratings_source",
        "film_ratings_source_rejects",
        "film_ratings",
        "dead_letters",
    }


@pytest.mark.full
def test_orders_can_be_left_out_later_and_taken_up_again(tmp_path: Path):
    start = {"start_date": DAY}
    home = land(Home(path=tmp_path / "home").begin(**start), days=1)
    succeeded(home.call("run"))
    before = tables(home)

    home.begin(**start, pipelines={"built_in": []})
    home.land(NEXT_DAY, "a.jsonl", lines(event(7, NEXT_DAY)))
    assert set(TABLES) < set(listed(home)), "they can be read, like every table under the roots"
    assert "nothing to do" in home.call("run").err
    letters = asked(home, "dead-letters", "list")
    assert {letter["stage"] for letter in letters} == {"ingest", "normalize"}
    assert {finding["status"] for finding in asked(home, "doctor")} == {"ok"}
    assert tables(home) == before, "what is left out is not touched"

    home.begin(**start)
    assert set(TABLES) < set(listed(home))
    assert asked(home, "run")["raw_events"] == {"read": 1, "accepted": 1, "inserted": 1}
    assert "nothing to do" in home.call("run").err
