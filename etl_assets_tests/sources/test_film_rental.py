"""The film-rental sample, and the guide's pipelines over it by a user's commands."""

from __future__ import annotations

import json
import os
import re
import urllib.request
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import yaml

from etl_assets.stack.film_rental.database import load_film_rental
from etl_assets.stack.film_rental.pipeline_files import copy_pipelines, pipeline_texts
from etl_assets_tests.commands.home import Home

GUIDE = Path(__file__).parents[2] / "docs" / "sql-to-warehouse.md"
RATINGS = "SELECT film_id, ratings, rating FROM ({}) AS q ORDER BY 1"


@pytest.fixture
def address(postgres_server) -> str:
    name = f"f{uuid.uuid4().hex[:10]}"
    with psycopg.connect(postgres_server.database_url("postgres"), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
    return postgres_server.database_url(name)


def asked(address: str, query: str) -> list[tuple]:
    with psycopg.connect(address) as session:
        return session.execute(query.encode()).fetchall()


def test_the_sample_is_the_same_each_time_and_is_loaded_once(address):
    counts = load_film_rental(address)
    assert counts == {
        "film": 1_000,
        "customer": 592,
        "inventory": 4_000,
        "rental": 16_000,
        "payment": 16_000,
        "film_rating": counts["film_rating"],
    }
    assert 7_500 < counts["film_rating"] < 8_500
    digest = "SELECT sum(hashtextextended(t::text, 0)::numeric)::text FROM film_rental.{} t"
    first = {table: asked(address, digest.format(table)) for table in counts}
    assert asked(address, "SELECT count(DISTINCT title) FROM film_rental.film") == [(1_000,)]
    assert load_film_rental(address, rentals=5) == counts
    with psycopg.connect(address, autocommit=True) as session:
        session.execute("DROP SCHEMA film_rental CASCADE")
    load_film_rental(address)
    assert {table: asked(address, digest.format(table)) for table in counts} == first


def test_the_guide_prints_the_pipelines_as_they_are_shipped():
    printed = re.findall(r"```yaml\n# pipelines/(\S+)\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    texts = pipeline_texts()
    assert dict(printed) == {name: texts[name] for name, _ in printed}
    assert "film_rating_agg.yaml" in dict(printed)
    assert len(texts["film_rating_agg.yaml"].splitlines()) <= 16


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.kill
def test_ratings_follow_the_database_into_the_mart_and_the_index(
    address, postgres_server, opensearch_server, tmp_path, monkeypatch
):
    parts = urlsplit(address)
    monkeypatch.setenv("RENTALS_PASSWORD", postgres_server.password)
    database = {
        "type": "postgres",
        "host": parts.hostname,
        "port": parts.port,
        "database": parts.path.removeprefix("/"),
        "user": parts.username,
        "password": "${RENTALS_PASSWORD}",
    }
    search = {"type": "search", "urls": [opensearch_server.url], "write": ["film_rating_agg*"]}
    home = Home(path=tmp_path / "home").begin(
        start_date="2026-01-01",
        pipelines={"built_in": []},
        connections={
            "rentals": database,
            "warehouse": {**database, "write": ["analytics.*"]},
            "search": search,
        },
    )
    load_film_rental(address, rentals=800)
    copy_pipelines(home.path / "pipelines")
    query = yaml.safe_load(pipeline_texts()["film_rating_agg.yaml"])["source"]["query"]

    def expect_equal() -> None:
        found = asked(address, RATINGS.format(query))
        assert found
        assert asked(address, RATINGS.format("SELECT * FROM analytics.film_rating_agg")) == found
        index = f"{opensearch_server.url}/film_rating_agg"
        urllib.request.urlopen(urllib.request.Request(f"{index}/_refresh", method="POST")).close()
        with urllib.request.urlopen(f"{index}/_search?size=5000") as answer:
            hits = json.load(answer)["hits"]["hits"]
        documents = sorted((each["_source"]["film_id"], each["_source"]["ratings"]) for each in hits)
        assert documents == [(film_id, ratings) for film_id, ratings, _ in found]

    assert home.call("pipelines", "validate", seconds=200).code == 0
    done = home.call("run", seconds=280)
    assert done.code == 0, done
    expect_equal()
    assert len(home.rows("films")) == 50
    assert len(home.rows("rentals")) == 800
    # A film is rated again, another one loses its ratings, and a run dies between the targets.
    (one, other) = asked(
        address, "SELECT film_id FROM analytics.film_rating_agg ORDER BY ratings DESC, film_id LIMIT 2"
    )
    rated = (
        "(SELECT r.rental_id FROM film_rental.rental r JOIN film_rental.inventory i USING (inventory_id)"
        " WHERE i.film_id = {})"
    )
    with psycopg.connect(address, autocommit=True) as session:
        session.execute(
            f"UPDATE film_rental.film_rating SET stars = 1 WHERE rental_id IN {rated.format(one[0])}".encode()
        )
        session.execute(
            f"DELETE FROM film_rental.film_rating WHERE rental_id IN {rated.format(other[0])}".encode()
        )
    assert home.call("run", failpoint="sink.after_target_commit", seconds=280).code == -9
    done = home.call("run", seconds=280)
    assert done.code == 0, done
    expect_equal()
    film_ids = [film_id for film_id, *_ in asked(address, "SELECT * FROM analytics.film_rating_agg")]
    assert one[0] in film_ids
    assert other[0] not in film_ids
    done = home.call("run", seconds=200)
    assert "nothing to do" in done.err, done
    assert os.environ["RENTALS_PASSWORD"] not in done.err + done.out
