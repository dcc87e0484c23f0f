"""Which events of a small batch have been accepted before, found without Spark."""

from __future__ import annotations

from typing import Any

from etl_assets.transforms.find_duplicates import find_duplicates_in_process


def staged(ordinal: int, event_id: str, fingerprint: str) -> dict[str, Any]:
    return {
        "ordinal": ordinal,
        "event_id": event_id,
        "fingerprint": fingerprint,
        "source": "landing",
        "source_position": f"a.jsonl:{ordinal}",
    }


def accepted(offset: int, fingerprint: str, position: str = "old.jsonl:1") -> dict[str, Any]:
    return {
        "fingerprint": fingerprint,
        "offset": offset,
        "source": "landing",
        "source_position": position,
    }


def test_the_first_in_source_order_stands_whatever_order_the_events_come_in():
    events = [staged(3, "a", "y"), staged(2, "a", "x"), staged(1, "a", "x"), staged(4, "b", "x")]
    assert list(find_duplicates_in_process(events, {})) == [
        (2, "duplicate", None, 1),
        (3, "conflict", None, 1),
    ]


def test_an_event_of_history_stands_before_all_of_the_batch():
    events = [staged(1, "a", "x"), staged(2, "a", "y"), staged(3, "b", "x")]
    assert list(find_duplicates_in_process(events, {"a": accepted(0, "y")})) == [
        (1, "conflict", 0, None),
        (2, "duplicate", 0, None),
    ]


def test_the_row_itself_met_again_is_no_duplicate_of_itself():
    events = [staged(1, "a", "x"), staged(2, "a", "x")]
    assert list(find_duplicates_in_process(events, {"a": accepted(7, "x", "a.jsonl:1")})) == [
        (1, "accepted", 7, None),
        (2, "duplicate", 7, None),
    ]


def test_other_content_on_the_line_of_a_row_is_a_conflict_with_it():
    """A file that was changed after it had been read."""
    events = [staged(1, "a", "y"), staged(2, "a", "x")]
    assert list(find_duplicates_in_process(events, {"a": accepted(7, "x", "a.jsonl:1")})) == [
        (1, "conflict", 7, None),
        (2, "duplicate", 7, None),
    ]
