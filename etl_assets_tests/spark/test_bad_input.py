"""Bad input becomes a dead letter or a clear error with its file and line; nothing accepted is lost or
doubled.
"""

from __future__ import annotations

import gzip
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contracts.envelope import KEPT_RECORD_BYTES
from etl_assets.contracts.reasons import DeadLetterReason as Reason
from etl_assets.errors import SourceChanged, SourceUnreadable
from etl_assets.ingest import ingest_batch, stage_lines
from etl_assets_tests.pipeline import DAY, NEXT_DAY, Pipeline, event

pytestmark = pytest.mark.spark

LINE_ENDS = ("\n", "\r", "\r\n", "\u0085", "\u2028", "\u2029")
"""What Java's `$` lets follow."""
BAD: dict[str, tuple[dict[str, Any] | str | bytes, Reason]] = {
    "not JSON": ("not json", Reason.MALFORMED_JSON),
    "truncated line": (json.dumps(event(100))[:-20], Reason.MALFORMED_JSON),
    "wrong type": (event(101, event_id=101), Reason.WRONG_TYPE),
    "missing field": (event(102, tenant_id=None), Reason.MISSING_FIELD),
    "NaN": (event(103, payload={"amount": float("nan")}), Reason.MALFORMED_JSON),
    "year 9999": (event(104, timestamp="9999-12-31T23:59:59Z"), Reason.TIMESTAMP_OUT_OF_RANGE),
    "no zone": (event(105, timestamp="2026-01-05T10:00:00"), Reason.INVALID_TIMESTAMP),
    "10 MB line": (event(106, payload={"x": "x" * 10_000_000}), Reason.RECORD_TOO_LARGE),
    "invalid UTF-8": (b'{"event_id": "\xff"}', Reason.INVALID_UTF8),
    "duplicate keys": (json.dumps(event(107))[:-1] + ', "event_id": "other"}', Reason.DUPLICATE_KEY),
    "exponent": (
        json.dumps(event(108, payload={"amount": 0})).replace(": 0}", ": 1e0}"),
        Reason.UNSAFE_NUMBER,
    ),
    "no object": ("[]", Reason.NOT_AN_OBJECT),
    # These are taken in and refused by normalize.
    "unknown event type": (event(110, event_type="OrderForgotten"), Reason.UNKNOWN_EVENT_TYPE),
    "newer version": (event(111, schema_version=99), Reason.UNSUPPORTED_SCHEMA_VERSION),
    "negative amount": (
        event(112, payload={"customer_id": "c", "amount": "-0.01"}),
        Reason.CONTRACT_VIOLATION,
    ),
    "three decimals": (event(113, payload={"customer_id": "c", "amount": "1.005"}), Reason.INVALID_PAYLOAD),
    "three decimals in a number": (
        event(114, payload={"customer_id": "c", "amount": 1.005}),
        Reason.INVALID_PAYLOAD,
    ),
    "more digits than a double has": (
        json.dumps(event(115, payload={"customer_id": "c", "amount": 0})).replace(
            ": 0}", ": 1.0000000000000000001}"
        ),
        Reason.INVALID_PAYLOAD,
    ),
    "amount of another type": (
        event(116, payload={"customer_id": "c", "amount": ["1"]}),
        Reason.INVALID_PAYLOAD,
    ),
    "no amount": (event(117, payload={"customer_id": "c"}), Reason.INVALID_PAYLOAD),
    "null customer": (event(118, payload={"customer_id": None, "amount": 1}), Reason.INVALID_PAYLOAD),
    "seventeen digits": (
        event(119, payload={"customer_id": "c", "amount": "12345678901234567"}),
        Reason.INVALID_PAYLOAD,
    ),
    "lower-case currency": (
        event(120, payload={"customer_id": "c", "amount": 1, "currency": "eur"}),
        Reason.CONTRACT_VIOLATION,
    ),
    **{
        f"amount before U+{ord(end[-1]):04X} and a length of {len(end)}": (
            event(130 + number, payload={"customer_id": "c", "amount": f"12.50{end}"}),
            Reason.INVALID_PAYLOAD,
        )
        for number, end in enumerate(LINE_ENDS)
    },
    **{
        f"currency before U+{ord(end[-1]):04X} and a length of {len(end)}": (
            event(140 + number, payload={"customer_id": "c", "amount": 1, "currency": f"EUR{end}"}),
            Reason.CONTRACT_VIOLATION,
        )
        for number, end in enumerate(LINE_ENDS)
    },
    **{
        f"value of another kind beside one of that name, {number}": (
            json.dumps(event(150 + number, payload={})).replace("{}", payload),
            Reason.INVALID_PAYLOAD,
        )
        for number, payload in enumerate(
            (
                '{"customer_id": "c", "amount": 5.100000000000000000001, "a": {"amount": 5.1}}',
                '{"customer_id": "c", "amount": 5.100000000000000000001, "a": {"amount": "5.1"}}',
                '{"customer_id": "c", "amount": 5.100000000000000000001, "a": [{"amount": 5.1, "b": 1}]}',
                '{"customer_id": "c", "amount": 5.100000000000000000001, "x\\"amount": 5.1}',
                '{"customer_id": "c", "amount": true, "a": {"amount": "true"}}',
                '{"customer_id": "c", "amount": [], "a": {"amount": "[]"}}',
            )
        )
    },
    **{
        f"customer of another kind beside one of that name, {number}": (
            json.dumps(event(160 + number, payload={})).replace("{}", payload),
            Reason.CONTRACT_VIOLATION,
        )
        for number, payload in enumerate(
            (
                '{"customer_id": 5, "amount": 1, "a": {"customer_id": "5"}}',
                '{"customer_id": true, "amount": 1, "a": {"customer_id": "true"}}',
                '{"customer_id": 5, "amount": 1, "x\\"customer_id": "5"}',
                '{"customer_id": "c", "amount": 1, "currency": ["EUR"], "a": {"currency": "[\\"EUR\\"]"}}',
            )
        )
    },
}
GOOD_BEFORE, GOOD_AFTER = event(1), event(2)
SAME_NAME = event(
    3, payload={"customer_id": "c", "amount": 5.1, "a": {"amount": 7, "customer_id": 5, "b": {"amount": "x"}}}
)
NAME = "bad [1]*% lines?.jsonl"


