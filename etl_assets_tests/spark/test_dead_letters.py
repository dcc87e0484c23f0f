"""Dead letters handed in again: a corrected record, a corrected payload, and one that is still wrong."""

from __future__ import annotations

import json

import pytest

from etl_assets.errors import InputError
from etl_assets.observability.dead_letters import read_dead_letters
from etl_assets.sources.replays import event_again, record_again, submit_replays
from etl_assets.steps.discard_dead_letters import DiscardDeadLetters
from etl_assets.steps.step import ReadMode
from etl_assets_tests.pipeline import DAY, event

pytestmark = pytest.mark.spark

STEPS = ["customers", "raw_events", "normalized_orders", "dead_letters", "audit_log"]


def test_a_corrected_letter_is_replayed_once_and_one_that_is_still_wrong_stays_open(pipeline):
    bad_payload = event(3, payload={"customer_id": "c", "amount": "-1"})
    pipeline.land([event(1), "first bad", "second bad", bad_payload])
    pipeline.run(only=STEPS)

    def letters():
        return {row["record"]: row for row in pipeline.rows("dead_letters")}

    by_reason = {(row["stage"], row["source_position"].rpartition(":")[2]): row for row in letters().values()}
    first, second, third = by_reason["ingest", "2"], by_reason["ingest", "3"], by_reason["normalize", "4"]
    assert {row["state"] for row in letters().values()} == {"open"}

    domain = pipeline.domain
    submit_replays(domain, [record_again(DAY, first["dead_letter_id"], 2, json.dumps(event(2)).encode())])
    submit_replays(domain, [record_again(DAY, second["dead_letter_id"], 2, b"still bad")])
    submit_replays(
        domain,
        [event_again(DAY, third["dead_letter_id"], 2, "event-3", b'{"customer_id": "c", "amount": "1.50"}')],
    )
    # A refused event is in raw_events already, so that its day is read as a whole.
    for mode in (ReadMode.WHOLE, ReadMode.INCREMENTAL, ReadMode.WHOLE):
        pipeline.run(mode=mode, only=STEPS)
        state = {
            row["dead_letter_id"]: (row["state"], row["attempts"]) for row in pipeline.rows("dead_letters")
        }
        assert state == {
            first["dead_letter_id"]: ("replayed", 2),
            second["dead_letter_id"]: ("open", 2),
            third["dead_letter_id"]: ("replayed", 2),
        }
        assert {row["event_id"] for row in pipeline.rows("normalized_orders")} == {
            "event-1",
            "event-2",
            "event-3",
        }
    audit = {
        (row["stage"], row["event_id"], row["attempt"]): row["outcome"] for row in pipeline.rows("audit_log")
    }
    assert audit["ingest", "event-2", 2] == "replayed"
    assert audit["normalize", "event-3", 1] == "rejected"
    assert audit["normalize", "event-3", 2] == "normalized"
    assert len(pipeline.rows("raw_events")) == 3


def test_a_letter_of_normalize_that_is_refused_again_tells_the_new_reason_under_its_own_id(pipeline):
    pipeline.land([event(1, payload={"customer_id": "c", "amount": "-1"})])
    pipeline.run(only=STEPS)
    (first,) = pipeline.rows("dead_letters")
    letter_id = first["dead_letter_id"]
    submit_replays(pipeline.domain, [event_again(DAY, letter_id, 2, "event-1", b'{"customer_id": "c"}')])
    for mode in (ReadMode.WHOLE, ReadMode.INCREMENTAL):
        pipeline.run(mode=mode, only=STEPS)
        (second,) = pipeline.rows("dead_letters")
        assert (second["dead_letter_id"], second["attempts"], second["state"]) == (letter_id, 2, "open")
        assert second["reason"] == "InvalidPayload" != first["reason"]
        assert second["record"] == '{"customer_id":"c"}'
    submit_replays(
        pipeline.domain, [event_again(DAY, letter_id, 3, "event-1", b'{"customer_id": "c", "amount": "1"}')]
    )
    pipeline.run(mode=ReadMode.WHOLE, only=STEPS)
    (third,) = pipeline.rows("dead_letters")
    assert (third["dead_letter_id"], third["attempts"], third["state"]) == (letter_id, 3, "replayed")
    audit = [row for row in pipeline.rows("audit_log", order_by="attempt") if row["stage"] == "normalize"]
    assert [row["outcome"] for row in audit] == ["rejected", "rejected", "normalized"]
    assert [row["attempt"] for row in audit] == [1, 2, 3]


def test_a_letter_that_is_discarded_while_its_replay_waits_ends_as_the_replay_does(pipeline):
    pipeline.land(["first bad", "second bad", "third bad"])
    pipeline.run(only=STEPS)
    letters = {row["record"]: row["dead_letter_id"] for row in pipeline.rows("dead_letters")}
    first, second, third = letters["first bad"], letters["second bad"], letters["third bad"]
    submit_replays(pipeline.domain, [record_again(DAY, first, 2, b'{"still": "bad"}')])
    submit_replays(pipeline.domain, [record_again(DAY, second, 2, json.dumps(event(2)).encode())])
    found = read_dead_letters(pipeline.domain, dead_letter_id=[first, second, third])
    DiscardDeadLetters(context=pipeline.context, letters=found, reason="a test").run()
    for mode in (ReadMode.INCREMENTAL, ReadMode.WHOLE):
        pipeline.run(mode=mode, only=STEPS)
        ends = {row["dead_letter_id"]: row for row in pipeline.rows("dead_letters")}
        assert {each: (row["state"], row["attempts"]) for each, row in ends.items()} == {
            first: ("open", 2),
            second: ("replayed", 2),
            third: ("discarded", 1),
        }
        assert ends[first]["record"] == '{"still": "bad"}'
        assert "discarded" not in ends[first]["error"]


def test_a_letter_whose_event_came_by_another_way_is_closed_when_it_is_handed_in(pipeline):
    pipeline.land([event(1), "bad"])
    pipeline.run(only=STEPS)
    (letter,) = pipeline.rows("dead_letters")
    submit_replays(
        pipeline.domain, [record_again(DAY, letter["dead_letter_id"], 2, json.dumps(event(1)).encode())]
    )
    pipeline.run(only=STEPS)
    (closed,) = pipeline.rows("dead_letters")
    assert (closed["state"], closed["attempts"]) == ("replayed", 2)
    assert len(pipeline.rows("raw_events")) == 1


@pytest.mark.parametrize("payload", [b"not json", b"[]", b'{"a": 1, "a": 2}', b'{"a": 1e5}'])
def test_a_correction_that_has_no_meaning_is_refused_at_once(pipeline, payload):
    with pytest.raises(InputError, match="the corrected payload"):
        submit_replays(pipeline.domain, [event_again(DAY, "0" * 64, 2, "event-1", payload)])


def test_a_corrected_record_is_one_line(pipeline):
    with pytest.raises(InputError, match="one line"):
        submit_replays(pipeline.domain, [record_again(DAY, "0" * 64, 2, b'{"a":\n1}')])
