"""`etl-assets trace` of a record of a declared pipeline, from tables written by hand."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from typing import Any

import pytest
from click.testing import CliRunner

from etl_assets.cli.trace import trace
from etl_assets.delta.log.cursor import cursor_name
from etl_assets.errors import InputError, NotFound
from etl_assets.settings import load_settings
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.written_tables import DAY, NOON, write_table

RATINGS = """\
name: film_ratings
source: {type: files, path: "in/ratings/*.jsonl", id: [id]}
columns:
  id: {type: bigint, required: true}
  stars: {type: int, at_least: 1}
table: {keys: [id]}
"""
LETTER = "d" * 64


@pytest.fixture
def domain(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "film_ratings.yaml").write_text(RATINGS)
    return load_settings().placement().domains[0]


def accepted(record_id: str, offset: int, **columns: Any) -> dict[str, Any]:
    position = f"{DAY}/first.jsonl:{offset + 1}"
    return {
        "record_id": record_id,
        "record": "{}",
        "offset": offset,
        "source": "files",
        "source_position": position,
        "ingested_at": NOON,
        "batch_id": 0,
        **columns,
    }


def rejected(stage: str, **columns: Any) -> dict[str, Any]:
    return {
        "exception_id": LETTER,
        "stage": stage,
        "outcome": "rejected",
        "reason": "ContractViolation",
        "error": "stars: 0 is less than 1",
        "source": "files",
        "source_position": f"{DAY}/first.jsonl:8",
        "failed_at": NOON + dt.timedelta(seconds=5),
        **columns,
    }


def loaded(domain, *rows: dict[str, Any]) -> None:
    """The table with some rows, after it has read the source."""
    write_table(
        domain,
        "film_ratings",
        [{"_batch_id": 0, **row} for row in rows],
        {cursor_name("film_ratings_source", None): 0},
    )


def called(*arguments: str):
    return CliRunner().invoke(trace, [*arguments])


def history(*arguments: str) -> dict[str, Any]:
    result = called(*arguments, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def told(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["stage"], each["outcome"]) for each in answer["happenings"]]


def test_a_record_is_followed_by_its_id_from_its_line_to_its_row(domain, tmp_path):
    write_table(domain, "film_ratings_source", [accepted("7", 0), accepted("8", 1)])
    loaded(domain, {"id": 7, "stars": 4, "_offset": 0}, {"id": 8, "stars": 2, "_offset": 1})
    answer = history("8")
    assert (answer["pipeline"], answer["record_id"], answer["offset"]) == ("film_ratings", "8", 1)
    assert (answer["file"], answer["line"]) == (str(tmp_path / "in" / "ratings" / "first.jsonl"), 2)
    assert told(answer) == [("film_ratings_source", "accepted"), ("film_ratings", "committed")]
    assert [(row["id"], row["stars"]) for row in answer["rows"]] == [(8, 2)]
    assert (answer["waiting_for"], answer["left_out"]) == ([], False)
    shown = called("8").stdout
    assert "row       in film_ratings: id 8, stars 2" in shown


def test_what_the_table_has_not_read_yet_is_said_to_wait(domain):
    write_table(domain, "film_ratings_source", [accepted("7", 0)])
    assert history("7")["waiting_for"] == ["film_ratings"]
    loaded(domain, {"id": 1, "_offset": 9})
    assert history("7")["waiting_for"] == []


def test_a_record_without_a_row_that_nothing_rejected_was_left_out(domain):
    write_table(domain, "film_ratings_source", [accepted("7", 0)])
    loaded(domain, {"id": 1, "_offset": 9})
    assert history("7")["left_out"]
    assert "none in film_ratings" in called("7").stdout


def test_duplicates_and_rejects_of_both_stages_are_in_the_history(domain):
    write_table(domain, "film_ratings_source", [accepted("7", 0)])
    loaded(domain, {"id": 1, "_offset": 9})
    again = {"exception_id": "1" * 64, "outcome": "duplicate", "reason": None, "error": None}
    write_table(
        domain,
        "film_ratings_source_rejects",
        [rejected("film_ratings_source", event_id="7", original_offset=0, **again)],
    )
    write_table(domain, "film_ratings_rejects", [rejected("film_ratings", original_offset=0)])
    letter = {
        "dead_letter_id": LETTER,
        "stage": "film_ratings",
        "reason": "ContractViolation",
        "state": "open",
    }
    write_table(domain, "dead_letters", [{**letter, "source": "files", "failed_at": NOON}])
    answer = history("7")
    assert told(answer) == [
        ("film_ratings_source", "accepted"),
        ("film_ratings_source", "duplicate"),
        ("film_ratings", "rejected"),
    ]
    assert [each["line"] for each in answer["happenings"]] == [1, 8, None]
    assert [each["dead_letter_id"] for each in answer["dead_letters"]] == [LETTER]
    assert not answer["left_out"]


def test_a_correction_that_was_replayed_belongs_to_its_record_and_an_id_that_looks_alike_does_not(domain):
    replay = {"source": "dead_letters", "source_position": f"{DAY}/{LETTER}.2.jsonl:1"}
    other = accepted("7@example.org@dddddddddddddddd.2", 3, **replay)
    write_table(
        domain,
        "film_ratings_source",
        [
            accepted("7", 0),
            accepted("7@dddddddddddddddd.2", 1, **replay),
            accepted("7@example.org", 2),
            other,
        ],
    )
    loaded(domain, {"id": 7, "stars": 3, "_offset": 1})
    answer = history("7")
    assert told(answer) == [
        ("film_ratings_source", "accepted"),
        ("film_ratings_source", "replayed"),
        ("film_ratings", "committed"),
    ]
    assert [row["_offset"] for row in answer["rows"]] == [1]


@pytest.mark.parametrize("stored", ['["north",7]', '["north","7"]'], ids=["json", "csv"])
def test_an_id_of_several_fields_is_a_list_whether_or_not_its_file_has_types(domain, stored):
    write_table(domain, "film_ratings_source", [accepted(stored, 0)])
    assert history('["north", 7.0]')["record_id"] == stored


def test_an_id_that_is_stored_by_its_hash_is_found_by_itself(domain):
    long = "x" * 600
    write_table(domain, "film_ratings_source", [accepted(hashlib.sha256(long.encode()).hexdigest(), 0)])
    assert history(long)["offset"] == 0


def test_an_id_that_two_pipelines_have_is_shown_for_both_and_as_json_for_one(domain):
    write_table(domain, "film_ratings_source", [accepted("7", 0)])
    write_table(domain, "raw_events", [{"event_id": "7", "offset": 0, "source_position": f"{DAY}/f.jsonl:1"}])
    shown = called("7").stdout
    assert "event     7" in shown
    assert "record    7 of film_ratings" in shown
    error = called("7", "--json").exception
    assert isinstance(error, InputError)
    assert "orders, film_ratings" in error.message
    assert history("7", "--pipeline", "film_ratings")["record_id"] == "7"
    assert history("7", "--pipeline", "orders")["event_id"] == "7"


@pytest.fixture
def sink(domain, tmp_path):
    """A sink of the pipeline, to which nothing was delivered yet."""
    (tmp_path / "platform.yaml").write_text("connections: {marts: {type: duckdb, path: m.db, write: ['*']}}")
    sinks = "sinks: [{type: duckdb, connection: marts, table: films}]\n"
    (tmp_path / "pipelines" / "film_ratings.yaml").write_text(RATINGS + sinks)
    domain = load_settings().placement().domains[0]
    write_table(domain, "film_ratings_source", [accepted(str(each), each) for each in range(3)])
    loaded(domain, *({"id": each, "stars": 4, "_offset": each, "_batch_id": each} for each in range(3)))
    return domain


def delivered(domain, to_version: int, **columns: Any) -> None:
    snapshot = platform_table("film_ratings", domain).snapshot()
    assert snapshot is not None
    began = {"began_at": NOON, "seconds": 2.0, "rejected": 0, "table_id": snapshot.table_id}
    write_table(
        domain,
        "film_ratings_to_duckdb",
        [{"to_version": to_version, "_batch_id": to_version, **began, **columns}],
    )


def at_sink(record_id: str) -> tuple[list[tuple[str, str, str | None]], list[str]]:
    answer = history(record_id)
    found = [each for each in answer["happenings"] if each["stage"] == "film_ratings_to_duckdb"]
    return [(each["outcome"], each["position"], each["error"]) for each in found], answer["waiting_for"]


def test_the_first_delivery_since_a_row_was_written_is_the_one_that_had_it(sink):
    assert at_sink("1") == ([], ["film_ratings_to_duckdb"])
    delivered(sink, 9, table_id="of a table that was there before")
    delivered(sink, 0)
    assert at_sink("0")[0] == [("delivered", "0", "with version 0 of film_ratings")]
    assert at_sink("1") == ([], ["film_ratings_to_duckdb"])
    delivered(sink, 2)
    delivered(sink, 3)
    assert at_sink("1") == ([("delivered", "1", "with version 2 of film_ratings")], [])
    assert "delivered" in called("2").stdout


@pytest.mark.parametrize(
    "rejected_rows", [1, None]
)  # None: the process that delivered died before it was known
def test_a_row_that_a_target_refused_is_told_with_its_reason(sink, rejected_rows):
    delivered(sink, 2, rejected=rejected_rows)
    refused = rejected("film_ratings_to_duckdb", reason="RefusedByTarget", error="too many stars")
    refused |= {"source_position": f'{DAY}/{{"id": 1}}', "partition_date": DAY}
    write_table(sink, "film_ratings_to_duckdb_rejects", [refused])
    assert at_sink("1") == ([("rejected", "1", "too many stars")], [])
    assert at_sink("0")[0] == [("delivered", "0", "with version 2 of film_ratings")]


@pytest.mark.parametrize("arguments", [["nobody"], ["7", "--pipeline", "film_rating"]])
def test_what_no_pipeline_has_is_an_error(domain, arguments):
    write_table(domain, "film_ratings_source", [accepted("7", 0)])
    assert isinstance(called(*arguments).exception, NotFound)


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def traced(*arguments: str) -> list[tuple[str, str]]:
    result = called("--trace-id", *arguments, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    return [(each["pipeline"], each["record_id"]) for each in json.loads(result.stdout)["records"]]


def test_the_records_of_a_trace_are_found_in_every_pipeline_that_knows_it(tmp_path, domain):
    of_kafka = """\