@pytest.fixture(scope="module")
def bad_day(engine, tmp_path_factory):
    """All bad lines in one file between two good ones, and what the data path made of them."""
    folder = tmp_path_factory.mktemp("bad_input")
    session = engine.spark_session.newSession()
    pipeline = Pipeline(root=folder / "data", landing=folder / "landing", session=lambda: session)
    pipeline.land([GOOD_BEFORE, *(line for line, _ in BAD.values()), GOOD_AFTER, SAME_NAME], name=NAME)
    reports = pipeline.run(only=["customers", "raw_events", "normalized_orders", "dead_letters"])
    return (
        reports,
        pipeline.rows("dead_letters"),
        pipeline.rows("raw_events"),
        pipeline.rows("normalized_orders"),
    )


@pytest.mark.parametrize("what", BAD)
def test_a_bad_line_is_a_dead_letter_with_its_file_and_line(bad_day, what):
    _, letters, _, _ = bad_day
    line = list(BAD).index(what) + 2
    found = [letter for letter in letters if letter["source_position"] == f"{DAY}/{NAME}:{line}"]
    assert [(letter["reason"], letter["state"], letter["attempts"]) for letter in found] == [
        (BAD[what][1], "open", 1)
    ]
    assert found[0]["error"]


def test_the_good_lines_around_them_are_accepted_and_the_figures_add_up(bad_day):
    reports, letters, raw, normalized = bad_day
    at_ingest = [letter for letter in letters if letter["stage"] == "ingest"]
    total = reports["raw_events"].total()
    assert total["read"] == len(BAD) + 3 == total["accepted"] + total["rejected"]
    assert total["rejected"] == len(at_ingest)
    assert sorted(row["offset"] for row in raw) == list(range(total["accepted"]))
    amounts = {row["event_id"]: row["amount"] for row in normalized}
    assert amounts == {"event-1": Decimal("12.50"), "event-2": Decimal("12.50"), "event-3": Decimal("5.10")}
    assert len(letters) == len(BAD)


