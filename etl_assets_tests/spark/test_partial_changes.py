"""Changes that lack values, without a table: each order of their arrival ends in the same row."""

from __future__ import annotations

import json

import pytest

from etl_assets.delta.session import frame_of
from etl_assets.delta.write.completed_changes import FORMER_KEY, LackingColumns
from etl_assets.delta.write.partial_changes import completed_by_spark

pytestmark = pytest.mark.spark

COLUMNS = LackingColumns(
    keys=("id",),
    sequence="place",
    arrival="_offset",
    lacks="lacks",
    fields={"name": "name", "note": "n"},
    key_fields=("key",),
)
SCHEMA = (
    "id INT, name STRING, note STRING, place STRING, _offset BIGINT, lacks STRING, _is_deleted BOOLEAN,"
    " _is_truncate BOOLEAN"
)
STORED = "id INT, name STRING, note STRING, place STRING, _offset BIGINT, lacks STRING"
LACKED = '{{"n":"{}"}}'
NO_NOTE = LACKED.format("")


def test_lacked_values_are_those_of_the_newest_change_that_has_them_also_if_it_arrives_later(spark):
    stored = [
        (1, "a", "kept", "10", 1, None),  # has what a later change lacks
        (2, "b", None, "30", 2, NO_NOTE),  # lacks what a change from before it has
        (3, "c", "old", "30", 3, LACKED.format("10")),  # has it from a change that is older than another
        (4, "d", "new", "30", 4, LACKED.format("20")),  # has it from a newer one than comes now
        (5, "e", "whole", "10", 5, None),
    ]
    changes = [
        (1, "a2", None, "20", 11, NO_NOTE, False, False),
        (2, "b0", "filled", "20", 12, None, False, False),
        (3, "c0", "newer", "20", 13, None, False, False),
        (4, "d0", "older", "10", 14, None, False, False),
        (5, "e2", "whole 2", "20", 15, None, False, False),
        (6, "f", None, "20", 16, NO_NOTE, False, False),  # never had
        (7, None, None, "20", 17, None, True, False),
        (8, "h", None, "20", 18, NO_NOTE, False, False),  # has it from the same batch, two changes before
        (8, "h", None, "15", 19, NO_NOTE, False, False),
        (8, "h", "first", "10", 20, None, False, False),
    ]
    made = completed_by_spark(
        frame_of(spark, changes, SCHEMA), frame_of(spark, stored, STORED), None, COLUMNS
    ).collect()
    found = {row["id"]: row for row in sorted(made, key=lambda row: (row["place"], row["_offset"]))}
    rows = {
        key: (row["name"], row["note"], row["place"], row["_offset"], row["lacks"])
        for key, row in found.items()
    }
    assert rows == {
        1: ("a2", "kept", "20", 11, '{"n":"10"}'),
        2: ("b", "filled", "30", 12, '{"n":"20"}'),
        3: ("c", "newer", "30", 13, '{"n":"20"}'),
        4: ("d0", "older", "10", 14, None),  # late, which the MERGE finds
        5: ("e2", "whole 2", "20", 15, None),
        6: ("f", None, "20", 16, '{"n":""}'),
        7: (None, None, "20", 17, None),
        8: ("h", "first", "20", 18, '{"n":"10"}'),
    }
    assert found[7]["_is_deleted"]


def test_keys_that_a_row_had_one_after_the_other_and_truncates_are_known_to_all_groups(spark):
    def moved(former):
        return json.dumps({"n": "", FORMER_KEY: json.dumps({"key": former})})

    stored = [
        (1, "a", "one", "10", 1, None),
        (5, "e", "old", "10", 2, None),
        (7, "g", "seven", "25", 3, None),
    ]
    changes = [
        (None, None, None, "20", 10, None, False, True),  # empties the table
        (1, "a", "again", "21", 11, None, False, False),
        (1, None, None, "30", 12, None, True, False),
        (2, "a2", None, "30", 13, moved(1), False, False),
        (2, None, None, "40", 14, None, True, False),
        (3, "a3", None, "40", 15, moved(2), False, False),
        (5, "e2", None, "30", 16, NO_NOTE, False, False),  # its row was there before the table was emptied
        (7, None, None, "50", 17, None, True, False),
        (8, "g2", None, "50", 18, moved(7), False, False),
    ]
    tombstones = frame_of(
        spark,
        [(key, place, offset, False) for key, place, offset in [(7, "50", 17), (1, "30", 12)]],
        "id INT, place STRING, _offset BIGINT, _is_truncate BOOLEAN",
    )
    made = completed_by_spark(
        frame_of(spark, changes, SCHEMA), frame_of(spark, stored, STORED), tombstones, COLUMNS
    ).collect()
    rows = {(row["id"], row["place"]): row["note"] for row in made if not row["_is_deleted"]}
    assert rows == {
        (1, "21"): "again",
        (2, "30"): "again",
        (3, "40"): "again",
        (5, "30"): None,
        (8, "50"): "seven",
    }