name: ratings
source: {type: kafka, connection: events, topic: rated, id: [id], include: [headers.traceparent]}
columns: {id: bigint, trace: {type: string, from: kafka.headers.traceparent}}
table: {keys: [id], trace_context: trace}
"""
    (tmp_path / "platform.yaml").write_text(
        "connections: {events: {type: kafka, bootstrap_servers: ['localhost:9']}}"
    )
    (tmp_path / "pipelines" / "ratings.yaml").write_text(of_kafka)
    domain = load_settings().placement().domains[0]
    header = f"00-{TRACE}-00f067aa0ba902b7-01"
    record = json.dumps({"id": 7, "kafka.headers.traceparent": header})
    place = {"source": "kafka", "source_position": "rated/3:41"}
    write_table(domain, "ratings_source", [accepted("7", 0, record=record, **place), accepted("8", 1)])
    rows = [{"id": 7, "trace": header}, {"id": 8, "trace": "no trace context"}]
    read = {cursor_name("ratings_source", None): 0}
    write_table(
        domain, "ratings", [{**row, "_offset": n, "_batch_id": 0} for n, row in enumerate(rows)], read
    )
    events = [{"event_id": "e", "trace_id": TRACE}, {"event_id": "another", "trace_id": "0" * 32}]
    write_table(domain, "raw_events", [{"ingested_at": NOON, "offset": n, **e} for n, e in enumerate(events)])
    assert sorted(traced(TRACE.upper())) == [("orders", "e"), ("ratings", "7")]
    assert traced(TRACE, "--pipeline", "ratings") == [("ratings", "7")]
    assert isinstance(called("--trace-id", "f" * 32).exception, NotFound)
    assert isinstance(called("--trace-id", "0" * 32).exception, InputError)
    answer = history("7", "--pipeline", "ratings")
    assert answer["trace_id"] == TRACE
    assert answer["origin"] == "topic rated, Kafka partition 3, offset 41"
    shown = called("7", "--pipeline", "ratings").stdout
    assert f"trace     {TRACE}" in shown
    assert history("8", "--pipeline", "ratings")["trace_id"] is None


def test_a_column_that_the_stored_table_does_not_have_yet_is_no_error(domain, tmp_path):
    write_table(domain, "film_ratings_source", [accepted("7", 0)])
    loaded(domain, {"id": 7, "stars": 4, "_offset": 0})
    later = RATINGS.replace("table: {", "  trace: string\ntable: {trace_context: trace, ")
    (tmp_path / "pipelines" / "film_ratings.yaml").write_text(later)
    assert [row["trace"] for row in history("7")["rows"]] == [None]
    assert isinstance(called("--trace-id", TRACE).exception, NotFound)