def test_the_oddities_of_text_files_are_no_lines(pipeline):
    folder = pipeline.landing / DAY.isoformat()
    folder.mkdir(parents=True)
    one, two, three = (json.dumps(event(number)).encode() for number in (1, 2, 3))
    (folder / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + one + b"\r\n\r\n  \n" + b"bad\r\n" + two)
    (folder / "b.jsonl").write_bytes(b"")
    (folder / "c.jsonl").write_bytes(b"\n\n")
    (folder / "d.jsonl.gz").write_bytes(gzip.compress(three + b"\n"))
    (folder / "e.csv").write_bytes(b"no event file")
    (folder / ".f.jsonl").write_bytes(b"open")
    (folder / "g.jsonl.tmp").write_bytes(b"open")
    (pipeline.landing / "backup").mkdir()
    (pipeline.landing / "backup" / "h.jsonl").write_bytes(one)
    report = pipeline.run(only=["raw_events"])["raw_events"]
    total = report.total()
    assert (total["read"], total["accepted"], total["rejected"]) == (4, 3, 1)
    positions = [row["source_position"] for row in pipeline.rows("raw_events", order_by="offset")]
    assert positions == [f"{DAY}/a.jsonl:1", f"{DAY}/a.jsonl:5", f"{DAY}/d.jsonl.gz:1"]
    (refused,) = pipeline.rows("raw_events_exceptions")
    assert (refused["source_position"], refused["record"]) == (f"{DAY}/a.jsonl:4", "bad")
    assert report.notes == (f"{DAY}/e.csv is no event file and is never read",)
    assert pipeline.run(only=["raw_events"])["raw_events"].commits == 0


@pytest.mark.parametrize("little_bytes", [0, stage_lines.LITTLE_BYTES], ids=["by workers", "in process"])
def test_positions_and_offsets_hold_in_a_file_that_is_read_in_blocks(pipeline, monkeypatch, little_bytes):
    monkeypatch.setattr(stage_lines, "TASK_BYTES", 2_000)
    monkeypatch.setattr(stage_lines, "LITTLE_BYTES", little_bytes)
    numbers = range(1, 61)
    pipeline.land(["bad" if number % 7 == 0 else event(number) for number in numbers])
    pipeline.land([event(1), event(61), "bad"], name="b.jsonl")
    pipeline.run(only=["raw_events"])
    rows = pipeline.rows("raw_events", order_by="offset")
    good = [number for number in numbers if number % 7]
    assert [row["offset"] for row in rows] == list(range(len(good) + 1))
    assert [row["source_position"] for row in rows] == [
        *(f"{DAY}/a.jsonl:{number}" for number in good),
        f"{DAY}/b.jsonl:2",
    ]
    assert [row["event_id"] for row in rows] == [f"event-{number}" for number in (*good, 61)]
    refused = {row["source_position"] for row in pipeline.rows("raw_events_exceptions")}
    assert refused == {f"{DAY}/a.jsonl:{n}" for n in numbers if n % 7 == 0} | {
        f"{DAY}/b.jsonl:{n}" for n in (1, 3)
    }


