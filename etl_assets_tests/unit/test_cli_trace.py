"""`etl-assets trace`: the story of an event, from tables written by hand."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pytest
from click.testing import CliRunner

from etl_assets.cli.trace import trace
from etl_assets.delta.log.cursor import cursor_name
from etl_assets.errors import NotFound
from etl_assets.settings import load_settings
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.written_tables import DAY, NOON, write_table

LETTER = "d" * 64
REPLAY = {"source": "dead_letters", "source_position": f"{DAY}/{LETTER}.2.jsonl:1"}


@pytest.fixture
def domain(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return load_settings().placement().domains[0]


def story(event_id: str = "e"):
    result = CliRunner().invoke(trace, [event_id, "--json"])
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def told(answer) -> list[tuple[str, str]]:
    return [(each["stage"], each["outcome"]) for each in answer["happenings"]]


def at(seconds: int):
    return NOON + dt.timedelta(seconds=seconds)


def accept(domain, **columns):
    row = {"event_id": "e", "offset": 7, "source": "landing", "source_position": f"{DAY}/a:b.jsonl:12"}
    row |= {"tenant_id": "t", "aggregate_id": "o", "ingested_at": at(1), **columns}
    write_table(domain, "raw_events", [row, {"event_id": "another", "offset": 8}])


def finish(domain):
    write_table(domain, "normalized_orders", [{"event_id": "e", "offset": 3, "raw_offset": 7, "batch_id": 0}])
    committed = {
        "event_id": "e",
        "normalized_offset": 3,
        "committed_at": dt.datetime.now(dt.UTC) + dt.timedelta(days=1),
    }
    write_table(domain, "warehouse_rows", [committed])


def refusal(stage: str = "ingest", **columns):
    row = {"exception_id": "x" * 64, "stage": stage, "outcome": "rejected", "reason": "InvalidPayload"}
    row |= {"source": "landing", "source_position": f"{DAY}/f.jsonl:5", "failed_at": at(0), "event_id": "e"}
    return {**row, **columns}


def test_an_event_tells_file_line_offset_and_every_stage(domain, tmp_path):
    accept(domain)
    finish(domain)
    view = {"tenant_id": "t", "order_id": "o", "order_status": "paid", "order_total": Decimal("1.50")}
    write_table(
        domain, "order_status_view", [{**view, "paid_total": Decimal(0)}, {**view, "order_id": "other"}]
    )
    answer = story()
    assert answer["file"] == str(tmp_path / "landing" / DAY.isoformat() / "a:b.jsonl")
    assert (answer["line"], answer["offset"], answer["waiting_for"]) == (12, 7, [])
    assert told(answer) == [("ingest", "accepted"), ("normalize", "normalized"), ("commit", "committed")]
    assert [each["offset"] for each in answer["happenings"]] == [7, 3, 3]
    assert all(each["at"] for each in answer["happenings"])
    assert (answer["order"]["order_id"], answer["order"]["order_total"]) == ("o", "1.50")


def test_an_order_is_followed_to_its_sink(domain, tmp_path):
    connection = "{type: postgres, host: h, database: d, user: u, write: [orders.*]}"
    (tmp_path / "platform.yaml").write_text(f"connections: {{orders: {connection}}}")
    domain = load_settings().placement().domains[0]
    name = "order_status_view_to_postgres"
    accept(domain, trace_id="4bf92f3577b34da6a3ce929d0e0e4736")
    assert story()["waiting_for"] == ["normalize", "commit", name]
    finish(domain)
    assert story()["waiting_for"] == [name]
    view = {"tenant_id": "t", "order_id": "o", "order_total": Decimal(1), "paid_total": Decimal(0)}
    cursor = cursor_name("warehouse_rows", None)
    for version, (rows, batch) in enumerate([([view], 0), ([], 1), ([], 2)]):
        write_table(domain, "order_status_view", rows, {cursor: batch})
        snapshot = platform_table("order_status_view", domain).snapshot()
        assert snapshot is not None
        figures = {"to_version": version, "rejected": 0, "_batch_id": version, "seconds": 0.5}
        delivery = {"table_id": snapshot.table_id, "domain": "local", "began_at": at(version), **figures}
        # The event is of the batch 1: the first delivery did not have it.
        waiting = [name] if batch < 1 else []
        assert story()["waiting_for"] == ([name] if version < 2 else [])
        write_table(domain, name, [delivery])
        assert story()["waiting_for"] == waiting
    answer = story()
    (last,) = (each for each in answer["happenings"] if each["stage"] == name)
    assert (last["outcome"], last["domain"], last["audited"]) == ("delivered", "local", None)
    assert last["at"] == (at(1) + dt.timedelta(seconds=0.5)).isoformat()
    shown = CliRunner().invoke(trace, ["e"]).stdout
    assert "trace     4bf92f3577b34da6a3ce929d0e0e4736" in shown


def test_stages_that_have_not_judged_it_are_named(domain):
    accept(domain)
    assert story()["waiting_for"] == ["normalize", "commit"]


def test_a_time_that_the_log_has_forgotten_keeps_its_place(domain):
    accept(domain)
    write_table(
        domain, "normalized_orders", [{"event_id": "e", "offset": 3, "raw_offset": 7, "batch_id": 99}]
    )
    write_table(domain, "warehouse_rows", [{"event_id": "e", "normalized_offset": 3, "committed_at": at(9)}])
    answer = story()
    assert told(answer) == [("ingest", "accepted"), ("normalize", "normalized"), ("commit", "committed")]
    assert answer["happenings"][1]["at"] is None


def test_what_audit_log_has_not_got_yet_is_told_and_marked(domain):
    accept(domain)
    write_table(domain, "normalized_orders", [{"event_id": "e", "offset": 3, "raw_offset": 7}])
    write_table(
        domain,
        "audit_log",
        [
            {
                "stage": "ingest",
                "event_id": "e",
                "source_position": f"{DAY}/a:b.jsonl:12",
                "outcome": "accepted",
            }
        ],
    )
    answer = story()
    assert [each["audited"] for each in answer["happenings"]] == [True, False]
    assert answer["waiting_for"] == ["commit"]


def test_duplicates_and_conflicts_tell_where_they_were_seen_and_follow_what_was_accepted(domain, tmp_path):
    accept(domain)
    late = DAY + dt.timedelta(days=3)
    write_table(
        domain,
        "raw_events_exceptions",
        [
            refusal(exception_id="1", outcome="duplicate", reason=None),
            refusal(
                exception_id="2",
                outcome="conflict",
                reason="FingerprintConflict",
                partition_date=late,
                source_position=f"{late}/g.jsonl:1",
                failed_at=at(500),
                original_offset=7,
            ),
        ],
    )
    answer = story()
    assert told(answer) == [("ingest", "accepted"), ("ingest", "duplicate"), ("ingest", "conflict")]
    assert [(each["line"], each["offset"]) for each in answer["repeats"]] == [(5, 7), (1, 7)]
    assert answer["repeats"][1]["file"] == str(tmp_path / "landing" / late.isoformat() / "g.jsonl")


def test_an_event_that_was_never_accepted_has_a_story_too(domain):
    write_table(domain, "raw_events_exceptions", [refusal(reason="WrongType")])
    answer = story()
    assert (answer["event"], answer["waiting_for"], told(answer)) == (None, [], [("ingest", "rejected")])


def test_a_replayed_event_begins_with_the_record_it_was_corrected_from(domain):
    write_table(
        domain, "raw_events_exceptions", [refusal(exception_id=LETTER, event_id=None, reason="MalformedJson")]
    )
    file = domain.replays_path("ingest") / DAY.isoformat() / f"{LETTER}.2.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("{}\n")
    accept(domain, **REPLAY, ingested_at=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1))
    write_table(
        domain,
        "dead_letters",
        [{"dead_letter_id": LETTER, "state": "replayed", "stage": "ingest", "attempts": 2}],
    )
    answer = story()
    assert told(answer) == [("ingest", "rejected"), ("ingest", "handed in"), ("ingest", "replayed")]
    assert [each["attempt"] for each in answer["happenings"]] == [1, 2, 2]
    assert answer["happenings"][0]["line"] == 5
    assert answer["file"] == str(file)
    assert [letter["state"] for letter in answer["dead_letters"]] == ["replayed"]


def test_an_event_refused_at_normalize_waits_for_nothing_until_it_is_handed_in(domain):
    accept(domain)
    write_table(
        domain, "normalized_orders_exceptions", [refusal("normalize", exception_id=LETTER, original_offset=7)]
    )
    write_table(domain, "dead_letters", [{"dead_letter_id": LETTER, "event_id": "e", "state": "open"}])
    assert story()["waiting_for"] == []
    file = domain.replays_path("normalize") / DAY.isoformat() / f"{LETTER}.2.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("{}\n")
    assert story()["waiting_for"] == ["normalize", "commit"]


def test_people_read_it_as_a_table(domain):
    accept(domain)
    finish(domain)
    output = CliRunner().invoke(trace, ["e"]).stdout
    assert "a:b.jsonl, line 12" in output
    assert "offset    7 in raw_events, day 2026-03-01" in output


def test_an_unknown_event_is_not_found_and_the_fix_is_named(domain):
    accept(domain)
    for unknown in ("nope", "' OR 'a'='a"):
        result = CliRunner().invoke(trace, [unknown])
        assert isinstance(result.exception, NotFound)
        assert "fix: check the id" in str(result.exception)
