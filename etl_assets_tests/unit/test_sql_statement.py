"""The text of a query of a source of type sql."""

from __future__ import annotations

import pytest

from etl_assets.errors import QueryRefused
from etl_assets.pipelines.query_text import as_table, single_query


@pytest.mark.parametrize(
    "query",
    [
        "SELECT ':x' AS a, '%s {}' AS b, ';' AS c FROM t -- a comment; with a semicolon",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "SELECT $body$ ; ' $body$, $$ ; $$",
        "SELECT 1 /* ; /* nested ; */ ; */",
        "(SELECT 1) UNION (SELECT 2)",
        "SELECT 1 AS \"update\", 'it''s;', E'\\';'",
        "SELECT replace('a', 'b', 'c'), updated FROM t",
    ],
)
def test_a_query_stays_as_it_is(query):
    assert single_query(query) == query
    assert as_table(query) == f"(\n{query}\n) AS q"


@pytest.mark.parametrize("end", [";", " ; ", ";;", "; -- done"])
def test_a_semicolon_at_the_end_is_no_second_statement(end):
    assert single_query(f"SELECT 1{end}").strip() == "SELECT 1"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 1; SELECT 2", "more than one statement"),
        ("SELECT 1; 2", "more than one statement"),
        ("", "empty"),
        ("-- nothing", "empty"),
        ("DROP TABLE t", "begins with DROP"),
        ("WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a", "writes, by DELETE"),
        ("WITH a AS MATERIALIZED ( /* x */ INSERT INTO t VALUES (1) RETURNING *) SELECT 1", "by INSERT"),
        ("SELECT 1) AS q; DROP TABLE t", "closes a parenthesis"),
        ("SELECT (1", "does not close"),
        ("SELECT 'open", "not closed"),
        ("SELECT 1 /* open", "not closed"),
    ],
)
def test_anything_else_is_refused(query, message):
    with pytest.raises(QueryRefused, match=message):
        single_query(query)