def test_a_line_too_long_to_be_held_is_a_dead_letter_and_the_lines_around_it_are_events(pipeline):
    folder = pipeline.landing / DAY.isoformat()
    folder.mkdir(parents=True)
    one, two, three = (json.dumps(event(number)).encode() for number in (1, 2, 3))
    size = 5 << 20
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(b"\n".join([one, b"x" * size + b"\r", two, b""])))
    (folder / "b.jsonl").write_bytes(three + b"\n" + b"y" * size)
    total = pipeline.run(only=["raw_events"])["raw_events"].total()
    assert (total["read"], total["accepted"], total["rejected"]) == (5, 3, 2)
    positions = [row["source_position"] for row in pipeline.rows("raw_events", order_by="offset")]
    assert positions == [f"{DAY}/a.jsonl.gz:1", f"{DAY}/a.jsonl.gz:3", f"{DAY}/b.jsonl:1"]
    refused = pipeline.rows("raw_events_exceptions", order_by="source_position")
    assert [(row["source_position"], row["reason"], row["record"]) for row in refused] == [
        (f"{DAY}/a.jsonl.gz:2", Reason.RECORD_TOO_LARGE, "x" * KEPT_RECORD_BYTES),
        (f"{DAY}/b.jsonl:2", Reason.RECORD_TOO_LARGE, "y" * KEPT_RECORD_BYTES),
    ]
    assert all(row["error"].startswith(f"the record has {size:,} bytes, ") for row in refused)


def test_a_file_that_changes_while_it_is_read_stops_its_batch_and_is_read_as_it_is_then(
    pipeline, monkeypatch
):
    path = pipeline.land([event(1), event(2)])
    stage = ingest_batch.IngestBatch._stage

    def changed_while_staged(batch: ingest_batch.IngestBatch) -> None:
        stage(batch)
        path.write_text(json.dumps(event(1)) + "\n", encoding="utf-8")

    monkeypatch.setattr(ingest_batch.IngestBatch, "_stage", changed_while_staged)
    with pytest.raises(SourceChanged, match=r"a\.jsonl changed while it was being read") as changed:
        pipeline.run(only=["raw_events"])
    assert (changed.value.file, changed.value.day) == (str(path), DAY)
    assert pipeline.rows("raw_events") == []
    monkeypatch.undo()
    pipeline.run(only=["raw_events"])
    assert [row["event_id"] for row in pipeline.rows("raw_events")] == ["event-1"]

    path.write_text("".join(json.dumps(event(number)) + "\n" for number in (3, 1)), encoding="utf-8")
    os.utime(path, ns=(1, 1))
    report = pipeline.run(only=["raw_events"])["raw_events"]
    assert report.notes == (f"{DAY}/a.jsonl changed after it had been read and was read again",)
    assert [row["event_id"] for row in pipeline.rows("raw_events", order_by="offset")] == [
        "event-1",
        "event-3",
    ]


def test_a_file_that_is_gone_before_it_is_read_is_named(pipeline, monkeypatch):
    path = pipeline.land([event(1)])
    stage_all = ingest_batch.stage_lines

    def without_it(*args: Any) -> stage_lines.Staged:
        path.unlink()
        return stage_all(*args)

    monkeypatch.setattr(ingest_batch, "stage_lines", without_it)
    with pytest.raises(SourceUnreadable, match=r"a\.jsonl"):
        pipeline.run(only=["raw_events"])
    assert pipeline.rows("raw_events") == []


def test_a_file_that_is_not_what_its_name_says_is_named_and_the_rest_is_not_lost(pipeline):
    whole = gzip.compress(b"".join(json.dumps(event(number)).encode() + b"\n" for number in range(200)))
    path: Path = pipeline.landing / DAY.isoformat() / "broken.jsonl.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceUnreadable, match=r"broken\.jsonl\.gz cannot be decompressed"):
        pipeline.run(only=["raw_events"])
    assert pipeline.rows("raw_events") == []
    path.unlink()
    pipeline.land([event(1)], day=NEXT_DAY)
    assert pipeline.run([DAY, NEXT_DAY], only=["raw_events"])["raw_events"].total()["accepted"] == 1
